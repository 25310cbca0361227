"""Evaluation: how good synthetic rows are, for complete and incomplete real tables.

`evaluate.py` picks what applies and returns `Scores` (`results.py`). The metrics:
`fidelity.py` compares columns and pairs of columns (Shape, Trend), `alpha_beta.py` rows
(α-precision, β-recall); `detection.py` asks whether trees can tell the tables apart
(C2ST), `utility.py` what a model learns from each (MLE), `privacy.py` whether training
rows were copied. For an incomplete real table, `incomplete.py` re-masks synthetic rows
before it compares, and `held_out.py` scores draws for cells that were hidden.

`tables.py` reads and aligns the tables, `references.py` makes the tables that every
number is compared with, `scoring.py` applies each metric to them, `descriptions.py`
says what each number means, and `neighbours.py` finds nearest rows. Nothing here
depends on how the rows were generated.
"""
