"""The paper's benchmark: plans of runs, baselines, rank tables, figures and theory.

A plan (`plan`) is a TOML file: tables (`data`) x missingness x seeds x methods
(`methods`). Each run (`run`) writes one small file (`results`), from which rank tables
and figures are made. Runs are distributed by Dask (`cluster`), on this machine or on a
cluster.
"""
