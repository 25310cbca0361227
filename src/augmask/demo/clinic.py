"""Visits to a made-up clinic, with the awkward columns of real tables.

The table contains no data of real persons. Each column is sampled given those before
it, so the complete truth is known. It has what makes incomplete tables hard to learn:
skewed, bounded, zero-inflated and rounded numbers, booleans, an ordered and a
long-tailed category, a date, an identifier, and nonlinear dependence.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from augmask.config import check_int
from augmask.missing.simulate import ampute
from augmask.rng import stream

Floats = npt.NDArray[np.float64]

TRIAGE = ("blue", "green", "yellow", "orange", "red")
INSURANCE = ("public", "private", "senior", "none")
# ICD-10 codes by organ group, the frequent ones first.
DIAGNOSES = {
    "heart": "I10 I25 I48 I50 I21 I63 I20 I70 I83",
    "lung": "J06 J18 J44 J45 J20 J10 J96",
    "metabolic": "E11 E78 E66 E86 E10 E03",
    "gut": "K21 K29 K57 K80 K35 K52 K59",
    "bones": "M54 M17 M16 M79 M25 M81",
    "injury": "S93 S52 S06 S72 S61 S83 T14",
    "kidney": "N39 N20 N18 N40 N17",
    "birth": "O80 O20 O47 O14",
    "mind": "F10 F32 F41 F43 F03",
    "tumour": "C50 C61 C34 C18 C25",
}
GROUPS = tuple(DIAGNOSES)
WOMEN_ONLY, MEN_ONLY = ("C50",), ("C61", "N40")


def _choose(rng: np.random.Generator, logits: Floats) -> npt.NDArray[np.int64]:
    """Sample one option per row of `logits` by the Gumbel-max trick."""
    choice: npt.NDArray[np.int64] = np.argmax(
        logits + rng.gumbel(size=logits.shape), axis=1
    )
    return choice


def _dates(rng: np.random.Generator, n: int) -> npt.NDArray[np.datetime64]:
    """Sample visit days of 2021 to 2024: busy winters, quiet weekends."""
    days = np.arange("2021-01-01", "2025-01-01", dtype="datetime64[D]")
    season = 1 + 0.45 * np.cos(2 * np.pi * (np.arange(len(days)) - 20) / 365.25)
    weight = season * np.where(np.is_busday(days), 1.0, 0.45)
    return rng.choice(days, n, p=weight / weight.sum())


def _diagnoses(
    rng: np.random.Generator,
    age: Floats,
    female: Floats,
    winter: Floats,
    smoker: Floats,
    diabetic: Floats,
    bmi: Floats,
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.str_]]:
    """Sample organ group and code, which depend on age, sex, season and habits."""
    old = (age - 50) / 15
    fertile = (female == 1) & (age < 45)
    logits = {
        "heart": -0.2 + 0.9 * old + 0.4 * smoker,
        "lung": 0.1 + 1.3 * winter + 0.9 * smoker,
        "metabolic": -1.2 + 2.4 * diabetic + 0.06 * (bmi - 27),
        "gut": 0.2 - 0.1 * old,
        "bones": 0.1 + 0.4 * old - 0.3 * old**2,
        # Falls of the old and accidents of the young.
        "injury": -0.9 + 0.55 * old**2,
        "kidney": -0.6 + 0.3 * old + 0.5 * female,
        "birth": np.where(fertile, 1.3, -np.inf),
        "mind": -0.5 - 0.5 * old,
        "tumour": -1.6 + 0.7 * old + 0.5 * smoker,
    }
    group = _choose(rng, np.column_stack([logits[name] for name in GROUPS]))
    code = np.empty(len(age), dtype="<U3")
    for g, name in enumerate(GROUPS):
        rows = np.flatnonzero(group == g)
        codes = np.array(DIAGNOSES[name].split())
        # Later codes of a group are rarer, less so in older patients.
        slope = 1.3 - 0.35 * np.clip(old[rows, None], -1.5, 1.5)
        chance = -slope * np.log(np.arange(len(codes)) + 1.0)
        barred = np.where(
            female[rows, None] == 1,
            np.isin(codes, MEN_ONLY),
            np.isin(codes, WOMEN_ONLY),
        )
        code[rows] = codes[_choose(rng, np.where(barred, -np.inf, chance))]
    return np.array(GROUPS)[group], code


def clinic(n: int = 5000, seed: int = 0) -> pd.DataFrame:
    """Return `n` visits to a made-up clinic, without missing values.

    Examples
    --------
    >>> visits = clinic(200, seed=1)
    >>> visits.shape, int(visits.isna().sum().sum())
    ((200, 19), 0)
    >>> metres = visits["height_cm"] / 100
    >>> visits["bmi"].equals((visits["weight_kg"] / metres**2).round(1))
    True
    """
    rng = stream(seed, "clinic")
    normal = rng.standard_normal

    def happens(logit: Floats) -> npt.NDArray[np.bool_]:
        return rng.random(n) < np.asarray(expit(logit))

    day = _dates(rng, n)
    month = day.astype("datetime64[M]").astype(int) % 12 + 1
    winter = np.isin(month, (11, 12, 1, 2)).astype(float)
    young = rng.random(n) < 0.38
    age = np.floor(
        np.where(young, 18 + 50 * rng.beta(2, 3, n), 38 + 60 * rng.beta(3, 2.4, n))
    )
    female = (rng.random(n) < 0.46 + 0.12 * (age > 75)).astype(float)
    insurance = _choose(
        rng,
        np.column_stack(
            [
                np.full(n, 1.6),
                0.4 + 0.02 * (np.minimum(age, 60) - 40),
                np.where(age >= 65, 4.0, -6.0),
                0.2 - 0.03 * (age - 30),
            ]
        ),
    )
    uninsured = (insurance == 3).astype(float)

    # Height falls with age; weight rises up to about 58 and falls after.
    height = np.round(
        177 - 13 * female - 0.12 * np.maximum(age - 45, 0) + 6.4 * normal(n)
    )
    height = np.clip(height, 142, 206)
    hump = 28.2 - 0.0026 * (age - 58) ** 2
    mass = np.clip(hump * np.exp(0.16 * normal(n) + 0.02 * female), 15.5, 52)
    weight = np.round(mass * (height / 100) ** 2, 1)
    bmi = np.round(weight / (height / 100) ** 2, 1)

    smoker = happens(
        -0.9 - 0.03 * (age - 45) + 0.7 * (1 - female) * (age < 60) + 0.9 * uninsured
    )
    habit = rng.gamma(2.2, 5.5 - 1.4 * female, n) + 1
    # Many people report packs and half packs.
    habit = np.where(rng.random(n) < 0.45, 5 * np.ceil(habit / 5), np.ceil(habit))
    cigarettes = np.where(smoker, np.minimum(habit, 60), 0)

    diabetic = happens(-3.3 + 0.055 * (age - 50) + 0.2 * (bmi - 26))
    untreated = happens(-0.7 + 1.5 * uninsured - 0.02 * (age - 60))
    glucose = np.where(
        diabetic,
        np.where(untreated, 13.2 + 2.2 * normal(n), 7.4 + 0.9 * normal(n)),
        5.1 + 0.05 * (bmi - 25) + 0.35 * normal(n),
    )
    glucose = np.round(np.clip(glucose, 3.1, 27), 1)
    # In women the pressure rises only after the menopause, and then faster.
    rise = np.where(female == 1, 1.25 * np.maximum(age - 50, 0), 0.5 * (age - 18))
    systolic = 106 + rise + 1.0 * (bmi - 25) + 7 * diabetic + 9 * normal(n)
    systolic = np.round(np.clip(systolic, 82, 232))

    group, code = _diagnoses(
        rng, age, female, winter, smoker.astype(float), diabetic.astype(float), bmi
    )
    lung, inflamed = group == "lung", np.isin(code, ("J18", "K35", "K57", "N39", "J96"))
    crp = np.exp(
        0.5 + 0.05 * (bmi - 25) + 2.6 * inflamed + 0.9 * lung + 0.6 * normal(n)
    )
    crp = np.round(np.clip(crp, 0.1, 480), 1)
    lack = rng.gamma(1.6, 0.7 + 1.9 * lung + 0.05 * cigarettes, n)
    oxygen = np.clip(np.round(99.6 - lack - 0.03 * np.maximum(age - 60, 0)), 68, 100)

    # High and low blood pressure are urgent, and oxygen below 93 %.
    urgency = (
        0.9 * (oxygen < 93)
        + 0.35 * np.maximum(93 - oxygen, 0)
        + 0.00045 * (systolic - 128) ** 2
        + 0.6 * np.log1p(crp / 8)
        + 1.1 * (group == "heart")
        + 0.02 * (age - 50)
        - 1.0 * (group == "bones")
        + 0.5 * rng.logistic(size=n)
    )
    triage = np.searchsorted([-0.4, 0.8, 2.2, 3.8], urgency)
    # Mostly urgent patients stay, the old much longer than the young.
    stays = happens(-3.2 + 1.7 * triage)
    nights = rng.gamma(2.0, 0.5 * (1 + triage * np.maximum(age - 35, 4) / 45), n)
    stay = np.where(stays, np.minimum(np.ceil(nights), 60), 0)
    # Patients sent home early and frail ones return; out-patients rarely do.
    readmitted = happens(
        -2.9
        + 2.3 * ((stay > 0) & (stay <= 2) & (triage >= 3))
        + 0.09 * stay
        + 1.6 * (diabetic & (glucose > 10))
        + 0.8 * (age > 75)
    )

    return pd.DataFrame(
        {
            "patient": [f"P-{i:06d}" for i in rng.permutation(4 * n)[:n]],
            "visit_date": day.astype("datetime64[ns]"),
            "age": age.astype("int64"),
            "sex": pd.Categorical(np.where(female == 1, "female", "male")),
            "insurance": pd.Categorical.from_codes(insurance, INSURANCE),
            "height_cm": height.astype("int64"),
            "weight_kg": weight,
            "bmi": bmi,
            "smoker": smoker,
            "cigarettes": cigarettes.astype("int64"),
            "diabetic": diabetic,
            "glucose": glucose,
            "systolic": systolic.astype("int64"),
            "diagnosis": pd.Categorical(
                code, sorted(" ".join(DIAGNOSES.values()).split())
            ),
            "crp": crp,
            "oxygen": oxygen.astype("int64"),
            "triage": pd.Categorical.from_codes(triage, TRIAGE, ordered=True),
            "stay_days": stay.astype("int64"),
            "readmitted": readmitted,
        }
    )


def clinic_with_missing(
    n: int = 5000, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the clinic table complete, and with 40 % of its values missing (MAR).

    Examples
    --------
    >>> complete, incomplete = clinic_with_missing(1000)
    >>> incomplete.drop(columns="patient").isna().to_numpy().mean().round(1).item()
    0.4
    """
    complete = clinic(n, seed)
    # The patient code is never missing.
    columns = complete.drop(columns="patient")
    incomplete = ampute(columns, mechanism="mar", ratio=0.4, seed=seed)
    incomplete.insert(0, "patient", complete["patient"])
    return complete, incomplete


