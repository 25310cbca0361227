"""Augmenters: fill missing values with plausible ones, T(z | x^obs, m) in the paper.

A network needs complete input; an `Augmenter` provides it. Names as in the paper: m is
the mask (`Table.observed`), x^A the augmented row, u the context of a column (the other
columns with their missing values, and their mask bits).

`AUGMENTERS` maps names to factories; a module is imported when its name is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, Self

from augmask.errors import UsageError, brief_repr, choices
from augmask.packages import plugins

if TYPE_CHECKING:
    import numpy as np

    from augmask.progress import Progress
    from augmask.table.table import Table


class Augmenter(Protocol):
    """Anything with `fit` and `draw`; no base class is needed.

    Optional class attributes: `stochastic` (True if absent); where it is False, all
    draws are equal and callers keep one. `version`, a string, must change whenever the
    draws change, so that caches and benchmark results are not reused.

    Optional method: `frozen(table, rng, progress)` learns from `table` and returns an
    augmenter that learns nothing more; its `fit` accepts other tables of this layout,
    and its `draw` fills them. Tables of many parts need it (`freeze`).
    """

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Learn from the observed cells of `table`.

        Calls `progress("augment", done, total, {})` after each finished column.
        """
        ...

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the fitted table with every missing cell filled.

        Every cell has a finite number or a valid code; observed cells and the mask are
        unchanged, bit for bit.
        """
        ...


DEFAULT_AUGMENTER = "lgbm-s"


def _lazy(module: str, name: str) -> Callable[[], Augmenter]:
    def make() -> Augmenter:
        augmenter: Augmenter = getattr(
            import_module(f"augmask.augmentation.{module}"), name
        )()
        return augmenter

    return make


AUGMENTERS: dict[str, Callable[[], Augmenter]] = {
    "zero": _lazy("marginal", "Zero"),
    "mean": _lazy("marginal", "Mean"),
    "noise": _lazy("marginal", "Noise"),
    "ecdf": _lazy("marginal", "Ecdf"),
    "mice": _lazy("chained", "Mice"),
    "lgbm-d": _lazy("boosted", "LgbmD"),
    "lgbm-s": _lazy("boosted", "LgbmS"),
    "lgbm-s-calibrated": _lazy("boosted", "LgbmSCalibrated"),
    "lgbm-chain": _lazy("chained", "LgbmChain"),
}


# Augmenters of other packages, and what to install for them.
OPTIONAL = {"hyperimpute": "the package augmask-bench; docs/research/baselines.md"}


def available_augmenters() -> dict[str, Callable[[], Augmenter]]:
    """Return the built-in augmenters, then those of installed plug-ins."""
    installed = plugins("augmask.augmenters")
    return AUGMENTERS | {k: v for k, v in installed.items() if k not in AUGMENTERS}


def resolve_augmenter(augmenter: str | Augmenter) -> Augmenter:
    """Return the augmenter of that name; an object with `fit` and `draw` is returned.

    `"auto"` is LGBM-S.

    Examples
    --------
    >>> type(resolve_augmenter("auto")).__name__
    'LgbmS'
    >>> resolve_augmenter("lgbms")
    Traceback (most recent call last):
    augmask.errors.UsageError: unknown augmenter 'lgbms'; did you mean 'lgbm-s'? \
known: auto, zero, mean, ...
    """
    if isinstance(augmenter, str):
        name = DEFAULT_AUGMENTER if augmenter == "auto" else augmenter
        # Plug-ins are searched only where no built-in augmenter has the name.
        known = AUGMENTERS if name in AUGMENTERS else available_augmenters()
        if name in known:
            return known[name]()
        if name in OPTIONAL:
            raise UsageError(f"the augmenter {name!r} needs {OPTIONAL[name]}")
        hint = choices(name, ["auto", *known])
        raise UsageError(f"unknown augmenter {name!r}{hint}")
    if callable(getattr(augmenter, "fit", None)) and callable(
        getattr(augmenter, "draw", None)
    ):
        return augmenter
    raise UsageError(
        "an augmenter must be a name or an object with fit and draw, got "
        f"{brief_repr(augmenter)}"
    )


def freeze(
    augmenter: Augmenter,
    table: Table,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Augmenter:
    """Learn from a table; return an augmenter that fills others with what it learned.

    Examples
    --------
    >>> import numpy as np
    >>> from augmask.table.table import Layout, Table
    >>> def column(values, observed):
    ...     num, none = np.array(values)[:, None], np.zeros((len(values), 0), int)
    ...     return Table(num, none, np.array(observed)[:, None], Layout(("a",), (), ()))
    >>> rng = np.random.default_rng(0)
    >>> sample = column([1.0, 3.0], [True, True])
    >>> frozen = freeze(resolve_augmenter("mean"), sample, rng)
    >>> other = column([9.0, 0.0], [True, False])
    >>> frozen.fit(other, rng).draw(rng).num.ravel().tolist()
    [9.0, 2.0]
    """
    make = getattr(augmenter, "frozen", None)
    if make is None:
        raise UsageError(
            f"the augmenter {type(augmenter).__name__} cannot fill a table in parts: "
            "it has no method frozen; use 'lgbm-s' or 'ecdf'"
        )
    result: Augmenter = make(table, rng, progress)
    return result


def check_fitted(augmenter: object, attribute: str) -> None:
    """Raise scikit-learn's `NotFittedError` unless `fit` has set `attribute`."""
    if not hasattr(augmenter, attribute):
        # Not at the top: importing this package must not import scikit-learn.
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"this {type(augmenter).__name__} is not fitted; call fit before draw"
        )
