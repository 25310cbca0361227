"""Fills shared between runs: a rule is fitted once for all who train on its draws.

AugFull and AugMask of three backbones learn from the same completion of the same
holes. Fitting LGBM-S six times would cost more than some of the trainings, so what a
rule learned is kept in a folder, under a hash of the table, the rule and the random
state. Draws are the same with and without the folder, bit for bit.

Of a LightGBM rule the moments are kept, so that the bent rules of the misspecification
study (η and λ act on draws) share one fit too; of any other rule the draws themselves.
Files appear whole: two processes that fit the same thing at once lose time, not data.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import augmask
from augmask.augmentation import resolve_augmenter
from augmask.augmentation.base import Augmenter
from augmask.augmentation.moments import CatMoments, Moments, NumMoments
from augmask.errors import NotFittedError, UsageError
from augmask.table.table import Table
from augmask_bench.arrays import Arrays, read_arrays, write_arrays
from augmask_bench.peers import why_not

if TYPE_CHECKING:
    from augmask.progress import Progress

# A fill that takes less than this many seconds is not worth a file.
WORTH_SECONDS = 0.5
# They act on draws, and not on what a LightGBM rule learns.
NOT_LEARNED = ("eta", "lam")
# They are about the machine.
NOT_DECIDING = ("n_jobs",)


def bent(augmenter: str, eta: float | None, lam: float | None) -> Augmenter:
    """Return the rule of that name, with context bias and stochasticity if given.

    Examples
    --------
    >>> bent("lgbm-s", 0.5, None).eta
    0.5
    """
    rule: Any = resolve_augmenter(augmenter)
    for name, value, most in (("eta", eta, 1.0), ("lam", lam, math.inf)):
        if value is None:
            continue
        if not 0 <= value <= most or math.isinf(value):
            limit = "between 0 and 1" if most == 1 else "finite and at least 0"
            raise UsageError(f"{name} must be {limit}, got {value:g}")
        if not hasattr(rule, name):
            raise UsageError(f"{name} bends LightGBM rules only, not {augmenter!r}")
        setattr(rule, name, value)
    bent_rule: Augmenter = rule
    return bent_rule


def augmenter_version(augmenter: Augmenter) -> str:
    """Return the version that an augmenter declares, "1" if it declares none.

    Whoever changes what it draws raises its attribute `version`: runs and fills are
    then made anew.
    """
    return str(getattr(augmenter, "version", "1"))


def _plain(value: Any) -> Any:
    """Return a setting as JSON can hold it; of an object, what it is."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return f"{type(value).__module__}.{type(value).__qualname__}"


def augmenter_settings(augmenter: Augmenter) -> dict[str, Any]:
    """Return the settings that decide about draws, defaults included.

    By the manners of scikit-learn: what an object was made with is public, what it
    learned ends in an underscore.

    Examples
    --------
    >>> augmenter_settings(bent("lgbm-s", 0.5, None))
    {'eta': 0.5, 'lam': 1.0, 'learn_rows': 200000, 'spread': 1.0}
    """
    return {
        name: _plain(value)
        for name, value in sorted(vars(augmenter).items())
        if not name.startswith("_")
        and not name.endswith("_")
        and name not in NOT_DECIDING
    }


def rule_lacks(augmenter: str) -> str:
    """Return why a rule cannot be used here, in words; empty if it can.

    A rule that runs a peer's package names it in its attribute `package`.
    """
    package = getattr(resolve_augmenter(augmenter), "package", "") if augmenter else ""
    return why_not(package) if package else ""


def _key(
    rule: Augmenter, table: Table, state: Mapping[str, Any], without: tuple[str, ...]
) -> str:
    """Return the hash of all that decides about a fill."""
    facts = [
        augmask.__version__,
        metadata.version("lightgbm"),
        augmenter_version(rule),
        f"{type(rule).__module__}.{type(rule).__qualname__}",
        [pair for pair in augmenter_settings(rule).items() if pair[0] not in without],
        [table.layout.names, table.layout.cards, table.layout.n_num],
        state,
    ]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for array in (table.num, table.cat, table.observed):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _packed(moments: Moments) -> Arrays:
    arrays: Arrays = {}
    for j, number in enumerate(moments.num):
        arrays |= {f"mu{j}": number.mu, f"sigma{j}": number.sigma}
    return arrays | {f"p{j}": classes.p for j, classes in enumerate(moments.cat)}


