"""Put plausible numbers in holes, so that a network gets complete input: T(z | x, m).

`AUGMENTERS` maps the names of the rules to functions that make them; the modules
behind a name are imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from augmask.errors import UsageError, did_you_mean
from augmask.plugins import plugins

if TYPE_CHECKING:
    from augmask.augmentation.base import Augmenter


def _lazy(module: str, rule: str) -> Callable[[], Augmenter]:
    def make() -> Augmenter:
        made: Augmenter = getattr(
            import_module(f"augmask.augmentation.{module}"), rule
        )()
        return made

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


def every_augmenter() -> dict[str, Callable[[], Augmenter]]:
    """Return our own augmenters and those that other installed packages register."""
    return {**plugins("augmask.augmenters"), **AUGMENTERS}


def resolve_augmenter(
    augmenter: str | Augmenter, also: Iterable[str] = ()
) -> Augmenter:
    """Return the rule of that name; an object with `fit` and `draw` is returned as is.

    Parameters
    ----------
    augmenter : str or Augmenter
    also : iterable of str
        What the caller takes besides these names, to be told of.

    Examples
    --------
    >>> type(resolve_augmenter("mean")).__name__
    'Mean'
    >>> resolve_augmenter("lgbms")
    Traceback (most recent call last):
    augmask.errors.UsageError: there is no augmenter 'lgbms'; did you mean 'lgbm-s'?
    """
    if isinstance(augmenter, str):
        if augmenter in AUGMENTERS:
            return AUGMENTERS[augmenter]()
        installed = every_augmenter()
        if augmenter in installed:
            return installed[augmenter]()
        hint = did_you_mean(augmenter, [*also, *installed])
        raise UsageError(f"there is no augmenter {augmenter!r}{hint}")
    if callable(getattr(augmenter, "fit", None)) and callable(
        getattr(augmenter, "draw", None)
    ):
        return augmenter
    raise UsageError(
        "an augmenter is a name or an object with the methods fit and draw, "
        f"got {augmenter!r}"
    )
