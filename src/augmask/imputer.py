"""`AugMaskImputer`: scikit-learn transformer that imputes with a diffusion model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
import sklearn
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from augmask.augmentation import Augmenter
from augmask.config import check_int
from augmask.errors import AugMaskWarning
from augmask.model import AugMask
from augmask.table.cells import read_cells
from augmask.table.frame_kinds import FrameKind, kind_name
from augmask.table.frames import read_frame
from augmask.table.schema import Schema

# Why the missing values of a column stay.
_LEFT = {
    "identifier": "an identifier",
    "all-missing": "no value at all",
    "constant": "one value only",
}


def _is_frame(X: Any) -> bool:
    return isinstance(X, pd.DataFrame) or kind_name(X) != "pandas"


def _reason(name: str, schema: Schema | None) -> str:
    """Return why a column with missing values is left."""
    if schema is None:
        return _LEFT["all-missing"]
    column = schema[name]
    return _LEFT.get(column.kind, "missing means not applicable")


class AugMaskImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Impute missing values with a diffusion model of the incomplete table.

    The model learns the joint distribution of all columns from the observed cells, and
    draws missing values given the observed cells of their row. `transform` accepts rows
    that were not in `fit`. Arrays hold numbers and give float64 arrays. pandas and
    polars frames may have columns of any kind and give frames of their kind, unless
    `set_output` says otherwise.

    Parameters
    ----------
    backbone : str, callable or module, default="tabddpm"
        As in `AugMask`. TabDDPM imputed better than CDTD in all measured cases
        (docs/impute.md).
    augmenter : str or Augmenter, default="auto"
    preset : str, default="auto"
    options : mapping, optional
    device : str, default="auto"
        As in `AugMask`.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the training and of the imputations. With an integer every call gives
        the same, with None each fit and each `transform` draws anew.
    n_draws : int, default=1
        With 1, missing values are drawn at random, which keeps the spread of a column.
        With more, they are the mean of this many draws (the most frequent level of a
        category), which is closer to the true values cell by cell.
    schema : Schema, path or mapping, optional
        As for `AugMask.fit`. The columns of an array are named `x0`, `x1`, ...
    constraints : sequence, optional
        As for `AugMask.fit`, which checks them on the table. Imputed rows need not
        satisfy them, because observed cells stay.

    Attributes
    ----------
    model_ : AugMask or None
        The fitted model; its `impute` gives several imputations. None if no column
        varies.
    constant_ : dict
        The value of each column that has only one.
    left_ : dict
        The columns whose missing values stay, and why; a warning names those that have
        any.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

    Notes
    -----
    A column with a single value is imputed with it. Identifiers and columns without any
    value stay as they are, and so do missing values that mean "not applicable".

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [2.0, np.nan], [3.0, 6.5], [4.0, 8.0]] * 5)
    >>> imputer = AugMaskImputer(augmenter="ecdf", options={"steps": 3})
    >>> bool(np.isnan(imputer.fit_transform(X)).any())
    False
    """

    def __init__(
        self,
        backbone: Any = "tabddpm",
        augmenter: str | Augmenter = "auto",
        preset: str = "auto",
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        n_draws: int = 1,
        schema: Any = None,
        constraints: Any = None,
    ) -> None:
        self.backbone = backbone
        self.augmenter = augmenter
        self.preset = preset
        self.options = options
        self.device = device
        self.random_state = random_state
        self.n_draws = n_draws
        self.schema = schema
        self.constraints = constraints

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from an incomplete table.

        Parameters
        ----------
        X : array, pandas or polars frame of shape (n_samples, n_features)
        y : ignored
            Only here because scikit-learn passes it to every estimator.
        """
        del y
        frame = self._validate(X, reset=True)
        for name in frame:
            # lists and the like, which are an error that names the column
            read_cells(frame[name], str(name))
        seed = self._seed()
        model = AugMask(
            self.backbone,
            self.augmenter,
            preset=self.preset,
            options=self.options,
            seed=int(np.random.SeedSequence().generate_state(1)[0])
            if seed is None
            else seed,
            device=self.device,
        )
        schema = self.schema
        if not _is_frame(X) and (schema is None or isinstance(schema, Mapping)):
            # arrays hold numbers, even if few of them differ
            floats = {name: "float" for name in frame if frame[name].nunique() > 1}
            schema = floats | dict(schema or {})
        self.constant_ = {
            name: frame[name].dropna().iloc[0]
            for name in frame
            if frame[name].nunique() == 1
        }
        self.model_ = None
        if len(self.constant_) < sum(frame.notna().any()):
            with warnings.catch_warnings():
                # about columns that are not learned, which are imputed here
                warnings.simplefilter("ignore", AugMaskWarning)
                self.model_ = model.fit(
                    frame,
                    schema=schema,
                    constraints=self.constraints,
                    progress=False,
                    holdout=0,
                )
        columns = None if self.model_ is None else self.model_.schema_
        self.left_ = {
            name: _reason(str(name), columns)
            for name in frame
            if name not in self.constant_
            and not (columns is not None and self._imputes(columns, str(name)))
        }
        self._warned = self._warn_about_left(frame, set())
        return self

    def transform(self, X: Any) -> Any:
        """Return the table with its missing values imputed.

        Parameters
        ----------
        X : array, pandas or polars frame of shape (n_samples, n_features)

        Returns
        -------
        array or frame
            Observed values are unchanged.
        """
        check_is_fitted(self)
        frame = self._validate(X, reset=False)
        self._warn_about_left(frame, self._warned)
        if self.model_ is not None:
            imputed = self.model_.impute(
                frame, n_draws=self.n_draws, seed=self._seed(), progress=False
            )
            frame = imputed if isinstance(imputed, pd.DataFrame) else imputed.best()
        if self.constant_:
            frame = frame.fillna(self.constant_)
        if not _is_frame(X):
            return frame.to_numpy(np.float64)
        wanted = getattr(self, "_sklearn_output_config", {}).get(
            "transform", sklearn.get_config()["transform_output"]
        )
        # scikit-learn would wrap a frame of another library as an array
        return FrameKind.of(X).build(frame, None if wanted == "default" else wanted)

    @staticmethod
    def _imputes(schema: Schema, name: str) -> bool:
        column = schema[name]
        return column.learned and not column.missing_is_level

    def _seed(self) -> int | None:
        """Return a seed; None if each call shall give something else."""
        state = self.random_state
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**31))
        return None if state is None else check_int("random_state", state, 0)

    def _warn_about_left(self, frame: pd.DataFrame, known: set[Any]) -> set[Any]:
        """Warn about columns whose missing values stay, and return them."""
        empty = [
            name for name in self.left_ if name not in known and frame[name].hasnans
        ]
        if empty:
            listed = ", ".join(f"{str(name)!r} ({self.left_[name]})" for name in empty)
            warnings.warn(
                f"missing values stay in {listed}; to impute them, drop the column or "
                "declare its kind, or missing_as='unknown', in the schema",
                AugMaskWarning,
                stacklevel=3,
            )
        return set(empty)

    def _validate(self, X: Any, reset: bool) -> pd.DataFrame:
        """Return X as a frame, after scikit-learn's checks."""
        if _is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X if isinstance(X, pd.DataFrame) else read_frame(X)
        array = validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=2 if reset else 1,
        )
        return pd.DataFrame(array, columns=self.get_feature_names_out())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        # in frames; arrays hold numbers
        tags.input_tags.categorical = True
        return tags
