"""`AugMask`: fit, sample, impute, save and load; `fit_many` for several models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
from sklearn.base import BaseEstimator

from augmask.augmentation import Augmenter
from augmask.config import check_int
from augmask.device import resolve_device
from augmask.errors import TrainingDiverged, UsageError, not_fitted
from augmask.files import check_writable
from augmask.fitted_state import FittedState, read_model, write_model
from augmask.missing.model import MissingModel
from augmask.notebook import html_table
from augmask.partitioned_rows import (
    ImputedRows,
    impute_partitions,
    sample_partitions,
)
from augmask.prepare import FitSetup, TimeBudget, fingerprint, is_auto, prepare_fit
from augmask.prepare_parts import kept_training, opened_table, prepare_fit_parts
from augmask.progress import (
    PATIENCE,
    Progress,
    ProgressOption,
    headline,
    reporting,
    silent,
)
from augmask.rng import stream_seed
from augmask.sample.generate import adjusted_missing_model, check_missing, generate
from augmask.sample.impute import impute
from augmask.sample.row_generator import RowGenerator
from augmask.sample.write import arrow_types, check_output, write_frames
from augmask.table.codec import write_formats
from augmask.table.frame_kinds import check_output as check_kind
from augmask.train import parallel
from augmask.train.checkpoint import Checkpoint
from augmask.train.loop import TrainingRun, all_or_raise, train, train_many


class AugMask(BaseEstimator):  # type: ignore[misc]
    """Diffusion model of an incomplete table that generates complete rows.

    An augmenter completes every row with draws from conditional models of the missing
    values, so that the denoiser sees complete rows. The denoising loss counts observed
    cells only: completed values serve as context and are never targets.

    Parameters
    ----------
    backbone : str, callable or module, default="cdtd"
        The diffusion model: `cdtd`, `tabdiff`, `tabddpm`, or your own: a class or
        function that is called with a `Layout`, or a module, which is copied.
    augmenter : str or Augmenter, default="auto"
        What completes missing values during training: `zero`, `mean`, `noise`, `ecdf`,
        `mice`, `lgbm-d`, `lgbm-s`, `lgbm-s-calibrated`, `lgbm-chain`, `hyperimpute`
        (with augmask-bench), or an object with the methods `fit` and `draw`. `auto` is
        `lgbm-s`.
    supervise : {"observed", "all"}, default="observed"
        The cells that the loss counts. The paper's AugMask is `lgbm-s` with `observed`,
        its AugFull is `lgbm-s` with `all`, its NoAug is `mean` with `all`.
    preset : {"auto", "paper", "best", "balanced", "fast"}, default="auto"
        Network size and training budget. `auto` is `best` on a GPU and `fast` on a CPU,
        adapted to the table if it is small.
    options : mapping, optional
        Settings that differ from the preset's (see `augmask.config.Settings`), and
        keywords of the backbone: ``{"steps": 8000, "width": 512}``.
    seed : int, default=0
        The same seed gives the same model on the same CPU.
    device : str, default="auto"
        `auto`, `cpu`, `cuda` or `mps`.
    ensemble : int or "auto", default="auto"
        How many networks to train from different seeds; rows come from each in turn. A
        GPU trains them at once. `auto` is 1, except for small tables with preset
        `auto`, unless `options` set the steps.

    Attributes
    ----------
    schema_ : Schema
        The kind of each column, and why it was chosen.
    settings_ : Settings
        The settings in use.
    preset_ : str
        The preset in use.
    augmenter_ : str or Augmenter
        The augmenter in use.
    ensemble_ : int
        The number of networks.
    training_ : dict
        Summary of the training: `best_step`, the step whose weights were kept,
        `restarts`, `seconds`, `stopped`, the reason for its end, `members`,
        `chosen`, what preset `auto` changed for the size of the table, and `holdout`,
        how many rows were held out (None if none were).
    history_ : DataFrame
        Loss, loss on held-out cells, learning rate and time along the training, and the
        learned noise schedule of backbones that have one.
    missing_model_ : MissingModel
        Fitted model of P(observed | row), which `sample(missing="learned")` draws from.
    constraints_ : tuple of Constraint
        What every generated row satisfies.
    backbone_ : module
        The trained network, or an ensemble of networks.
    codec_, layout_ : Codec, Layout
        The encoding of rows, and the features that the network was built for.

    See Also
    --------
    load : Read a model that `save` wrote.
    fit_many : Fit several models at the same time.
    AugMaskImputer : scikit-learn transformer that imputes missing values.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"x": [1, None, 2.5, 3] * 5, "y": ["a", "b", None, "b"] * 5})
    >>> model = AugMask(augmenter="ecdf", preset="fast", options={"steps": 3})
    >>> rows = model.fit(df).sample(100)
    >>> rows.shape, int(rows.isna().sum().sum())
    ((100, 2), 0)
    >>> int(model.sample(5, where={"y": "a"})["y"].eq("a").sum())
    5
    >>> int(model.impute(df).isna().sum().sum())
    0

    Every call gives new rows, and a seed the same ones again:

    >>> model.sample(5).equals(model.sample(5))
    False
    >>> model.sample(5, seed=1).equals(model.sample(5, seed=1))
    True
    """

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
        *,
        schema: Any = None,
        constraints: Any = None,
        max_minutes: float | None = None,
        checkpoint: str | Path | None = None,
        private_extremes: bool = False,
        holdout: float | Literal["auto"] = "auto",
        work_dir: str | Path | None = None,
        scheduler: str | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Learn from an incomplete table.

        Parameters
        ----------
        data : DataFrame, polars frame, Arrow table, path, or table in parts
            The table. Missing values are NaN, None, NaT or codes that the schema
            declares. A folder, a pattern or a list of Parquet files, or a Dask frame,
            is a table in parts, which may be larger than memory (docs/large-tables.md).
        schema : Schema, path, or mapping of column name to kind or settings, optional
            Overrides what is inferred about columns: ``{"zip": "category"}``.
        constraints : sequence, optional
            What every generated row must satisfy: an order of columns
            (``"start <= end"``, names that are not plain words in backticks or quotes),
            a list of columns that occur only in observed combinations, or a function
            from a frame to one boolean per row. The table is checked as well.
        max_minutes : float, optional
            Wall-clock budget of the whole call.
        checkpoint : path, optional
            The training is saved here about once a minute, and when Ctrl-C stops it.
            If the file exists and belongs to the same data, settings and seed, training
            resumes from it.
        private_extremes : bool, default=False
            Learn neither levels of fewer than 5 rows nor the exact extremes of numbers
            and dates, which a model file otherwise contains (docs/security.md).
        holdout : float or "auto", default="auto"
            Share of the rows that nothing is learned from, so that `evaluate` and the
            report can measure privacy and utility: pass them the same table and the
            model. `auto` is 3 %, at least 100 and at most 5,000 rows; it is 0 for
            tables of fewer than 2,000 rows and for preset `paper`.
        work_dir : path, optional
            For a table in parts: the folder for its encoded and completed rows, which a
            killed fit resumes from and another fit can reuse. By default a temporary
            folder.
        scheduler : str, optional
            For a table in parts: address of a Dask scheduler whose workers read and
            complete the parts. They must see the same files, and `work_dir`, under the
            same paths.
        progress : bool or callable, optional
            By default a terminal (standard error) or a notebook shows a bar, with a
            line on the settings in use and how long it will take; False shows nothing.
            A function is called as ``progress(phase, done, total, numbers)``.

        Returns
        -------
        AugMask
            The fitted model itself.

        Notes
        -----
        If torchrun started the program as several processes, all of them must call
        `fit` with the same arguments. They train together, the first one reports and
        warns, and all end with the same model.
        """
        with parallel.process_group():
            main = parallel.is_main_process()
            if checkpoint is not None:
                check_writable(checkpoint)
                if (
                    not is_auto(self.ensemble)
                    and check_int("ensemble", self.ensemble, 1) > 1
                ):
                    raise UsageError(
                        "a checkpoint holds one model, got "
                        f"ensemble={self.ensemble!r}; leave out one of the two"
                    )
            budget = TimeBudget(max_minutes)
            with (
                reporting(progress if main else False) as report,
                opened_table(data, work_dir, scheduler) as (table, folder),
            ):
                options: dict[str, Any] = {
                    "schema": schema,
                    "constraints": constraints,
                    "private_extremes": private_extremes,
                    "holdout": holdout,
                    "single": checkpoint is not None,
                    "progress": report,
                }
                if folder is None:
                    setup = prepare_fit(self, table, **options)
                else:
                    setup = prepare_fit_parts(
                        self, table, folder, scheduler=scheduler, **options
                    )
                seconds = budget.seconds_left()
                headline(report, "", seconds)
                saves = checkpoint is not None or work_dir is not None
                # a digest of the whole table takes a while
                run_name = self._run_name(setup) if saves else ""
                with kept_training(work_dir, run_name, setup) as own:
                    if len(setup.trainers) > 1:
                        runs = all_or_raise(train_many(setup.trainers, report, seconds))
                    else:
                        path = own if checkpoint is None else checkpoint
                        saved = None if path is None else Checkpoint(path, run_name)
                        runs = [train(setup.trainer, seconds, report, saved)]
            self._finish(setup, runs, budget)
        return self

    def sample(
        self,
        n: int | None = None,
        *,
        where: Any = None,
        missing: Literal["learned"] | None = None,
        seed: int | None = None,
        output: Literal["pandas", "polars", "arrow"] | None = None,
        progress: ProgressOption = None,
    ) -> Any:
        """Generate `n` rows with the column types of the table.

        Parameters
        ----------
        n : int
            May be left out if `where` is a frame.
        where : mapping, str or frame, optional
            A condition on the rows: ``{"sex": "F", "age": (30, 40), "city": ["A",
            "B"]}``, or a text, ``'sex == "F" and (age < 30 or city != "A")'``. A frame
            of partial rows is completed row by row. `attrs["where"]` of a pandas frame
            holds the share of unconditional rows that satisfy the condition.
        missing : {"learned"}, optional
            Rows are complete by default. "learned" removes values like those missing
            from the table; then integers with missing values are float64 and booleans
            are objects, as in pandas. `where` is about the values before that, except
            for ``"age is missing"`` and ``"age is not missing"``.
        seed : int, optional
            The same seed gives the same rows. Without one, every call gives new rows:
            the first after `fit` or `load` those of seed 0, each later one those of the
            next seed in a stream that follows from the model's own `seed`. So a script
            gives the same rows each time it runs. All methods share the stream.
        output : {"pandas", "polars", "arrow"}, optional
            What the rows come as; by default what `fit` was given, also in a model that
            was loaded.
        progress : bool or callable, optional
            As in `fit`; a bar appears if the work takes more than a second.

        Returns
        -------
        DataFrame, polars frame or Arrow table
        """
        check_kind(output)
        with reporting(progress, PATIENCE) as report:
            frames = list(self._frames(n, where, missing, seed, report))
        table = pd.concat(frames, ignore_index=True)
        table.attrs = frames[-1].attrs
        return self._state.frame_kind.build(table, output)

    def sample_batches(
        self,
        n: int | None = None,
        *,
        where: Any = None,
        missing: Literal["learned"] | None = None,
        seed: int | None = None,
        output: Literal["pandas", "polars", "arrow"] | None = None,
        progress: ProgressOption = None,
    ) -> Iterator[Any]:
        """Generate `n` rows as an iterator of frames, for tables larger than memory.

        The parameters are those of `sample`, and so are the rows. No bar is shown, but
        a function is called with the progress.
        """
        check_kind(output)
        report = progress if callable(progress) else silent
        frames = self._frames(n, where, missing, seed, report)
        kind = self._state.frame_kind
        return (kind.build(frame, output) for frame in frames)

    def sample_to(
        self,
        path: str | Path,
        n: int | None = None,
        *,
        partitions: int | None = None,
        scheduler: str | None = None,
        n_jobs: int | None = None,
        where: Any = None,
        missing: Literal["learned"] | None = None,
        csv_safe: bool = False,
        seed: int | None = None,
        progress: ProgressOption = None,
    ) -> int:
        """Write `n` generated rows to a file, or to a folder, in constant memory.

        Parameters
        ----------
        path : str or Path
            A CSV, Parquet or Feather file; its name tells which. With `partitions`, a
            new folder.
        n, where, missing, seed, progress
            As in `sample`.
        partitions : int, optional
            Write so many Parquet files, each drawn by a process of its own. They are
            other rows than those of one file, and the same bytes for any number of
            processes on CPUs. Identifiers count on from file to file. If the call is
            interrupted, the same call draws the files that the folder lacks.
        scheduler : str, optional
            Address of a Dask scheduler whose workers draw the partitions. They must
            see the folder under the same path, and have augmask in this version.
        n_jobs : int, optional
            Processes of this machine that draw the partitions; by default as many as
            it has cores, or one on a GPU.
        csv_safe : bool, default=False
            Prefix texts that a spreadsheet would run as formulas with an apostrophe.

        Returns
        -------
        int
            The number of rows written.
        """
        self._check_fitted()
        if partitions is not None:
            if csv_safe:
                raise UsageError(
                    "csv_safe applies to CSV files, and partitions are Parquet files; "
                    "leave it out"
                )
            with (
                reporting(progress, PATIENCE) as report,
                self._seed_of_call(seed) as own_seed,
            ):
                return sample_partitions(
                    self._state,
                    path,
                    n,
                    partitions,
                    device=self.device,
                    where=where,
                    missing=missing,
                    seed=own_seed,
                    scheduler=scheduler,
                    n_jobs=n_jobs,
                    progress=report,
                )
        if scheduler is not None or n_jobs is not None:
            raise UsageError(
                f"{'n_jobs' if scheduler is None else 'scheduler'} is for rows that "
                "are written to several files; pass partitions, or leave it out"
            )
        check_output(path)
        with reporting(progress, PATIENCE) as report:
            if (
                n is None
                or where is not None
                or missing is not None
                or self.constraints_
            ):
                frames = self._frames(n, where, missing, seed, report)
                types = arrow_types(self.schema_)
                return write_frames(frames, path, csv_safe=csv_safe, types=types)
            # unconditional rows can be decoded while the next ones are generated
            n = check_int("n", n, 1)
            with self._source_of_call(seed) as source:
                batches = source.batches(n, report)
            return write_frames(
                batches,
                path,
                lambda batch: write_formats(source.decode_batch(batch), self.schema_),
                csv_safe,
            )

    def impute(
        self,
        data: Any,
        *,
        n_draws: int = 1,
        seed: int | None = None,
        progress: ProgressOption = None,
    ) -> Any:
        """Fill missing values given the observed cells of each row.

        Parameters
        ----------
        data : DataFrame, polars frame, Arrow table or path
            Rows with the columns of the table, whether the model was fitted to them or
            not. Observed cells, other columns and the order of columns stay as they
            are.
        n_draws : int, default=1
            Number of imputations to draw.
        seed : int, optional
            The same seed gives the same imputations; without one, every call gives new
            ones, see `sample`.
        progress : bool or callable, optional
            As in `sample`.

        Returns
        -------
        DataFrame, polars frame, Arrow table or Imputations
            A completed table of the kind of `data`, or for `n_draws` above 1 a sequence
            of them with the methods `summary` and `long`. `attrs["filled"]` of a pandas
            frame counts the imputed cells.
        """
        self._check_fitted()
        n_draws = check_int("n_draws", n_draws, 1)
        with (
            reporting(progress, PATIENCE) as report,
            self._source_of_call(seed) as source,
        ):
            imputations = impute(data, source, n_draws, report)
        return imputations[0] if n_draws == 1 else imputations

    def impute_to(
        self,
        data: Any,
        path: str | Path,
        *,
        n_draws: int = 1,
        scheduler: str | None = None,
        n_jobs: int | None = None,
        seed: int | None = None,
        progress: ProgressOption = None,
    ) -> ImputedRows:
        """Fill missing values of a table of many Parquet files, into another folder.

        Parameters
        ----------
        data : str, Path or sequence of them
            A folder, a pattern such as ``"lake/2024-*.parquet"``, or files.
        path : str or Path
            A new folder. It gets one file for about 250,000 rows of the table, in the
            same order: small files are joined, large ones cut between row groups.
            Observed cells, other columns and the order of rows and columns stay as they
            are; categories become text, and what only the names of folders say
            (`year=2024`) becomes a column.
        n_draws : int, default=1
            Number of imputations to draw: completed rows of a part follow each other,
            numbered in a first column `draw`.
        scheduler, n_jobs
            As in `sample_to`, and with the same promise: the same bytes for any number
            of processes, and an interrupted call is completed by the same call.
        seed, progress
            As in `impute`.

        Returns
        -------
        ImputedRows
            `rows`, how many were written, and `filled`, how many of their cells had
            been missing, in each draw.
        """
        self._check_fitted()
        with (
            reporting(progress, PATIENCE) as report,
            self._seed_of_call(seed) as own_seed,
        ):
            return impute_partitions(
                self._state,
                data,
                path,
                n_draws=n_draws,
                device=self.device,
                seed=own_seed,
                scheduler=scheduler,
                n_jobs=n_jobs,
                progress=report,
            )

    def save(self, path: str | Path) -> None:
        """Write the model to one file of plain arrays and JSON, without pickle.

        The file holds the parameters of the fit, except for the device. It holds no
        clock times, so the same table, settings and seed give the same bytes, and
        `history_` of a loaded model has no column `seconds`. Custom backbones and
        Python constraints must be passed to `load` again.

        Parameters
        ----------
        path : str or Path
            By convention it ends in `.augmask`.
        """
        self._check_fitted()
        write_model(path, self._state)

    # -- fitted attributes ------------------------------------------------------

    def _set_state(self, state: FittedState) -> None:
        """Set all fitted attributes; `fit` and `load` both end here."""
        self._state = state
        self.schema_ = state.codec.schema
        self.settings_ = state.settings
        self.preset_ = state.preset
        self.augmenter_ = state.augmenter
        self.ensemble_ = int(state.training["members"])
        self.training_ = dict(state.training)
        self.history_ = state.history
        self.missing_model_ = state.missing_model
        self.constraints_ = state.constraints
        self.backbone_ = state.backbone
        self.codec_ = state.codec
        self.layout_ = state.layout
        self._adjusted_missing_model: MissingModel | None = None
        # calls without a seed since `fit` or `load`; no part of a model file
        self._calls = 0

    def _finish(
        self, setup: FitSetup, runs: Sequence[TrainingRun], budget: TimeBudget
    ) -> None:
        """Become the model that these runs have trained."""
        if not all(run.history for run in runs):
            raise budget.used_up("before the first training step")
        self._set_state(setup.state.with_runs(runs))

    def _run_name(self, setup: FitSetup) -> str:
        """Return what two runs share that give the same result."""
        state = setup.state
        parts = [self.backbone, state.augmenter, self.supervise, self.seed]
        if setup.job:
            parts.append(setup.job)
        return fingerprint(parts, state.settings, setup.table)

    def _check_fitted(self) -> None:
        if not hasattr(self, "backbone_"):
            raise not_fitted(self)

    def _source(self, seed: int) -> RowGenerator:
        """Return the generator of rows, on the device of this model."""
        self._check_fitted()
        seed = check_int("seed", seed, 0)
        device = resolve_device(self.device)
        self.backbone_.to(device)
        return RowGenerator(self.backbone_, self.codec_, self.settings_, device, seed)

    @contextmanager
    def _seed_of_call(self, seed: int | None) -> Iterator[int]:
        """Context manager: the seed of a call that got one or not.

        A call that fails does not count.
        """
        self._check_fitted()
        if seed is not None:
            yield check_int("seed", seed, 0)
            return
        own = stream_seed(self._state.parameters["seed"], "call", self._calls)
        yield own if self._calls else 0
        self._calls += 1

    @contextmanager
    def _source_of_call(self, seed: int | None) -> Iterator[RowGenerator]:
        """Context manager: the generator of rows for a call with or without a seed."""
        with self._seed_of_call(seed) as own:
            yield self._source(own)

    def _frames(
        self,
        n: int | None,
        where: Any,
        missing: Literal["learned"] | None,
        seed: int | None,
        progress: Progress,
    ) -> Iterator[pd.DataFrame]:
        """Generate rows as pandas frames; see `sample_batches`."""
        with self._source_of_call(seed) as source:
            if n is not None:
                n = check_int("n", n, 1)
            check_missing(missing)
            frames = generate(
                source,
                n,
                where,
                self.constraints_,
                progress,
                None if missing is None else self._adjusted,
            )
        return (write_formats(frame, self.schema_) for frame in frames)

    def _adjusted(self) -> MissingModel:
        """Return the missingness model, adjusted to the rows that this model makes."""
        if self._adjusted_missing_model is None:
            self._adjusted_missing_model = adjusted_missing_model(
                self._source(self.seed), self.constraints_, self.missing_model_
            )
        return self._adjusted_missing_model

    # -- scikit-learn and notebooks ---------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _repr_html_(self) -> str:
        rows = [(key, value) for key, value in self.get_params().items()]
        if not hasattr(self, "backbone_"):
            return html_table("AugMask, not fitted", (), rows)
        rows += [
            (
                "learned",
                f"{len(self.schema_)} columns, preset {self.preset_}, "
                f"missing values completed by {self.augmenter_}",
            ),
            ("kept step", self.training_["best_step"]),
            ("loss", f"{self.history_['loss'].iloc[-1]:.4f}"),
        ]
        return html_table("AugMask, fitted", (), rows)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # scikit-learn's own diagram does not show the training
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def load(
    path: str | Path,
    *,
    device: str = "auto",
    backbone: Any = None,
    constraints: Sequence[Any] = (),
) -> AugMask:
    """Read a model that `AugMask.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
    device : str, default="auto"
        Where to generate rows; a model trained on a GPU loads on a CPU.
    backbone : callable or module, optional
        The custom backbone that the model was fitted with; files hold no code.
    constraints : sequence of callable
        The Python functions among the constraints that the model was fitted with.

    Returns
    -------
    AugMask
        The fitted model. It has the parameters of its fit, so `clone` of it trains the
        same model again.

    Raises
    ------
    ArtifactError
        If the file is absent, damaged, foreign or of another format.

    Examples
    --------
    >>> import pandas as pd, tempfile
    >>> df = pd.DataFrame({"x": [1, None, 2.5, 3] * 5, "y": ["a", "b", None, "b"] * 5})
    >>> model = AugMask(augmenter="ecdf", preset="fast", options={"steps": 3}).fit(df)
    >>> path = Path(tempfile.mkdtemp(), "model.augmask")
    >>> model.save(path)
    >>> load(path).sample(9).equals(model.sample(9))
    True
    """
    state = read_model(path, backbone, constraints)
    model = AugMask(**state.parameters, device=device)
    model._set_state(state)
    return model


