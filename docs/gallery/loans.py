# %% [markdown]
# # Loans: rules, and rows on demand
#
# Tables of a business have rules: nobody owes more than was lent, a sub-grade belongs
# to its grade, only joint applications have a second income. Generated rows should
# keep them all. The loans are generated below, so nothing has to be downloaded.

# %%
import os

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import augmask as am

QUICK = "AUGMASK_QUICK" in os.environ  # the tests train for a few steps only


def make_loans(n: int, seed: int) -> pd.DataFrame:
    """Return `n` made-up loans."""
    rng = np.random.default_rng(seed)
    income = np.exp(rng.normal(11, 0.5, n)).round(-3)
    joint = rng.random(n) < 0.15
    second = np.exp(rng.normal(10.8, 0.5, n)).round(-3)
    amount = np.clip(income * rng.beta(2, 6, n), 1000, 40_000).round(-2)
    risk = rng.normal(0, 1, n) + 2.5 * amount / (income + joint * second)
    step = np.clip((risk + 1.2) / 0.22, 0, 24).astype(int)
    grade = np.array(list("ABCDE"))[step // 5]
    rate = (6 + 0.9 * step + rng.normal(0, 0.4, n)).round(2)
    months = rng.choice([36, 60], n, p=[0.7, 0.3])
    start = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, n), "D")
    paid_share = np.minimum(1, rng.gamma(1.2, 0.25, n))
    table = pd.DataFrame(
        {
            "issued": start,
            "application": np.where(joint, "joint", "single"),
            "income": income,
            "second_income": np.where(joint, second, np.nan),
            "amount": amount.astype(int),
            "months": months,
            "grade": grade,
            "sub_grade": [f"{g}{s % 5 + 1}" for g, s in zip(grade, step, strict=True)],
            "rate": rate,
            "balance": (amount * (1 - paid_share)).round(2),
        }
    )
    table.loc[rng.random(n) < 0.15, "income"] = np.nan
    late = rng.random(n) < np.where(start > pd.Timestamp("2025-01-01"), 0.4, 0.05)
    table.loc[late, ["rate", "balance"]] = np.nan
    return table


loans = make_loans(4000, seed=0)
loans.head(5)

# %% [markdown]
# ## Rules that augmask finds by itself, and rules that you state
#
# That the second income is missing exactly for single applications is found. That the
# balance never exceeds the amount, and that a sub-grade belongs to its grade, are
# *constraints*: state them, and every generated row satisfies them. (1,500 steps keep
# this page quick; leave `options` out.)

# %%
for note in am.infer_schema(loans).notes():
    print("-", note)

# %%
model = am.AugMask(seed=0, options={"steps": 30 if QUICK else 1500})
model.fit(loans, constraints=["balance <= amount", ["grade", "sub_grade"]])
rows = model.sample(4000, seed=1)
rows.head(5)

# %%
single = rows["application"] == "single"
broken = {
    "balance above the amount": (rows["balance"] > rows["amount"]).sum(),
    "sub-grade of another grade": (rows["sub_grade"].str[0] != rows["grade"]).sum(),
    "second income of a single": rows.loc[single, "second_income"].count(),
    "joint without second income": rows.loc[~single, "second_income"].isna().sum(),
}
pd.Series(broken, name="rows that break it")

# %% [markdown]
# ## Does the price of risk come out right?
#
# The centres agree. A few generated rates lie outside of those of their grade: no
# constraint forbids it, and the model was trained for a short time.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
grades = sorted(loans["grade"].unique())
for axis, frame, title in zip(axes, (loans, rows), ("loans", "generated"), strict=True):
    rates = [frame.loc[frame["grade"] == g, "rate"].dropna() for g in grades]
    axis.violinplot(rates, showmedians=True, widths=0.8)
    axis.set(title=title, xlabel="grade")
    axis.set_xticks(range(1, len(grades) + 1), grades)
axes[0].set_ylabel("rate, %")
figure.tight_layout()

# %% [markdown]
# ## Rows that satisfy a condition
#
# More rows of the rare kind, for instance to test a model on them:

# %%
rare = model.sample(
    500, where='grade == "E" and application == "joint" and amount >= 5000', seed=2
)
share = (
    (loans["grade"] == "E")
    & (loans["application"] == "joint")
    & (loans["amount"] >= 5000)
).mean()
print(f"{share:.2%} of the loans are of this kind, and all {len(rare)} rows are")
rare.head(5)

# %% [markdown]
# Or complete rows that you know in part:

# %%
asked = pd.DataFrame({"income": [30_000, 60_000, 120_000], "amount": [15_000] * 3})
offers = [model.sample(where=asked, seed=s) for s in range(30 if not QUICK else 2)]
pd.concat(offers).groupby("income")["rate"].mean().round(2)
