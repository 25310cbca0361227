# %% [markdown]
# # A survey: three reasons for an empty cell
#
# An empty cell of a survey can mean that
#
# 1. the question was not asked because it does not apply (people without a car have
#    no kilometres),
# 2. the person refused, which a code stands for (here -99),
# 3. the answer is missing: there is a value, and nobody knows it.
#
# Only the third kind should be filled. This page shows how augmask tells them apart.
# The survey is generated below, so nothing has to be downloaded.

# %%
import os

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import augmask as am

QUICK = "AUGMASK_QUICK" in os.environ  # the tests train for a few steps only


def make_people(n: int, seed: int) -> pd.DataFrame:
    """Return what `n` made-up people would say if they answered everything."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, n)
    region = rng.choice(["north", "south", "east", "west"], n, p=[0.4, 0.3, 0.2, 0.1])
    works = rng.random(n) < np.where(age < 65, 0.75, 0.08)
    income = np.exp(7.1 + 0.5 * works + 0.2 * (region == "north"))
    income = (income * np.exp(rng.normal(0, 0.35, n))).round(-1)
    car = rng.random(n) < 0.35 + 0.3 * works + 0.1 * (region == "west")
    kilometres = (np.exp(rng.normal(9.2, 0.5, n)) * (1 + 0.4 * works)).round(-2)
    commute = (rng.gamma(3, 9, n) + 10 * (region == "east")).round()
    mood = -0.4 + income / 1500 + 0.3 * works + rng.normal(0, 1, n)
    levels = ["unhappy", "so-so", "happy", "very happy"]
    happy = np.array(levels)[np.searchsorted([-0.2, 0.9, 2.0], mood)]
    return pd.DataFrame(
        {
            "age": age,
            "region": region,
            "works": np.where(works, "yes", "no"),
            "income": income.astype(int),
            "has_car": np.where(car, "yes", "no"),
            "km_per_year": np.where(car, kilometres, np.nan),
            "commute_minutes": np.where(works, commute, np.nan),
            "happiness": pd.Categorical(happy, levels, ordered=True),
        }
    )


def ask(people: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the survey: refusals and missing answers depend on other answers."""
    rng = np.random.default_rng(seed)
    survey, n = people.copy(), len(people)
    # people with a job and a car refuse to tell their income more often
    refuses = (
        0.05 + 0.3 * (survey["works"] == "yes") + 0.2 * (survey["has_car"] == "yes")
    )
    survey.loc[rng.random(n) < refuses, "income"] = -99
    survey.loc[rng.random(n) < np.where(survey["age"] < 35, 0.4, 0.1), "happiness"] = (
        None
    )
    survey.loc[rng.random(n) < 0.08, "region"] = None
    return survey


people = make_people(3000, seed=0)
survey = ask(people, seed=1)
survey.head(6)

# %% [markdown]
# ## What augmask finds
#
# Two columns are missing in exactly the rows where another one has a certain answer:
# *not applicable*. The notes also point at the suspicious -99, which nobody has
# declared yet.

# %%
for note in am.infer_schema(survey).notes():
    print("-", note)

# %% [markdown]
# ## Say what the code means
#
# One key per column is all there is to declare. (1,500 steps keep this page quick;
# leave `options` out.)

# %%
schema = {"income": {"na_values": [-99]}}
model = am.AugMask(seed=0, options={"steps": 30 if QUICK else 1500})
model.fit(survey, schema=schema)
rows = model.sample(3000, seed=1)
rows.head(6)

# %% [markdown]
# - `km_per_year` and `commute_minutes` are missing exactly where they do not apply;
# - no income is -99: refused incomes were treated as unknown;
# - everyone has a region and a mood.

# %%
car, optional = rows["has_car"] == "yes", ["km_per_year", "commute_minutes"]
checks = {
    "kilometres without a car": rows.loc[~car, "km_per_year"].notna().sum(),
    "a car without kilometres": rows.loc[car, "km_per_year"].isna().sum(),
    "an income of -99": (rows["income"] == -99).sum(),
    "any other empty cell": rows.drop(columns=optional).isna().any(axis=1).sum(),
}
pd.Series(checks, name="rows")

# %% [markdown]
# ## The incomes that people did not tell
#
# People with a job refuse more often, and they earn more. So the mean of the answers
# is too low. The model knows from those who did answer what people with a job earn,
# and corrects a part of it after these few steps. (If refusing depended on nothing but
# the income itself, no method could.)

# %%
answers = survey.loc[survey["income"] != -99, "income"]
incomes = {
    "everyone": people["income"],
    "answers": answers,
    "generated": rows["income"],
}
pd.Series(
    {name: each.mean() for name, each in incomes.items()}, name="mean income"
).round()

# %%
figure, axis = plt.subplots(figsize=(7, 3))
bins = np.linspace(0, 6000, 50)
axis.hist(people["income"], bins, density=True, color="#b8c4c4", label="everyone")
for name, colour in (("answers", "#b5542b"), ("generated", "#0b6e6e")):
    axis.hist(
        incomes[name], bins, density=True, histtype="step", color=colour, label=name
    )
axis.set(xlabel="income", yticks=[])
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# ## The same gaps as in the survey
#
# To test software that must cope with gaps, ask for them:

# %%
incomplete = model.sample(3000, missing="learned", seed=1)
gaps = pd.DataFrame(
    {
        "survey": survey.replace({"income": {-99: np.nan}}).isna().mean(),
        "complete rows": rows.isna().mean(),
        'missing="learned"': incomplete.isna().mean(),
    }
)
gaps.loc[gaps["survey"] > 0].round(3)
