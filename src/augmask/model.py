"""`AugMask`: the whole path behind `fit`, `sample`, `save` and `load`. Wiring only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
from sklearn.base import BaseEstimator

from augmask.artifact import read_artifact, write_artifact
from augmask.augmentation.base import Augmenter
from augmask.config import Settings
from augmask.device import resolve_device
from augmask.diffusion.base import Backbone
from augmask.errors import (
    ArtifactError,
    NotFittedError,
    UsageError,
)
from augmask.files import check_writable
from augmask.fitting import Ready, make_ready, whole_number
from augmask.notebook import html_table
from augmask.progress import Progress, silent
from augmask.rng import stream
from augmask.sample.draw import draw_batches
from augmask.sample.stream import check_output, write_frames
from augmask.store import Stored, fingerprint, packed, restore
from augmask.table.carrier import Layout
from augmask.table.encode import Codec
from augmask.train import parallel
from augmask.train.checkpoint import Checkpoint
from augmask.train.loop import Run, train


class AugMask(BaseEstimator):  # type: ignore[misc]
    """Learn the joint law of an incomplete table; generate complete rows from it.

    Every hole is filled with draws from a conditional model of its column, so that the
    denoiser gets whole rows, and the denoising loss counts observed cells only: holes
    are uncertain context, never targets.

    Parameters
    ----------
    backbone : str, callable or module
        The diffusion model: `cdtd`, `tabdiff`, `tabddpm`, or one of your own: a class
        or function that is called with a `Layout`, or a module that is copied.
    augmenter : str or Augmenter
        The rule that fills holes: `zero`, `mean`, `noise`, `ecdf`, `mice`, `lgbm-d`,
        `lgbm-s`, `lgbm-s-calibrated`, `lgbm-chain`, or an object with `fit` and `draw`.
    supervise : {"observed", "all"}
        Which cells the loss counts. `mean` with `all` is the paper's NoAug, `lgbm-s`
        with `all` its AugFull, `lgbm-s` with `observed` its AugMask.
    preset : {"auto", "paper", "balanced", "fast"}
        Sizes and budgets; `auto` chooses by the device.
    options : mapping, optional
        Single settings that differ from the preset's, see `augmask.config.Settings`,
        and keywords of the backbone.
    seed : int
        The same seed gives the same model on the same CPU.
    device : str
        `auto`, `cpu`, `cuda` or `mps`.

    Attributes
    ----------
    schema_ : Schema
        What each column was taken for, and why.
    settings_ : Settings
        The settings that were used.
    history_ : DataFrame
        Loss, held-out loss, learning rate and time along the training.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"x": [1, None, 2.5, 3] * 5, "y": ["a", "b", None, "b"] * 5})
    >>> model = AugMask(augmenter="ecdf", preset="fast", options={"steps": 3})
    >>> model.fit(df).sample(2).isna().any().any()
    np.False_
    """

    def __init__(
        self,
        backbone: Any = "cdtd",
        augmenter: str | Augmenter = "lgbm-s",
        supervise: Literal["observed", "all"] = "observed",
        preset: str = "auto",
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.backbone = backbone
        self.augmenter = augmenter
        self.supervise = supervise
        self.preset = preset
        self.options = options
        self.seed = seed
        self.device = device

    def fit(
        self,
        data: Any,
        schema: Any = None,
        max_minutes: float | None = None,
        checkpoint: str | Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from an incomplete table.

        Parameters
        ----------
        data : DataFrame, polars frame, Arrow table or path
            The table; holes are NaN, None, NaT or declared codes.
        schema : Schema, path, or mapping of column name to kind or settings, optional
            What to believe about columns instead of what is inferred.
        max_minutes : float, optional
            Wall-clock budget of the whole call.
        checkpoint : path, optional
            Training is saved here now and then, and goes on from here when the file
            exists and belongs to the same data, settings and seed.
        progress : callable
            Called as `progress(phase, done, total, numbers)`.

        Notes
        -----
        In a program that torchrun started as several processes, all of them call `fit`
        with the same arguments and train together; the first reports and warns, and
        all end with the same model.
        """
        with parallel.joined():
            report = progress if parallel.leads() else silent
            if checkpoint is not None:
                check_writable(checkpoint)
            ready = make_ready(self, data, schema, max_minutes, report)
            saved = self._checkpoint(checkpoint, ready)
            self._take(ready, train(ready.trainer, ready.seconds, report, saved))
        return self

    def _take(self, ready: Ready, run: Run) -> None:
        """Keep what was learned."""
        if not run.history:
            raise UsageError(
                f"max_minutes={ready.max_minutes} ended before the first training "
                "step; give more, or choose a faster augmenter"
            )
        self._set_fitted(
            ready.codec, ready.layout, ready.backbone, ready.settings, ready.preset
        )
        self._set_run(run)

    def sample(
        self, n: int, seed: int = 0, progress: Progress = silent
    ) -> pd.DataFrame:
        """Return `n` complete rows with the recovered dtypes.

        Parameters
        ----------
        n : int
        seed : int
            The same seed gives the same rows; another seed gives others.
        progress : callable
        """
        return pd.concat(self.sample_batches(n, seed, progress), ignore_index=True)

    def sample_batches(
        self, n: int, seed: int = 0, progress: Progress = silent
    ) -> Iterator[pd.DataFrame]:
        """Return `n` rows as an iterator of frames, for tables larger than memory."""
        self._check_fitted()
        n, seed = whole_number("n", n, 1), whole_number("seed", seed, 0)
        device = resolve_device(self.device)
        self.backbone_.to(device)
        return (
            self.codec_.decode(
                rows.num, rows.cat, stream(seed, "decode", rows.start), rows.start
            )
            for rows in draw_batches(
                self.backbone_, n, seed, self.settings_, device, progress
            )
        )

    def sample_to(
        self, path: str | Path, n: int, seed: int = 0, progress: Progress = silent
    ) -> int:
        """Write `n` rows to a CSV, Parquet or Feather file with constant memory."""
        check_output(path)
        return write_frames(self.sample_batches(n, seed, progress), path)

    def save(self, path: str | Path) -> None:
        """Write the model to one `.augmask` file: JSON and plain arrays, no pickle.

        The file holds no clock times, so the same table, settings and seed give the
        same bytes; `history_` of a loaded model has no column `seconds`. A backbone of
        your own is named in the file, and handed to `load` again.
        """
        self._check_fitted()
        parameters = {
            name: getattr(self, name)
            for name in ("backbone", "augmenter", "supervise", "seed")
        }
        stored = Stored(
            parameters,
            self.settings_,
            self.preset_,
            self.layout_,
            self.codec_,
            self.backbone_,
            self.history_,
            self.training_,
        )
        write_artifact(path, *packed(stored))

    def _repr_html_(self) -> str:
        rows = [(key, value) for key, value in self.get_params().items()]
        if not hasattr(self, "backbone_"):
            return html_table("AugMask, not fitted", (), rows)
        rows += [
            ("learned", f"{len(self.schema_)} columns, preset {self.preset_}"),
            ("kept step", self.training_["best_step"]),
            ("loss", f"{self.history_['loss'].iloc[-1]:.4f}"),
        ]
        return html_table("AugMask, fitted", (), rows)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # scikit-learn would draw its own diagram, which knows nothing of the training.
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    # -- the parts of fit -------------------------------------------------------

    def _checkpoint(self, path: str | Path | None, ready: Ready) -> Checkpoint | None:
        if path is None:
            return None
        facts = [self.backbone, self.augmenter, self.supervise, self.seed]
        return Checkpoint(path, fingerprint(facts, ready.settings, ready.table))

    def _set_fitted(
        self,
        codec: Codec,
        layout: Layout,
        backbone: Backbone,
        settings: Settings,
        preset: str,
    ) -> None:
        self.schema_ = codec.schema
        self.codec_ = codec
        self.layout_ = layout
        self.backbone_ = backbone
        self.settings_ = settings
        self.preset_ = preset

    def _set_run(self, run: Run) -> None:
        names = ["step", "loss", "held_out", "lr", "seconds"]
        self.history_ = pd.DataFrame(run.history, columns=names, dtype="float64")
        self.training_ = {
            "best_step": run.best_step,
            "restarts": run.restarts,
            "seconds": run.seconds,
            "stopped": run.stopped,
        }

    def _check_fitted(self) -> None:
        if not hasattr(self, "backbone_"):
            raise NotFittedError("this AugMask is not fitted yet; call fit first")


def load(path: str | Path, device: str = "auto", backbone: Any = None) -> AugMask:
    """Read a model file; nothing in it is executed.

    Parameters
    ----------
    path : str or Path
    device : str
        Where to sample; a model trained on a GPU loads on a CPU.
    backbone : callable or module, optional
        The backbone that the model was made with, if it was one of your own: a file
        cannot carry code.
    """
    manifest, arrays = read_artifact(path)
    stored = restore(path, manifest, arrays, backbone)
    try:
        model = AugMask(**stored.parameters, device=device)
    except TypeError as error:
        raise ArtifactError(f"{path} does not hold together: {error}") from error
    model._set_fitted(
        stored.codec, stored.layout, stored.backbone, stored.settings, stored.preset
    )
    model.history_ = stored.history
    model.training_ = stored.training
    return model