def _unpacked(arrays: Arrays, table: Table) -> Moments:
    layout = table.layout
    return Moments(
        tuple(
            NumMoments(arrays[f"mu{j}"], arrays[f"sigma{j}"])
            for j in range(layout.n_num)
        ),
        tuple(CatMoments(arrays[f"p{j}"]) for j in range(layout.n_cat)),
    )


class SharedFill:
    """An augmenter that remembers in a folder what another one learned.

    Parameters
    ----------
    rule : Augmenter
    folder : Path
        May be emptied at any time.
    worth : float
        What takes fewer seconds is not kept.

    Attributes
    ----------
    seconds : float
        What fit and draws cost when they were really done, here or by another run.
    spent : float
        What they cost here.
    """

    def __init__(
        self, rule: Augmenter, folder: Path, worth: float = WORTH_SECONDS
    ) -> None:
        self.rule = rule
        self.folder = folder
        self.worth = worth
        self.stochastic = bool(getattr(rule, "stochastic", True))
        self.seconds = 0.0
        self.spent = 0.0

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Fit the rule, or take over what it learned before."""
        began = time.perf_counter()
        self.table_ = table
        self._state = rng.bit_generator.state
        self._progress = progress
        self._next, self._fitted = 0, False
        # LightGBM rules learn moments and draw from them at will
        self._keeps_moments = hasattr(self.rule, "variance")
        without = NOT_LEARNED if self._keeps_moments else ()
        self._named = _key(self.rule, table, self._state, without)
        self.seconds = 0.0
        if self._keeps_moments:
            self._fit_moments(rng)
        self.spent = time.perf_counter() - began
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the table with the next draw in its holes."""
        if not hasattr(self, "table_"):
            raise NotFittedError("Call fit before draw: no table was given yet.")
        began = time.perf_counter()
        if self._keeps_moments:
            filled = self.rule.draw(rng)
            self.seconds += time.perf_counter() - began
        else:
            filled = self._drawn(rng)
        self.spent += time.perf_counter() - began
        return filled

    # -- LightGBM rules: the moments ------------------------------------------------

    def _fit_moments(self, rng: np.random.Generator) -> None:
        rule: Any = self.rule
        stored = self._read(self._named, rng)
        if stored is not None:
            rule.table_, rule.moments_ = self.table_, _unpacked(stored, self.table_)
            return
        began = time.perf_counter()
        rule.fit(self.table_, rng, self._progress)
        self._write(self._named, _packed(rule.moments_), rng, began)

    # -- other rules: the draws -----------------------------------------------------

    def _drawn(self, rng: np.random.Generator) -> Table:
        i, self._next = self._next, self._next + 1
        named = f"{self._named}-{i}"
        table = self.table_
        stored = self._read(named, rng)
        if stored is not None:
            num, cat = table.num.copy(), table.cat.copy()
            num[~table.num_observed] = stored["num"]
            cat[~table.cat_observed] = stored["cat"]
            return table.filled(num, cat)
        began = time.perf_counter()
        if not self._fitted:
            self._own = np.random.default_rng()
            self._own.bit_generator.state = self._state
            self.rule.fit(table, self._own, self._progress)
            self._fitted, self._made = True, 0
        if self._made < i:
            # the draws before this one came from the folder: pass them by
            for _ in range(i - self._made):
                self.rule.draw(self._own)
            began = time.perf_counter()
        filled, self._made = self.rule.draw(self._own), i + 1
        rng.bit_generator.state = self._own.bit_generator.state
        holes = {
            "num": filled.num[~table.num_observed],
            "cat": filled.cat[~table.cat_observed],
        }
        # a placeholder code changes the layout, which is not kept
        keep = filled.layout == table.layout
        self._write(named, holes, rng, began, keep)
        return filled

    # -- files ----------------------------------------------------------------------

    def _read(self, named: str, rng: np.random.Generator) -> Arrays | None:
        """Return what is kept under a name and put `rng` where it was then."""
        arrays = read_arrays(self.folder / f"{named}.npz")
        if arrays is None:
            return None
        rng.bit_generator.state = json.loads(str(arrays.pop("state")))
        self.seconds += float(arrays.pop("seconds"))
        return arrays

    def _write(
        self,
        named: str,
        arrays: Arrays,
        rng: np.random.Generator,
        began: float,
        keep: bool = True,
    ) -> None:
        seconds = time.perf_counter() - began
        self.seconds += seconds
        if not keep or seconds < self.worth:
            return
        facts = {"seconds": seconds, "state": json.dumps(rng.bit_generator.state)}
        write_arrays(self.folder / f"{named}.npz", {**arrays, **facts})
