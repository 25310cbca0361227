"""`AugMask`: the whole path behind `fit`, `sample`, `save` and `load`. Wiring only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
from sklearn.base import BaseEstimator

from augmask.artifact import read_artifact, write_artifact
from augmask.augmentation.base import Augmenter
from augmask.device import resolve_device
from augmask.errors import (
    ArtifactError,
    NotFittedError,
    UsageError,
)
from augmask.files import check_writable
from augmask.missing.model import MissingModel
from augmask.notebook import html_table
from augmask.prepare import FitSetup, prepare_fit, whole_number
from augmask.progress import Progress, silent
from augmask.sample.constraints import Constraint
from augmask.sample.generate import (
    adjusted_missing_model,
    check_missing,
    generate,
    holed,
)
from augmask.sample.impute import impute
from augmask.sample.multiple import Imputations
from augmask.sample.source import Source
from augmask.sample.stream import check_output, write_frames
from augmask.store import Stored, fingerprint, packed, restore
from augmask.train import parallel
from augmask.train.checkpoint import Checkpoint
from augmask.train.loop import Run, all_or_raise, train, train_many


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
        `lgbm-s`, `lgbm-s-calibrated`, `lgbm-chain`, `hyperimpute`, or an object with
        `fit` and `draw`. `auto` takes `lgbm-s`.
    supervise : {"observed", "all"}
        Which cells the loss counts. `mean` with `all` is the paper's NoAug, `lgbm-s`
        with `all` its AugFull, `lgbm-s` with `observed` its AugMask.
    preset : {"auto", "paper", "best", "balanced", "fast"}
        Sizes and budgets; `auto` takes `best` on a GPU and `fast` on a CPU.
    options : mapping, optional
        Single settings that differ from the preset's, see `augmask.config.Settings`,
        and keywords of the backbone.
    seed : int
        The same seed gives the same model on the same CPU.
    device : str
        `auto`, `cpu`, `cuda` or `mps`.
    ensemble : int or "auto"
        How many models to train from different starts; rows come from each in turn. On
        a GPU they train as one. `auto` is 1, but several with preset `auto` where the
        table is small and `options` do not set the steps.

    Attributes
    ----------
    schema_ : Schema
        What each column was taken for, and why.
    settings_ : Settings
        The settings that were used.
    augmenter_ : str or Augmenter
        The rule that was used.
    ensemble_ : int
        How many models were trained.
    training_ : dict
        What happened: the step that was kept, restarts, seconds, why it stopped, and
        `chosen`, what preset `auto` changed for the size of the table and why.
    history_ : DataFrame
        Loss, held-out loss, learning rate and time along the training, and what the
        backbone tells of its learned noise schedule.
    holes_ : MissingModel
        Which cells of a row one would have seen.
    rules_ : tuple
        What every sampled row keeps.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"x": [1, None, 2.5, 3] * 5, "y": ["a", "b", None, "b"] * 5})
    >>> model = AugMask(augmenter="ecdf", preset="fast", options={"steps": 3})
    >>> model.fit(df).sample(2).isna().any().any()
    np.False_
    """

    constraints_: tuple[Constraint, ...]
    _adjusted_missing_model: MissingModel | None
    _given: dict[str, Any]

    def __init__(
        self,
        backbone: Any = "cdtd",
        augmenter: str | Augmenter = "auto",
        supervise: Literal["observed", "all"] = "observed",
        preset: str = "auto",
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
        ensemble: int | Literal["auto"] = "auto",
    ) -> None:
        self.backbone = backbone
        self.augmenter = augmenter
        self.supervise = supervise
        self.preset = preset
        self.options = options
        self.seed = seed
        self.device = device
        self.ensemble = ensemble

    def fit(
        self,
        data: Any,
        schema: Any = None,
        max_minutes: float | None = None,
        checkpoint: str | Path | None = None,
        progress: Progress = silent,
        constraints: Any = None,
        private_extremes: bool = False,
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
        constraints : sequence, optional
            What every generated row keeps: an order of columns ("start <= end"), a
            list of columns that come only in combinations that were seen, or a
            function from a frame to one boolean per row. The table is checked.
        private_extremes : bool
            Learn neither levels that fewer than 5 rows have nor the exact extremes of
            numbers and dates, which a model file otherwise names (docs/security.md).

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
                if self.ensemble not in (1, "auto"):
                    raise UsageError(
                        "a checkpoint holds one model, got "
                        f"ensemble={self.ensemble!r}; leave one of them out"
                    )
            alone = checkpoint is not None
            given = (self, data, schema, max_minutes, report, constraints)
            ready = prepare_fit(*given, alone, private_extremes)
            saved = self._checkpoint(checkpoint, ready)
            if len(ready.trainers) == 1:
                runs = [train(ready.trainer, ready.seconds, report, saved)]
            else:
                found = train_many(ready.trainers, report, ready.seconds)
                runs = all_or_raise(found)
            self._take(ready, runs)
        return self

    def _take(self, ready: FitSetup, runs: Sequence[Run]) -> None:
        """Keep what was learned."""
        if not all(run.history for run in runs):
            raise UsageError(
                f"max_minutes={ready.max_minutes} ended before the first training "
                "step; give more, or choose a faster augmenter"
            )
        self._set_fitted(ready)
        # what is set from now on is for the next fit
        self._given = self.get_params(deep=False)
        self._set_runs(runs)
        self.ensemble_ = len(runs)
        self.training_["members"] = len(runs)
        self.training_["chosen"] = ready.choice.told
        self._set_wishes(ready.holes, ready.constraints)

    def sample(
        self,
        n: int | None = None,
        seed: int = 0,
        progress: Progress = silent,
        where: Any = None,
        missing: Literal["learned"] | None = None,
    ) -> pd.DataFrame:
        """Return `n` rows with the recovered dtypes, complete unless asked otherwise.

        Parameters
        ----------
        n : int
            May be left out when `where` is a frame.
        seed : int
            The same seed gives the same rows; another seed gives others.
        progress : callable
        where : mapping, str or frame, optional
            Which rows: ``{"sex": "F", "age": (30, 40), "city": ["A", "B"]}``, or the
            same as text, ``'sex == "F" and 30 <= age <= 40'``; a frame of partial rows
            is completed row by row. `attrs["where"]` of the result says what share of
            rows satisfies it of its own accord.
        missing : {"learned"}, optional
            Draw holes like those of the learned table into the rows. Whole numbers
            with holes are float64 then, and booleans objects, as pandas has them.
        """
        frames = list(self.sample_batches(n, seed, progress, where, missing))
        table = pd.concat(frames, ignore_index=True)
        table.attrs = frames[-1].attrs
        return table

    def sample_batches(
        self,
        n: int | None = None,
        seed: int = 0,
        progress: Progress = silent,
        where: Any = None,
        missing: Literal["learned"] | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Return `n` rows as an iterator of frames, for tables larger than memory."""
        source = self._source(seed)
        if n is not None:
            n = whole_number("n", n, 1)
        check_missing(missing)
        frames = generate(source, n, where, self.constraints_, progress)
        return frames if missing is None else holed(frames, self._suited(), seed)

    def _suited(self) -> MissingModel:
        """Return the learned holes, suited to the rows that this model gives."""
        if self._adjusted_missing_model is None:
            source = self._source(self.seed)
            self._adjusted_missing_model = adjusted_missing_model(
                source, self.constraints_, self.missing_model_
            )
        return self._adjusted_missing_model

    def _source(self, seed: int) -> Source:
        """Return what rows are drawn from, on the device of this model."""
        self._check_fitted()
        seed = whole_number("seed", seed, 0)
        device = resolve_device(self.device)
        self.backbone_.to(device)
        return Source(self.backbone_, self.codec_, self.settings_, device, seed)

    def sample_to(
        self,
        path: str | Path,
        n: int | None = None,
        seed: int = 0,
        progress: Progress = silent,
        where: Any = None,
        missing: Literal["learned"] | None = None,
        csv_safe: bool = False,
    ) -> int:
        """Write `n` rows to a CSV, Parquet or Feather file with constant memory.

        `csv_safe` puts an apostrophe before texts that a spreadsheet would run.
        """
        check_output(path)
        source = self._source(seed)
        if n is None or where is not None or missing is not None or self.constraints_:
            frames = self.sample_batches(n, seed, progress, where, missing)
            return write_frames(frames, path, csv_safe=csv_safe)
        # what is plain can be decoded while the next rows are drawn
        batches = source.batches(whole_number("n", n, 1), progress)
        return write_frames(batches, path, source.frame_of, csv_safe)

    def impute(
        self, data: Any, n_draws: int = 1, seed: int = 0, progress: Progress = silent
    ) -> pd.DataFrame | Imputations:
        """Fill the holes of any rows of such a table; all other cells stay.

        Parameters
        ----------
        data : DataFrame, polars frame, Arrow table or path
            Rows with holes, whether they were learned from or not.
        n_draws : int
            How many completions; each hole is drawn given the row's other cells.
        seed : int
            The same seed gives the same completions.
        progress : callable

        Returns
        -------
        DataFrame or Imputations
            One frame, or a sequence of several with `summary` and `long`.
            `attrs["filled"]` of a frame says how many cells were.
        """
        source = self._source(seed)
        n_draws = whole_number("n_draws", n_draws, 1)
        found = impute(data, source, n_draws, progress)
        return found[0] if n_draws == 1 else found

    def save(self, path: str | Path) -> None:
        """Write the model to one `.augmask` file: JSON and plain arrays, no pickle.

        The file holds no clock times, so the same table, settings and seed give the
        same bytes; `history_` of a loaded model has no column `seconds`. It has the
        parameters that the model was fitted with, but for the device. A backbone of
        your own is named in the file, and handed to `load` again; so is a rule.
        """
        self._check_fitted()
        stored = Stored(
            self._given,
            self.augmenter_,
            self.settings_,
            self.preset_,
            self.layout_,
            self.codec_,
            self.backbone_,
            self.history_,
            self.training_,
            self.missing_model_,
            self.constraints_,
        )
        write_artifact(path, *packed(stored))

    def _repr_html_(self) -> str:
        rows = [(key, value) for key, value in self.get_params().items()]
        if not hasattr(self, "backbone_"):
            return html_table("AugMask, not fitted", (), rows)
        rows += [
            (
                "learned",
                f"{len(self.schema_)} columns, preset {self.preset_}, "
                f"holes filled by {self.augmenter_}",
            ),
            ("kept step", self.training_["best_step"]),
            ("loss", f"{self.history_['loss'].iloc[-1]:.4f}"),
        ]
        return html_table("AugMask, fitted", (), rows)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # scikit-learn would draw its own diagram, which knows nothing of the training.
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    # -- the parts of fit -------------------------------------------------------

    def _checkpoint(
        self, path: str | Path | None, ready: FitSetup
    ) -> Checkpoint | None:
        if path is None:
            return None
        facts = [self.backbone, ready.augmenter, self.supervise, self.seed]
        return Checkpoint(path, fingerprint(facts, ready.settings, ready.table))

    def _set_fitted(self, made: FitSetup | Stored) -> None:
        self.codec_, self.schema_ = made.codec, made.codec.schema
        self.layout_ = made.layout
        self.backbone_ = made.backbone
        self.settings_, self.preset_ = made.settings, made.preset
        self.augmenter_ = made.augmenter

    def _set_runs(self, runs: Sequence[Run]) -> None:
        frames = [pd.DataFrame(run.history) for run in runs]
        if len(runs) > 1:
            frames = [frame.assign(member=i) for i, frame in enumerate(frames)]
        self.history_ = pd.concat(frames, ignore_index=True).astype("float64")
        self.training_ = {
            "best_step": max(run.best_step for run in runs),
            "restarts": sum(run.restarts for run in runs),
            "seconds": max(run.seconds for run in runs),
            "stopped": runs[0].stopped,
        }

    def _set_wishes(
        self, holes: MissingModel, constraints: tuple[Constraint, ...]
    ) -> None:
        self.missing_model_ = holes
        self._adjusted_missing_model = None
        self.constraints_ = constraints

    def _check_fitted(self) -> None:
        if not hasattr(self, "backbone_"):
            raise NotFittedError("this AugMask is not fitted yet; call fit first")


def load(
    path: str | Path,
    device: str = "auto",
    backbone: Any = None,
    constraints: Sequence[Any] = (),
) -> AugMask:
    """Read a model file; nothing in it is executed.

    Parameters
    ----------
    path : str or Path
    device : str
        Where to sample; a model trained on a GPU loads on a CPU.
    backbone : callable or module, optional
        The backbone that the model was made with, if it was one of your own: a file
        cannot carry code.
    constraints : sequence of callable
        The functions among the rules that the model was fitted with.
    """
    manifest, arrays = read_artifact(path)
    stored = restore(path, manifest, arrays, backbone, constraints)
    try:
        model = AugMask(**stored.parameters, device=device)
    except TypeError as error:
        raise ArtifactError(f"{path} does not hold together: {error}") from error
    model._set_fitted(stored)
    model._given = model.get_params(deep=False)
    model.ensemble_ = int(stored.training["members"])
    model.history_ = stored.history
    model.training_ = stored.training
    model._set_wishes(stored.holes, stored.constraints)
    return model
