"""`AugMask`: the whole path behind `fit`, `sample`, `save` and `load`. Wiring only."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from augmask.artifact import read_artifact, write_artifact
from augmask.augmentation import resolve_augmenter
from augmask.augmentation.base import Augmenter
from augmask.augmentation.draws import Draws, complete
from augmask.config import Settings
from augmask.device import resolve_device
from augmask.diffusion import build_backbone, check_sampler, keywords_of
from augmask.diffusion.base import Backbone, init_from_data
from augmask.errors import (
    ArtifactError,
    AugMaskWarning,
    DataError,
    NotFittedError,
    UsageError,
    did_you_mean,
)
from augmask.files import check_writable
from augmask.notebook import html_table
from augmask.presets import resolve_preset
from augmask.progress import Progress, silent
from augmask.rng import stream, stream_seed
from augmask.sample.draw import draw_batches
from augmask.sample.stream import check_output, write_frames
from augmask.store import Stored, fingerprint, packed, restore
from augmask.table.carrier import Layout, Table
from augmask.table.encode import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema
from augmask.train import parallel
from augmask.train.checkpoint import Checkpoint
from augmask.train.data import TrainingData, filled_once, hidden_cells
from augmask.train.loop import Run, train
from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")

FEWEST_ROWS = 10
SUPERVISE = ("observed", "all")


def _whole_number(name: str, value: Any, lowest: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < lowest:
        raise UsageError(
            f"{name} must be a whole number of at least {lowest}, got {value!r}"
        )
    return int(value)


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
            return self._fit(data, schema, max_minutes, checkpoint, report)

    def _fit(
        self,
        data: Any,
        schema: Any,
        max_minutes: float | None,
        checkpoint: str | Path | None,
        progress: Progress,
    ) -> Self:
        began = time.monotonic()
        seed = _whole_number("seed", self.seed, 0)
        if max_minutes is not None and not 0 < max_minutes < float("inf"):
            raise UsageError(f"max_minutes must be above 0, got {max_minutes!r}")
        if self.supervise not in SUPERVISE:
            raise UsageError(
                f"supervise must be 'observed' or 'all', got {self.supervise!r}"
                + did_you_mean(str(self.supervise), SUPERVISE)
            )
        if checkpoint is not None:
            check_writable(checkpoint)
        augmenter = resolve_augmenter(self.augmenter)
        device = parallel.own_device(resolve_device(self.device))
        name, settings, why = resolve_preset(
            self.preset,
            device.type,
            self.backbone if isinstance(self.backbone, str) else None,
            self.options,
            keywords_of(self.backbone),
        )
        check_sampler(
            self.backbone,
            settings.sampling_steps,
            settings.solver,
            **settings.network,
        )
        log.info("preset %s (%s) on %s", name, why, device)

        frame = read_frame(data)
        found = infer_schema(frame, schema)
        for note in found.notes():
            warnings.warn(note, AugMaskWarning, stacklevel=3)
        spread = seed if settings.ties == "spread" else None
        codec = Codec.fit(frame, found, spread)
        table = _learnable(codec.encode(frame, spread))
        if parallel.size() > 1:
            parallel.check_same(
                fingerprint([seed, device.type], settings, table),
                "all processes must fit the same table with the same settings and "
                "seed; start without torchrun to fit apart",
            )

        draws = Draws.parse(settings.draws)
        completions = filled_once(
            lambda: complete(augmenter, table, draws, stream(seed, "fill"), progress),
            table,
            draws,
        )
        backbone = build_backbone(
            self.backbone,
            completions.table.layout,
            stream_seed(seed, "init"),
            **settings.network,
        )
        init_from_data(backbone, completions.table)
        backbone.to(device)
        # a module that the caller has built may start anywhere
        parallel.copy_lead(backbone.state_dict().values())
        hidden = hidden_cells(table.observed, settings.holdout, stream(seed, "hidden"))
        training = TrainingData(
            completions, self.supervise, hidden, stream_seed(seed, "shuffle"), device
        )
        seconds = None
        if max_minutes is not None:
            seconds = parallel.lead(60 * max_minutes - (time.monotonic() - began))
            if seconds <= 0:
                raise UsageError(
                    f"max_minutes={max_minutes} was used up before training began; "
                    "give more, or choose a faster augmenter"
                )
        run = train(
            Trainer(backbone, training, settings, seed, device),
            seconds,
            progress,
            self._checkpoint(checkpoint, table, settings),
        )
        if not run.history:
            raise UsageError(
                f"max_minutes={max_minutes} ended before the first training step; "
                "give more, or choose a faster augmenter"
            )
        self._set_fitted(codec, completions.table.layout, backbone, settings, name)
        self._set_run(run)
        return self

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
        n, seed = _whole_number("n", n, 1), _whole_number("seed", seed, 0)
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

    def _checkpoint(
        self, path: str | Path | None, table: Table, settings: Settings
    ) -> Checkpoint | None:
        if path is None:
            return None
        facts = [self.backbone, self.augmenter, self.supervise, self.seed]
        return Checkpoint(path, fingerprint(facts, settings, table))

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


def _learnable(table: Table) -> Table:
    """Return the table if there is something in it to learn from."""
    if len(table) < FEWEST_ROWS:
        raise DataError(
            f"a table needs at least {FEWEST_ROWS} rows to learn from, got {len(table)}"
        )
    if table.layout.n_features == 0:
        raise DataError(
            "no column can be learned: all are constant, empty or identifiers; an "
            "identifier is learned if the schema declares its kind"
        )
    return table


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
