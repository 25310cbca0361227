# %% [markdown]
# # A clinic: 40 % of the values are missing
#
# The clinic table comes with augmask. Its visits are made up, so the complete truth
# is known, and we can see what a model learned from the incomplete table only.

# %%
import os

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import augmask as am

QUICK = "AUGMASK_QUICK" in os.environ  # the tests train for a few steps only

visits = am.load_clinic(5000)
visits.head(5)

# %% [markdown]
# Values are missing at random given the others: whether a cell is missing depends on
# other cells of its row. So the cells that you see are not typical: old people are seen
# more often, and the mean of the observed ages is a year too high.

# %%
truth = am.load_clinic(5000, complete=True)
numbers = ["age", "weight_kg", "glucose", "systolic", "crp", "stay_days"]
means = pd.DataFrame(
    {"all values": truth[numbers].mean(), "observed values": visits[numbers].mean()}
)
means.round(2)

# %% [markdown]
# ## What augmask sees
#
# `infer_schema` says what it takes each column for, and why, before anything is
# trained.

# %%
print(am.infer_schema(visits))

# %% [markdown]
# ## Fit, and generate complete rows

# %%
model = am.AugMask(seed=0, options={"steps": 30} if QUICK else None)
model.fit(visits)
rows = model.sample(5000, seed=1)
rows.head(5)

# %% [markdown]
# The generated rows have no missing values and the dtypes of the complete table:
# whole numbers that pandas reads as floats because of missing values are whole
# numbers again. Where the observed mean was off, in age, blood sugar and pressure,
# theirs is nearer to the truth:

# %%
means["generated"] = rows[numbers].mean()
means.round(2)

# %% [markdown]
# ## Do columns depend on each other as they should?
#
# Blood sugar has two bumps, of people whose diabetes is treated and of those whose is
# not. In women the blood pressure rises only after the age of 50, and then faster.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
bins = np.linspace(3, 20, 60)
for frame, label, style in (
    (truth, "truth", {"color": "#b8c4c4", "histtype": "stepfilled"}),
    (rows, "generated", {"color": "#0b6e6e", "histtype": "step", "linewidth": 1.6}),
):
    diabetic = frame.loc[frame["diabetic"], "glucose"]
    left.hist(diabetic, bins, density=True, label=label, **style)
left.set(xlabel="glucose of diabetics", yticks=[])
left.legend(frameon=False)
ages = np.arange(20, 95, 5)
for sex, colour in (("female", "#b5542b"), ("male", "#31507d")):
    for frame, style in ((truth, "-"), (rows, "--")):
        mine = frame[frame["sex"] == sex]
        mean = mine.groupby(pd.cut(mine["age"], ages), observed=True)["systolic"].mean()
        middle = [interval.mid for interval in mean.index]
        label = f"{sex}, {'truth' if style == '-' else 'generated'}"
        right.plot(middle, mean, style, color=colour, label=label)
right.set(xlabel="age", ylabel="mean systolic pressure")
right.legend(frameon=False, fontsize=8)
figure.tight_layout()

# %% [markdown]
# ## Scores
#
# Here the complete truth is known, so every score applies. `reference` is what other
# real rows score, `floor` what columns score that do not depend on each other. C2ST
# tells how well trees can tell generated from true rows; 0.5 means that they cannot.

# %%
scores = am.evaluate(truth, rows, seed=0)
shown = ["shape", "trend", "trend_worst", "alpha_precision", "beta_recall", "c2st_auc"]
scores.to_frame().loc[shown, ["value", "reference", "floor"]].round(3)

# %% [markdown]
# ## Rows on demand
#
# A fitted model generates rows that satisfy a condition:

# %%
smokers = model.sample(300, where="smoker == True and age >= 60", seed=2)
smokers[["age", "sex", "smoker", "cigarettes", "oxygen", "diagnosis"]].head(5)
