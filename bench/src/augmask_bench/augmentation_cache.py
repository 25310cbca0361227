"""A cache of fitted augmenters, shared between runs.

AugFull and AugMask of three backbones train on the same completion of the same table.
Fitting LGBM-S six times would cost more than some of the trainings, so a folder caches
what an augmenter learned, under a hash of the table, the augmenter and the random
state. Results are the same with and without the cache, bit for bit.

For LightGBM augmenters the cache holds the moments, so that the perturbed augmenters of
the misspecification study (η and λ act on draws) share one fit too; for all others it
holds the draws. Files are written atomically: two processes that fit the same augmenter
at once lose time, not data.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from augmask.augmentation import Augmenter, resolve_augmenter
from augmask.augmentation.moments import CatMoments, Moments, NumMoments
from augmask.errors import UsageError, not_fitted
from augmask.table.table import Table
from augmask_bench.arrays import Arrays, read_arrays, write_arrays
from augmask_bench.peers import why_unusable

if TYPE_CHECKING:
    from augmask.progress import Progress

# Work that takes fewer seconds is not cached.
MIN_SECONDS = 0.5
# These settings of a LightGBM augmenter act on draws, not on what it learns.
DRAW_SETTINGS = ("eta", "lam")
# The name of the augmenter that knows what is missing.
TRUTH = "truth"
# These settings are about the machine.
MACHINE_SETTINGS = ("n_jobs",)


class Truth:
    """An oracle that fills every missing cell with its true value.

    It shows what the fill costs: no augmenter can be better context.

    Parameters
    ----------
    reveal : callable, optional
        Returns the complete table, encoded like the incomplete one. Without it the
        oracle has settings and a version, and cannot be fitted.
    """

    stochastic = False
    version = "1"

    def __init__(self, reveal: Callable[[], Table] | None = None) -> None:
        self._reveal = reveal

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Store the incomplete table and the complete one."""
        del rng, progress
        if self._reveal is None:
            raise UsageError(f"the augmenter {TRUTH!r} is for runs of a benchmark only")
        self._table, self._complete = table, self._reveal()
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the table with true values in its missing cells."""
        del rng
        table, complete = self._table, self._complete
        return table.filled(
            np.where(table.num_observed, table.num, complete.num),
            np.where(table.cat_observed, table.cat, complete.cat),
        )


def perturbed_augmenter(
    augmenter: str, eta: float | None, lam: float | None
) -> Augmenter:
    """Return an augmenter by name, perturbed by context bias and stochasticity.

    Examples
    --------
    >>> perturbed_augmenter("lgbm-s", 0.5, None).eta
    0.5
    """
    perturbed: Any = Truth() if augmenter == TRUTH else resolve_augmenter(augmenter)
    for name, value, most in (("eta", eta, 1.0), ("lam", lam, math.inf)):
        if value is None:
            continue
        if not 0 <= value <= most or math.isinf(value):
            limit = "between 0 and 1" if most == 1 else "finite and at least 0"
            raise UsageError(f"{name} must be {limit}, got {value:g}")
        if not hasattr(perturbed, name):
            raise UsageError(
                f"{name} applies to LightGBM augmenters only, got {augmenter!r}"
            )
        setattr(perturbed, name, value)
    result: Augmenter = perturbed
    return result


def augmenter_version(augmenter: Augmenter) -> str:
    """Return the version that an augmenter declares, "1" if it declares none.

    Raise the attribute `version` when a change of the code changes what an augmenter
    draws: runs and cached fits are then repeated.
    """
    return str(getattr(augmenter, "version", "1"))


def _plain_json(value: Any) -> Any:
    """Return a setting as JSON values; for an object, the name of its class."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain_json(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain_json(part) for key, part in value.items()}
    return f"{type(value).__module__}.{type(value).__qualname__}"


def augmenter_settings(augmenter: Augmenter) -> dict[str, Any]:
    """Return the settings that determine the draws, defaults included.

    Follows scikit-learn: parameters are public attributes, fitted attributes end in an
    underscore.

    Examples
    --------
    >>> augmenter_settings(perturbed_augmenter("lgbm-s", 0.5, None))
    {'eta': 0.5, 'lam': 1.0, 'learn_rows': 200000, 'spread': 1.0}
    """
    return {
        name: _plain_json(value)
        for name, value in sorted(vars(augmenter).items())
        if not name.startswith("_")
        and not name.endswith("_")
        and name not in MACHINE_SETTINGS
    }


def why_augmenter_unavailable(augmenter: str) -> str:
    """Return why an augmenter cannot be used here; an empty text if it can.

    An augmenter that needs another package names it in its attribute `package`.
    """
    if not augmenter:
        return ""
    package = getattr(perturbed_augmenter(augmenter, None, None), "package", "")
    return why_unusable(package) if package else ""


def _key(
    augmenter: Augmenter,
    table: Table,
    state: Mapping[str, Any],
    without: tuple[str, ...],
) -> str:
    """Return the hash of everything that determines the augmented values."""
    facts = [
        augmenter_version(augmenter),
        f"{type(augmenter).__module__}.{type(augmenter).__qualname__}",
        [
            pair
            for pair in augmenter_settings(augmenter).items()
            if pair[0] not in without
        ],
        [table.layout.names, table.layout.cards, table.layout.n_num],
        state,
    ]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for array, dtype in ((table.num, "<f8"), (table.cat, "<i4"), (table.observed, "?")):
        digest.update(np.ascontiguousarray(array, dtype=dtype).tobytes())
    return digest.hexdigest()[:32]


