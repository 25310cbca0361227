"""How good synthetic rows are, for a complete real table and for one with holes.

`evaluate` picks what applies and returns `Scores`. Behind it: `fidelity` compares
columns and pairs of columns (Shape, Trend), `worst` looks at the least alike of them,
`coverage` compares rows (α-precision, β-recall), `detect` asks whether trees can tell
the tables apart (C2ST), `utility` what a model learns from each (MLE), and `privacy`
whether training rows were copied. Without a complete truth, `incomplete` puts the holes
back before it compares, `alike` hides the same cells in rows of both tables, and
`held_out` judges draws for cells that were hidden. `references` makes the tables that
every number is read against. Nothing here knows how the rows were made.
"""