def fit_many(
    models: Sequence[AugMask],
    tables: Sequence[Any],
    *,
    schema: Any = None,
    constraints: Any = None,
    max_minutes: float | None = None,
    progress: ProgressOption = None,
) -> list[AugMask]:
    """Fit each model to its table, all at the same time on one device.

    A single network of this size leaves most of a GPU idle; a CPU gains nothing. The
    models take training steps in turn, each on a CUDA stream of its own. Every model
    becomes what its own `fit` would have made of it: bit for bit on a CPU, up to
    rounding on a GPU.

    Parameters
    ----------
    models : sequence of AugMask
        With any strategies, seeds and backbones.
    tables : sequence
        One for each model, see `AugMask.fit`; they may be the same object.
    schema : Schema, path or mapping, optional
        Of all tables.
    constraints : sequence, optional
        Of all tables.
    max_minutes : float, optional
        Wall-clock budget of the whole call.
    progress : bool or callable, optional
        As in `AugMask.fit`.

    Returns
    -------
    list of AugMask
        The same models, fitted.

    Raises
    ------
    TrainingDiverged
        If a training failed for good; all other models are fitted then.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"x": [1, None, 2.5, 3] * 5, "y": ["a", "b", None, "b"] * 5})
    >>> options = {"steps": 3}
    >>> models = [
    ...     AugMask(augmenter="ecdf", preset="fast", options=options, seed=seed)
    ...     for seed in (0, 1)
    ... ]
    >>> [len(model.sample(2)) for model in fit_many(models, [df, df])]
    [2, 2]
    """
    if isinstance(models, AugMask) or isinstance(tables, pd.DataFrame):
        raise UsageError("fit_many needs a sequence of models and one of tables")
    try:
        models, tables = list(models), list(tables)
    except TypeError as error:
        raise UsageError(
            "fit_many needs a sequence of models and one of tables"
        ) from error
    if not all(isinstance(model, AugMask) for model in models):
        raise UsageError("fit_many needs a sequence of AugMask models")
    if len(models) != len(tables):
        raise UsageError(
            f"every model needs a table, got {len(models)} models and "
            f"{len(tables)} tables"
        )
    if len({id(model) for model in models}) < len(models):
        raise UsageError("a model occurs twice; pass a clone of it")
    if parallel.launched_by_torchrun():
        raise UsageError(
            "models that are fitted together share one device; start without torchrun"
        )
    budget = TimeBudget(max_minutes)
    with reporting(progress) as report:
        setups = [
            prepare_fit(
                model, table, schema=schema, constraints=constraints, progress=report
            )
            for model, table in zip(models, tables, strict=True)
        ]
        trainers = [trainer for setup in setups for trainer in setup.trainers]
        seconds = budget.seconds_left()
        headline(report, f"{len(models)} models at the same time", seconds)
        runs = iter(train_many(trainers, report, seconds))
    errors: list[TrainingDiverged | UsageError] = []
    for model, setup in zip(models, setups, strict=True):
        own = list(islice(runs, len(setup.trainers)))
        try:
            model._finish(setup, all_or_raise(own), budget)
        except (TrainingDiverged, UsageError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return list(models)
