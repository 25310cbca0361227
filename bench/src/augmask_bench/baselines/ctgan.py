"""CTGAN, through the authors' package (Xu et al. 2019), and code shared with TVAE.

The package trains for a number of epochs and cannot be stopped between them. It records
its losses after every epoch, and there `Timed` checks the time limit.

One part of its sampler is replaced: it draws the real rows of a step one after the
other, which takes 30 ms for 4,090 rows. Another part can be: for new rows it draws
levels by the logarithm of their frequency, which is meant for training, so that shares
of .66, .23 and .11 become .38, .32 and .29. This is the package's behaviour and that of
the paper's comparison; `level_draw="frequency"` does what CTGAN's paper says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import joblib
import numpy as np
import numpy.typing as npt

from augmask.errors import UsageError
from augmask.packages import library_versions
from augmask.rng import stream, stream_seed
from augmask_bench.baselines.plain import Rows, code_names, complete_frame, plain_rows
from augmask_bench.peers import isolated, require

if TYPE_CHECKING:
    import torch

    from augmask.table.table import Layout, Table

LevelDraw = Literal["log-frequency", "frequency"]

LEVEL_DRAWS = ("log-frequency", "frequency")
# The critic judges rows in packs, so a batch is a multiple of them.
PACK = 10


class _OutOfTime(Exception):
    """Raised inside the package to stop its training."""


@contextmanager
def isolated_ctgan(seed: int) -> Iterator[None]:
    """Isolate the package, and prevent it from starting a process per core."""
    with isolated(seed), joblib.parallel_config(backend="sequential"):
        yield


class Sampler:
    """The package's sampler, with the rows of a batch drawn at once.

    Parameters
    ----------
    sampler : ctgan.data_sampler.DataSampler
    rng : numpy.random.Generator
    level_draw : {"log-frequency", "frequency"}
        Frequencies of the levels of new rows: the package's, or those of the table.
    """

    def __init__(
        self, sampler: Any, rng: np.random.Generator, level_draw: LevelDraw
    ) -> None:
        self._sampler = sampler
        self.rng = rng
        self._level_draw = level_draw
        columns = sampler._rid_by_cat_cols
        lists = [rows for levels in columns for rows in levels]
        cards = np.array([len(levels) for levels in columns], np.int64)
        self._first = np.cumsum(cards) - cards
        self._count = np.array([len(rows) for rows in lists], np.int64)
        self._start = np.cumsum(self._count) - self._count
        self._rows = np.concatenate([np.empty(0, np.int64), *lists])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def sample_data(
        self,
        data: npt.NDArray[Any],
        n: int,
        col: npt.NDArray[Any] | None,
        opt: npt.NDArray[Any] | None,
    ) -> npt.NDArray[Any]:
        """Return `n` rows; row i has level `opt[i]` of the category `col[i]`."""
        if col is None or opt is None:
            return data[self.rng.integers(len(data), size=n)]
        cell = self._first[col] + opt
        place = (self.rng.random(n) * self._count[cell]).astype(np.int64)
        at: npt.NDArray[np.int64] = self._rows[self._start[cell] + place]
        return data[at]

    def sample_original_condvec(
        self, batch_size: int
    ) -> npt.NDArray[np.float32] | None:
        """Return for every new row one level of one column, one-hot."""
        if not len(self._count):
            return None
        if self._level_draw == "log-frequency":
            theirs: npt.NDArray[np.float32] = self._sampler.sample_original_condvec(
                batch_size
            )
            return theirs
        # every column has all rows, so columns are equally likely
        cell = self.rng.choice(
            len(self._count), batch_size, p=self._count / self._count.sum()
        )
        levels = np.zeros((batch_size, len(self._count)), np.float32)
        levels[np.arange(batch_size), cell] = 1
        return levels


class Timed:
    """Mixin for a class of the package: stops its training at `deadline`.

    Keeps the losses of the last epoch only: the package concatenates a frame of all
    losses after every epoch.
    """

    deadline: float | None = None
    epochs_done = 0
    rng: np.random.Generator

    def use_generator(self, rng: np.random.Generator) -> None:
        """Use `rng` for what the package itself does not draw."""
        self.rng = rng

    @property
    def loss_values(self) -> Any:
        """An empty frame, which the package replaces instead of concatenating."""
        return self._empty

    @loss_values.setter
    def loss_values(self, frame: Any) -> None:
        if frame is None or frame.empty:
            self._empty = frame
            return
        self.losses = {
            str(name).lower(): float(value)
            for name, value in frame.iloc[-1].items()
            if "Loss" in str(name)
        }
        self.epochs_done += 1
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise _OutOfTime


class TimedCtgan(Timed):
    """Mixin for CTGAN: also replaces its sampler."""

    level_draw: LevelDraw = "log-frequency"

    @property
    def _data_sampler(self) -> Any:
        return self._drawing

    @_data_sampler.setter
    def _data_sampler(self, sampler: Any) -> None:
        self._drawing = (
            None if sampler is None else Sampler(sampler, self.rng, self.level_draw)
        )

    def use_generator(self, rng: np.random.Generator) -> None:
        """Use `rng` for rows and levels from now on."""
        super().use_generator(rng)
        if self._drawing is not None:
            self._drawing.rng = rng


def with_mixin(mixin: type[Timed], synthesizer: type) -> Any:
    """Return a class of the package with a mixin."""
    return type(mixin.__name__, (mixin, synthesizer), {})


class Synthesizer:
    """A fitted CTGAN or TVAE.

    Attributes
    ----------
    facts : dict
        Steps and epochs completed, why training ended, the last losses, and versions.
    """

    def __init__(
        self, peer: str, model: Any, layout: Layout, facts: dict[str, object]
    ) -> None:
        self._peer = peer
        self._model = model
        self._layout = layout
        self.facts = facts

    def sample(self, n: int, seed: int) -> Rows:
        """Return the numbers and codes of `n` rows."""
        with isolated_ctgan(stream_seed(seed, self._peer, "sample")):
            self._model.use_generator(stream(seed, self._peer, "new"))
            frame = self._model.sample(n)
        return plain_rows(frame, self._layout, self._peer)


def fit_timed(
    peer: str,
    make: Any,
    table: Table,
    steps_per_epoch: int,
    seed: int,
    device: torch.device,
    seconds: float | None,
) -> Synthesizer:
    """Fit a synthesizer of the package.

    Parameters
    ----------
    peer : str
        Its name in messages.
    make : callable
        Imports the package and returns a synthesizer with a mixin; runs isolated.
    table : Table
        Complete, with unscaled numbers (see `plain_codec`).
    steps_per_epoch : int
    seed : int
    device : torch.device
    seconds : float, optional
        Time limit of the training, checked after every epoch.
    """
    require("ctgan")
    frame = complete_frame(table, peer)
    start = time.monotonic()
    ended = "steps"
    with isolated_ctgan(stream_seed(seed, peer, "fit")):
        model = make()
        # the package's own switch knows the CPU and the first GPU only
        model._device = device
        model.use_generator(stream(seed, peer, "rows"))
        model.deadline = None if seconds is None else start + seconds
        try:
            model.fit(frame, discrete_columns=code_names(table.layout))
        except _OutOfTime:
            ended = "time"
    return Synthesizer(
        peer,
        model,
        table.layout,
        {
            "steps": model.epochs_done * steps_per_epoch,
            "epochs": model.epochs_done,
            "ended": ended,
            "device": device.type,
            **model.losses,
            **library_versions("ctgan", "rdt"),
        },
    )


@dataclass(frozen=True)
class CtganSettings:
    """Settings of CTGAN.

    Parameters
    ----------
    steps : int
        Minimum number of steps, in whole epochs.
    batch_size : int
        Limited to the rows of the table, and a multiple of ten.
    embedding_dim : int
        Of the noise from which a row is generated.
    widths : tuple of int
        Hidden layers of generator and critic.
    lr, decay : float
        Of both.
    level_draw : {"log-frequency", "frequency"}
        Every new row is conditioned on one level of one column. The package draws it by
        the logarithm of its frequency, so rare levels come too often; `frequency` draws
        it by its frequency.
    """

    steps: int = 30_000
    batch_size: int = 4096
    embedding_dim: int = 256
    widths: tuple[int, ...] = (256, 336, 336, 336, 336)
    lr: float = 2e-4
    decay: float = 1e-6
    level_draw: LevelDraw = "log-frequency"

    def __post_init__(self) -> None:
        if self.level_draw not in LEVEL_DRAWS:
            raise UsageError(
                f"level_draw must be one of {LEVEL_DRAWS}, got {self.level_draw!r}"
            )


PAPER = CtganSettings()
SMALL = CtganSettings(steps=1_000, batch_size=500, embedding_dim=128, widths=(128, 128))


def fit(
    table: Table,
    settings: CtganSettings,
    seed: int,
    device: torch.device,
    seconds: float | None = None,
) -> Synthesizer:
    """Fit CTGAN to a complete table with unscaled numbers."""
    batch_size = min(settings.batch_size, len(table))
    batch_size = max(batch_size - batch_size % PACK, PACK)
    per_epoch = max(len(table) // batch_size, 1)

    def make() -> Any:
        from ctgan import CTGAN

        model = with_mixin(TimedCtgan, CTGAN)(
            embedding_dim=settings.embedding_dim,
            generator_dim=settings.widths,
            discriminator_dim=settings.widths,
            generator_lr=settings.lr,
            discriminator_lr=settings.lr,
            generator_decay=settings.decay,
            discriminator_decay=settings.decay,
            batch_size=batch_size,
            discriminator_steps=1,
            log_frequency=True,
            pac=PACK,
            epochs=-(-settings.steps // per_epoch),
            enable_gpu=False,
        )
        model.level_draw = settings.level_draw
        return model

    return fit_timed("CTGAN", make, table, per_epoch, seed, device, seconds)
