"""The paper's benchmark as a tool: plans of runs, on any engine, as tables and figures.

A plan (`plan`) is one TOML file: tables (`data`) x holes x seeds x methods (`methods`).
Each of its runs (`run`) leaves one small file (`results`); from these come the rank
tables and the figures. Everything here uses the public parts of the package.
"""