def _pack(moments: Moments) -> Arrays:
    arrays: Arrays = {}
    for j, number in enumerate(moments.num):
        arrays |= {f"mu{j}": number.mu, f"sigma{j}": number.sigma}
    return arrays | {f"p{j}": classes.p for j, classes in enumerate(moments.cat)}


def _unpack(arrays: Arrays, table: Table) -> Moments:
    layout = table.layout
    return Moments(
        tuple(
            NumMoments(arrays[f"mu{j}"], arrays[f"sigma{j}"])
            for j in range(layout.n_num)
        ),
        tuple(CatMoments(arrays[f"p{j}"]) for j in range(layout.n_cat)),
    )


class CachedAugmenter:
    """An augmenter that caches in a folder what another augmenter learned.

    Parameters
    ----------
    augmenter : Augmenter
    folder : Path
        May be emptied at any time.
    min_seconds : float
        Work that takes less time is not cached.

    Attributes
    ----------
    seconds : float
        Time of fit and draws when they were computed, here or in another run.
    spent : float
        Time of fit and draws here, cache hits included.
    """

    def __init__(
        self, augmenter: Augmenter, folder: Path, min_seconds: float = MIN_SECONDS
    ) -> None:
        self.augmenter = augmenter
        self.folder = folder
        self.min_seconds = min_seconds
        self.stochastic = bool(getattr(augmenter, "stochastic", True))
        self.seconds = 0.0
        self.spent = 0.0

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Fit the augmenter, or read what it learned from the cache."""
        start = time.perf_counter()
        self.table_ = table
        self._state = rng.bit_generator.state
        self._progress = progress
        self._next, self._fitted = 0, False
        # LightGBM augmenters learn moments, from which they draw without another fit
        self._caches_moments = hasattr(self.augmenter, "variance")
        without = DRAW_SETTINGS if self._caches_moments else ()
        self._key = _key(self.augmenter, table, self._state, without)
        self.seconds = 0.0
        if self._caches_moments:
            self._fit_moments(rng)
        self.spent = time.perf_counter() - start
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the table with the next draw in place of its missing values."""
        if not hasattr(self, "table_"):
            raise not_fitted(self)
        start = time.perf_counter()
        if self._caches_moments:
            completed = self.augmenter.draw(rng)
            self.seconds += time.perf_counter() - start
        else:
            completed = self._cached_draw(rng)
        self.spent += time.perf_counter() - start
        return completed

    # -- LightGBM augmenters: the moments -------------------------------------------

    def _fit_moments(self, rng: np.random.Generator) -> None:
        augmenter: Any = self.augmenter
        stored = self._read(self._key, rng)
        if stored is not None:
            augmenter.table_ = self.table_
            augmenter.moments_ = _unpack(stored, self.table_)
            return
        start = time.perf_counter()
        augmenter.fit(self.table_, rng, self._progress)
        self._write(self._key, _pack(augmenter.moments_), rng, start)

    # -- other augmenters: the draws ------------------------------------------------

    def _cached_draw(self, rng: np.random.Generator) -> Table:
        i, self._next = self._next, self._next + 1
        key = f"{self._key}-{i}"
        table = self.table_
        stored = self._read(key, rng)
        if stored is not None:
            num, cat = table.num.copy(), table.cat.copy()
            num[~table.num_observed] = stored["num"]
            cat[~table.cat_observed] = stored["cat"]
            return table.filled(num, cat)
        start = time.perf_counter()
        if not self._fitted:
            self._own = np.random.default_rng()
            self._own.bit_generator.state = self._state
            self.augmenter.fit(table, self._own, self._progress)
            self._fitted, self._n_drawn = True, 0
        if self._n_drawn < i:
            # the draws before this one came from the cache: skip them
            for _ in range(i - self._n_drawn):
                self.augmenter.draw(self._own)
            start = time.perf_counter()
        completed, self._n_drawn = self.augmenter.draw(self._own), i + 1
        rng.bit_generator.state = self._own.bit_generator.state
        augmented_values = {
            "num": completed.num[~table.num_observed],
            "cat": completed.cat[~table.cat_observed],
        }
        # a placeholder code changes the layout, which the file does not store
        cacheable = completed.layout == table.layout
        self._write(key, augmented_values, rng, start, cacheable)
        return completed

    # -- files ----------------------------------------------------------------------

    def _read(self, key: str, rng: np.random.Generator) -> Arrays | None:
        """Return what is cached under a key, and set `rng` to its state of then."""
        arrays = read_arrays(self.folder / f"{key}.npz")
        if arrays is None:
            return None
        rng.bit_generator.state = json.loads(str(arrays.pop("state")))
        self.seconds += float(arrays.pop("seconds"))
        return arrays

    def _write(
        self,
        key: str,
        arrays: Arrays,
        rng: np.random.Generator,
        start: float,
        cacheable: bool = True,
    ) -> None:
        seconds = time.perf_counter() - start
        self.seconds += seconds
        if not cacheable or seconds < self.min_seconds:
            return
        facts = {"seconds": seconds, "state": json.dumps(rng.bit_generator.state)}
        write_arrays(self.folder / f"{key}.npz", {**arrays, **facts})
