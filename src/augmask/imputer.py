"""`AugMaskImputer`: the model as a scikit-learn transformer that fills holes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from augmask.augmentation.base import Augmenter
from augmask.errors import AugMaskWarning
from augmask.model import AugMask


class AugMaskImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn the joint law of an incomplete table, and fill holes from it.

    Rows that were not fitted are filled as well. Arrays hold numbers and come back as
    float64. Frames may have columns of any kind and come back as frames.

    Parameters
    ----------
    backbone, augmenter, preset, options, device
        As in `AugMask`, but the backbone is TabDDPM: where both were measured it fills
        holes better than CDTD (docs/impute.md).
    random_state : int
        Seed of the training and of the draws.
    n_draws : int
        1 for a draw, which keeps the spread of a column. More for the mean (else the
        likeliest level) of so many, which is nearer to the truth cell by cell.

    Attributes
    ----------
    model_ : AugMask
        The fitted model; its `impute` gives several completions.

    Notes
    -----
    A column of one value, or of none, is not learned: its holes get that value, or
    stay.

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
        augmenter: str | Augmenter = "lgbm-s",
        preset: str = "auto",
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: int = 0,
        n_draws: int = 1,
    ) -> None:
        self.backbone = backbone
        self.augmenter = augmenter
        self.preset = preset
        self.options = options
        self.device = device
        self.random_state = random_state
        self.n_draws = n_draws

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table with holes; `y` is ignored."""
        del y  # scikit-learn passes it to everything
        frame = self._checked(X, reset=True)
        model = AugMask(
            self.backbone,
            self.augmenter,
            preset=self.preset,
            options=self.options,
            seed=self.random_state,
            device=self.device,
        )
        schema = None
        if not isinstance(X, pd.DataFrame):
            # an array has numbers in it, even if few of them differ
            schema = {name: "float" for name in frame if frame[name].nunique() > 1}
        self.constant_ = {
            name: frame[name].dropna().iloc[0]
            for name in frame
            if frame[name].nunique() == 1
        }
        self.model_ = None
        if len(self.constant_) < sum(frame.notna().any()):
            with warnings.catch_warnings():
                # what is set aside is filled here
                warnings.simplefilter("ignore", AugMaskWarning)
                self.model_ = model.fit(frame, schema=schema)
        return self

    def transform(self, X: Any) -> Any:
        """Return the table with its holes filled."""
        check_is_fitted(self)
        frame = self._checked(X, reset=False)
        if self.model_ is not None:
            found = self.model_.impute(frame, self.n_draws, self.random_state)
            frame = found if isinstance(found, pd.DataFrame) else found.best()
        if self.constant_:
            frame = frame.fillna(self.constant_)
        return frame if isinstance(X, pd.DataFrame) else frame.to_numpy(np.float64)

    def _checked(self, X: Any, reset: bool) -> pd.DataFrame:
        """Return X as a frame, after the checks that scikit-learn asks for."""
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
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
        return tags
