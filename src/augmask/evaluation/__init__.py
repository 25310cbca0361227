"""How close a complete synthetic table is to a complete real one.

`fidelity` compares columns and pairs of columns (Shape, Trend), `coverage` compares
rows (α-precision, β-recall), and `utility` asks what a model learns from each table
(MLE). Frames come in as they are; nothing here knows how the rows were made.
"""
