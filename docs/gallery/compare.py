# %% [markdown]
# # Compare with SDV and mostlyai
#
# The same incomplete table for three packages: 3,000 visits to the clinic, 40 % of the
# values missing. Each package keeps its defaults and gets a CSV file. We want complete
# rows, and we know the truth.
#
# SDV and mostlyai need other versions of their libraries than augmask, so their rows
# were made once, in environments of their own, by `make gallery-rivals`, and are
# committed with the versions.

# %%
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import augmask as am
from augmask.evaluation.fidelity import shape

QUICK = "AUGMASK_QUICK" in os.environ  # the tests train for a few steps only

ROWS = Path(__file__).parent / "rows"
NAMES = {
    "sdv": "SDV, Gaussian copula",
    "mostlyai": "mostlyai-engine",
}
visits = am.load_clinic(3000).drop(columns="patient")
truth = am.load_clinic(3000, complete=True).drop(columns="patient")


def read_rows(name: str) -> pd.DataFrame:
    """Read the rows that another package made."""
    path = ROWS / f"{name}.csv.gz"
    dates = ["visit_date"]
    return pd.read_csv(path, parse_dates=dates, keep_default_na=False, na_values=[""])


made = {NAMES[name]: read_rows(name) for name in NAMES}
facts = {NAMES[name]: json.loads((ROWS / f"{name}.json").read_text()) for name in NAMES}
pd.DataFrame(facts).T[["package", "version", "torch", "cpu_seconds"]]

# %%
model = am.AugMask(seed=0, options={"steps": 30} if QUICK else None)
made["augmask"] = model.fit(visits).sample(3000, seed=1)

# %% [markdown]
# ## Are the rows complete?
#
# SDV learns missing values as part of the data and puts them back. mostlyai does so too
# unless it is asked to impute every column, as here. augmask generates complete rows.

# %%
gaps = {name: rows.isna().to_numpy().mean() for name, rows in made.items()}
pd.DataFrame({"share of missing cells": gaps}).round(3)

# %% [markdown]
# ## How close to the truth?
#
# Shape compares single columns with the complete truth; of rows with missing values,
# the values that are there. Trend compares pairs of columns, and C2ST is how well trees
# tell generated from true rows (0.5: not at all). Both want complete rows. Other visits
# to the same clinic show what a perfect table scores.

# %%
numeric = [c for c in truth if truth[c].dtype.kind in "iufM"]
categorical = [c for c in truth if c not in numeric]


def scores(rows: pd.DataFrame) -> dict[str, float]:
    """Return scores of rows against the truth."""
    if rows.isna().any(axis=None):
        found = shape(truth, rows, numeric, categorical, allow_missing=True)
        return {"Shape": found.value, "Trend": np.nan, "C2ST": np.nan}
    found = am.evaluate(truth, rows, seed=0)
    return {
        "Shape": found["shape"],
        "Trend": found["trend"],
        "C2ST": found["c2st_auc"],
    }


other = am.load_clinic(3000, complete=True, seed=1).drop(columns="patient")
table = pd.DataFrame(
    {name: scores(rows) for name, rows in {**made, "other visits": other}.items()}
).T
table.round(3)

# %% [markdown]
# ## One relation in a picture
#
# Blood sugar of people with and without diabetes, in counts of rows; SDV has fewer
# because of its missing cells.

# %%
figure, axes = plt.subplots(
    1, len(made) + 1, figsize=(11, 2.8), sharex=True, sharey=True
)
bins = np.linspace(3, 20, 50)
for axis, (name, rows) in zip(axes, {"truth": truth, **made}.items(), strict=True):
    diabetic = rows["diabetic"].astype("boolean").fillna(False).astype(bool)
    known = rows["diabetic"].notna()
    for mine, colour in ((~diabetic & known, "#31507d"), (diabetic, "#b5542b")):
        axis.hist(rows.loc[mine, "glucose"].dropna(), bins, color=colour, alpha=0.7)
    axis.set_title(name, fontsize=9)
    axis.set_yticks([])
figure.supxlabel("glucose: blue without diabetes, orange with", fontsize=9)
figure.tight_layout()

# %% [markdown]
# ## What this says, and what not
#
# One made-up table and one seed, with the missingness for which augmask was built. On
# tables without missing values all three do what they were made for; SDV has several
# tables, sequences and business rules, mostlyai has sequences, differential privacy and
# is faster. [The panel](../research/panel.md) compares them on twenty public tables,
# and [Coming from other packages](../coming-from/index.md) lists what augmask lacks.
