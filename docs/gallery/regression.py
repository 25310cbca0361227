# %% [markdown]
# # A regression on imputed data: Rubin's rules
#
# What raises the blood pressure? We fit a linear regression on the clinic table, in
# which 40 % of the values are missing. Four ways to deal with that:
#
# - drop incomplete rows,
# - fill in the mean,
# - impute once, and pretend that the imputed values were observed,
# - impute 10 times, fit 10 regressions, and pool them by Rubin's rules.
#
# The truth of the table is known, so we can see which one is right.

# %%
import os

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import augmask as am

QUICK = "AUGMASK_QUICK" in os.environ  # the tests train for a few steps only
DRAWS = 3 if QUICK else 10

visits = am.load_clinic(2000).drop(columns="patient")
truth = am.load_clinic(2000, complete=True)
names = ["age", "bmi", "diabetic", "systolic"]  # of the regression
complete = visits.dropna(subset=names)
print(f"{len(complete)} of {len(visits)} rows have all four values")


# %%
def regress(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return coefficients and squared standard errors of least squares."""
    x = pd.DataFrame(
        {
            "10 years of age": frame["age"] / 10,
            "5 of body-mass index": frame["bmi"] / 5,
            "diabetes": frame["diabetic"].astype(float),
        }
    ).astype(float)
    design = np.column_stack([np.ones(len(x)), x])
    y = frame["systolic"].to_numpy(float)
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ y
    sigma2 = np.square(y - design @ beta).sum() / (len(y) - design.shape[1])
    variance = sigma2 * np.diag(inverse)
    return pd.Series(beta[1:], x.columns), pd.Series(variance[1:], x.columns)


# %% [markdown]
# ## Impute 10 times
#
# The model learns all columns, not only those of the regression: whether a value is
# missing depends on the others.

# %%
model = am.AugMask("tabddpm", seed=0, options={"steps": 30 if QUICK else 2000})
model.fit(visits)
draws = model.impute(visits, n_draws=DRAWS, seed=1)
spread = draws.summary()
shown = ["row", "column", "mean", "sd", "lower", "upper"]
spread.loc[spread["column"] == "systolic", shown].head(5)

# %% [markdown]
# ## Pool
#
# `am.pool` takes one estimate and one variance per completion. The variance between
# completions is what the missing values cost.


# %%
def interval(frame: pd.DataFrame) -> pd.DataFrame:
    """Return estimates with 95 % intervals."""
    beta, variance = regress(frame)
    half = 1.96 * np.sqrt(variance)
    return pd.DataFrame({"estimate": beta, "lower": beta - half, "upper": beta + half})


fits = [regress(frame) for frame in draws]
lines = {}
for term in fits[0][0].index:
    found = am.pool([beta[term] for beta, _ in fits], [var[term] for _, var in fits])
    lines[term] = (found.estimate, found.lower, found.upper)
pooled = pd.DataFrame(lines, index=["estimate", "lower", "upper"]).T

filled = visits.copy()
for name in ("age", "bmi", "systolic"):
    filled[name] = filled[name].fillna(filled[name].mean())
filled["diabetic"] = filled["diabetic"].fillna(filled["diabetic"].mode()[0])

results = {
    "truth (all values)": interval(truth),
    "incomplete rows dropped": interval(complete),
    "mean filled in": interval(filled),
    "imputed once": interval(draws[0]),
    f"{DRAWS} draws, pooled": pooled,
}
pd.concat(results, names=["way", "term"])["estimate"].unstack("term").round(2)

# %%
terms = list(pooled.index)
figure, axes = plt.subplots(1, len(terms), figsize=(10, 2.8), sharey=True)
colours = ["black", "#b5542b", "#b5542b", "#c79a2b", "#0b6e6e"]
for axis, term in zip(axes, terms, strict=True):
    for i, table in enumerate(results.values()):
        line = table.loc[term]
        axis.plot([line["lower"], line["upper"]], [-i, -i], color=colours[i], lw=2)
        axis.plot(line["estimate"], -i, "o", color=colours[i])
    axis.axvline(
        results["truth (all values)"].loc[term, "estimate"], color="#cccccc", zorder=0
    )
    axis.set_title(term, fontsize=10)
    axis.set_yticks([-i for i in range(len(results))], list(results))
figure.supxlabel("mmHg", fontsize=10)
figure.tight_layout()
