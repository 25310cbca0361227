"""`Table`: the arrays that all parts of the package exchange.

NaN exists only in frames. Once encoded, a missing value is a False in `observed`, the
paper's m, and the number or code beneath it is arbitrary until an augmenter fills it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
CodeArray = npt.NDArray[np.integer]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Layout:
    """The features of a `Table`: numeric ones first, then categorical ones.

    Parameters
    ----------
    num_names, cat_names : tuple of str
        Feature names in column order.
    cards : tuple of int
        Number of codes of each categorical feature, K_j.
    reserved : bool
        Whether the last code of every categorical feature marks a missing value (the
        `zero` augmenter). Networks may read it; samplers never return it.

    Examples
    --------
    >>> layout = Layout(("age",), ("sex", "city"), (2, 5))
    >>> layout.n_num, layout.n_cat, layout.names
    (1, 2, ('age', 'sex', 'city'))
    """

    num_names: tuple[str, ...]
    cat_names: tuple[str, ...]
    cards: tuple[int, ...]
    reserved: bool = False

    def __post_init__(self) -> None:
        if len(self.cat_names) != len(self.cards):
            raise ValueError(f"{len(self.cat_names)=} differs from {len(self.cards)=}")

    @property
    def n_num(self) -> int:
        """Number of numeric features."""
        return len(self.num_names)

    @property
    def n_cat(self) -> int:
        """Number of categorical features."""
        return len(self.cat_names)

    @property
    def n_features(self) -> int:
        """Number of features, the paper's d."""
        return self.n_num + self.n_cat

    @property
    def names(self) -> tuple[str, ...]:
        """All feature names in column order."""
        return self.num_names + self.cat_names


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as arrays: numbers, codes, and which cells are observed.

    Parameters
    ----------
    num : float array [n, d_num]
        Scaled numbers; finite everywhere.
    cat : int array [n, d_cat]
        Codes in 0 .. K_j - 1 everywhere, also where missing.
    observed : bool array [n, d]
        True where the paper's m is 1. Columns as in `layout.names`.
    layout : Layout
    """

    num: FloatArray
    cat: CodeArray
    observed: BoolArray
    layout: Layout

    def __post_init__(self) -> None:
        n = len(self.observed)
        shapes = (self.num.shape, self.cat.shape, self.observed.shape)
        layout = self.layout
        if shapes != ((n, layout.n_num), (n, layout.n_cat), (n, layout.n_features)):
            raise ValueError(f"arrays of shapes {shapes} do not fit {layout}")

    def __len__(self) -> int:
        return len(self.observed)

    @property
    def num_observed(self) -> BoolArray:
        """The mask of the numeric features."""
        return self.observed[:, : self.layout.n_num]

    @property
    def cat_observed(self) -> BoolArray:
        """The mask of the categorical features."""
        return self.observed[:, self.layout.n_num :]

    def filled(
        self, num: FloatArray, cat: CodeArray, layout: Layout | None = None
    ) -> Table:
        """Return a table with these contents and the same mask."""
        return replace(self, num=num, cat=cat, layout=layout or self.layout)