def load_clinic(
    n: int = 5000, *, complete: bool = False, seed: int = 0
) -> pd.DataFrame:
    """Return the clinic table, to try things out: made-up visits, no download.

    It has what real tables have: dates, codes, an ordered and a long-tailed category,
    skewed, rounded and bounded numbers. 40 % of the values are missing at random given
    the others (MAR), so the observed rows are not typical of all rows.

    Parameters
    ----------
    n : int, default=5000
        Number of visits.
    complete : bool, default=False
        Return the same visits without missing values: the truth, to compare with.
    seed : int, default=0
        Another seed gives other visits.

    Returns
    -------
    DataFrame
        An identifier (`patient`) and 18 columns: measurements, diagnosis, and whether
        the patient came back (`readmitted`).

    Examples
    --------
    >>> import augmask as am
    >>> visits = am.load_clinic(1000)
    >>> visits.shape, visits["bmi"].isna().mean().round(1).item()
    ((1000, 19), 0.4)
    >>> truth = am.load_clinic(1000, complete=True)
    >>> seen = visits["bmi"].notna()
    >>> bool((truth["bmi"] == visits["bmi"])[seen].all())
    True
    """
    n, seed = check_int("n", n, 1), check_int("seed", seed, 0)
    truth, visits = clinic_with_missing(n, seed)
    return truth if complete else visits
