"""`Source`: draws rows from a trained denoiser, all anew or around given cells.

Where everything random is drawn at the start, a few steps already tell what a start
leads to. So starts can be screened at a fraction of the cost, and only those that lead
to wanted rows are followed in full.

Around given cells every step is taken once: that came closest to the law of the other
cells (on Adult, one category given; 3 rounds were worse). Where nothing is drawn on the
way, two thirds of the steps that `impute` takes gave the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import torch

from augmask.config import Settings
from augmask.device import fast_matmul
from augmask.diffusion.base import Backbone, Batch
from augmask.diffusion.noise import Noise
from augmask.diffusion.sampling import Sampler, State, inpainting_sampler, run_sampler
from augmask.progress import Progress
from augmask.rng import stream, stream_seed
from augmask.sample.draw import Rows, draw_batches, sample_batch
from augmask.sample.inpaint import complete_rows
from augmask.table.encode import Codec, gate_name
from augmask.table.table import BoolArray, CodeArray, FloatArray

ROUNDS = 1
# Steps that tell what a start leads to: this share of all, but never more than MOST.
QUICK, MOST_QUICK, LEAST_QUICK = 0.1, 8, 4


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows, encoded and as a frame."""

    num: FloatArray
    cat: CodeArray
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def taken(self, rows: np.ndarray) -> Drawn:
        """Return some of the rows, by mask or by position."""
        frame = self.frame[rows] if rows.dtype == bool else self.frame.iloc[rows]
        return Drawn(self.num[rows], self.cat[rows], frame.reset_index(drop=True))


def joined(parts: list[Drawn]) -> Drawn:
    """Return the rows of all parts below each other."""
    return Drawn(
        np.concatenate([part.num for part in parts]),
        np.concatenate([part.cat for part in parts]),
        pd.concat([part.frame for part in parts], ignore_index=True),
    )


@dataclass(frozen=True, eq=False)
class Given:
    """Columns whose cells are given: their values, and the same encoded.

    Parameters
    ----------
    rows : Drawn
        Its frame holds the given columns at least.
    labels : tuple
        Which columns are given.
    """

    rows: Drawn
    labels: tuple[Any, ...]


class _Started:
    """A way from starts that are known; otherwise the way that it is made of."""

    def __init__(self, sampler: Sampler, state: State) -> None:
        self._sampler, self._state = sampler, state

    def start(self, _n: int, _noise: Noise) -> State:
        return self._state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _from(state: State, sampler: Sampler) -> Sampler:
    return cast(Sampler, _Started(sampler, state))


@dataclass(frozen=True, eq=False)
class Source:
    """What rows are drawn from.

    Parameters
    ----------
    backbone : Backbone
        On `device`.
    codec : Codec
    settings : Settings
    device : torch.device
    seed : int
    """

    backbone: Backbone
    codec: Codec
    settings: Settings
    device: torch.device
    seed: int

    def features(self, labels: tuple[Any, ...]) -> BoolArray:
        """Return which features [d] encode the columns of these labels."""
        names = set()
        for column in self.codec.schema:
            if column.label in labels:
                names |= {column.name, gate_name(column)}
        return np.isin(self.codec.layout.names, sorted(names))

    def constant(self, values: Mapping[Any, Any], n: int) -> Given:
        """Return `n` rows in which some columns have one value each."""
        every = {
            column.label: [values.get(column.label)] for column in self.codec.schema
        }
        table = self.codec.encode(pd.DataFrame(every, dtype=object))
        frame = pd.DataFrame({label: [value] * n for label, value in values.items()})
        rows = Drawn(np.repeat(table.num, n, 0), np.repeat(table.cat, n, 0), frame)
        return Given(rows, tuple(values))

    @property
    def screens(self) -> bool:
        """Whether starts can be screened, and it is worth it."""
        steps = self.settings.sampling_steps
        if self._quick_steps > steps // 2 or not hasattr(self.backbone, "sampler"):
            return False
        return hasattr(self._sampler(steps), "drawn_at_start")

    def _sampler(self, steps: int, solver: str = "") -> Sampler:
        backbone: Any = self.backbone
        sampler: Sampler = backbone.sampler(steps, solver or backbone.solvers[0])
        return sampler

    def _inpainting_sampler(self) -> Sampler:
        backbone: Any = self.backbone
        if not self.screens:
            return inpainting_sampler(backbone)
        steps, solver, *_ = backbone.inpaint_config
        return self._sampler(-(-2 * steps // 3), solver)

    @property
    def _quick_steps(self) -> int:
        wanted = round(QUICK * self.settings.sampling_steps)
        return min(max(wanted, LEAST_QUICK), MOST_QUICK)

    @property
    def screening_cost(self) -> float:
        """What a screened start costs, as a share of a whole row."""
        return (self._quick_steps + 1) / (self.settings.sampling_steps + 1)

    def generator(self, *name: str | int) -> torch.Generator:
        """Return the random stream of that name."""
        generator = torch.Generator(self.device)
        return generator.manual_seed(stream_seed(self.seed, "sample", *name))

    def screen(
        self,
        n: int,
        most: int,
        name: str,
        wanted: Callable[[pd.DataFrame], BoolArray],
    ) -> tuple[int, Drawn]:
        """Draw `n` starts and follow those that promise wanted rows.

        Returns
        -------
        promising : int
            How many do.
        rows : Drawn
            Of at most `most` of them, wanted or not.
        """
        settings = self.settings
        # of the solvers the last needs the fewest steps
        backbone: Any = self.backbone
        quick = self._sampler(self._quick_steps, backbone.solvers[-1])
        whole = self._sampler(settings.sampling_steps, settings.solver)
        generator = self.generator(name)
        with fast_matmul(self.device):
            with torch.no_grad():
                starts = whole.start(n, generator)
            rows = self._drawn(run_sampler(_from(starts, quick), n, generator), name)
            good = np.flatnonzero(wanted(rows.frame))
            if not len(good):
                return 0, rows.taken(good)
            kept = torch.as_tensor(good[:most], device=self.device)
            taken = tuple(part[kept] for part in starts)
            # of an ensemble, a start leads there with the member that has screened it
            same: Any = whole
            same = same.chosen(kept) if hasattr(same, "chosen") else same
            batch = run_sampler(_from(taken, same), len(kept), generator)
        return len(good), self._drawn(batch, name)

    def _drawn(self, batch: Batch, name: str) -> Drawn:
        num, cat = batch.num.double().cpu().numpy(), batch.cat.int().cpu().numpy()
        return Drawn(num, cat, self.decoded(num, cat, 0, name))

    def decoded(
        self, num: FloatArray, cat: CodeArray, start: int, *name: str | int
    ) -> pd.DataFrame:
        """Return rows from number `start` on as a frame, by the stream of that name."""
        return self.codec.decode(num, cat, stream(self.seed, "decode", *name), start)

    def batches(self, n: int, progress: Progress) -> Iterator[Rows]:
        """Yield `n` plain rows, still encoded."""
        return draw_batches(
            self.backbone, n, self.seed, self.settings, self.device, progress
        )

    def frame_of(self, rows: Rows) -> pd.DataFrame:
        """Decode rows of `batches`."""
        return self.decoded(rows.num, rows.cat, rows.start, rows.start)

    def draw(self, n: int, name: str, given: Given | None = None) -> Drawn:
        """Draw `n` rows from the random stream of that name."""
        size = self.settings.sampling_batch
        num = np.empty((n, self.codec.layout.n_num))
        cat = np.empty((n, self.codec.layout.n_cat), np.int32)
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            num[part], cat[part] = self._batch(part, name, given)
        if given is not None:
            # The reverse process ends near the given cells; these are the very ones.
            known = self.features(given.labels)
            known_num, known_cat = np.split(known, [self.codec.layout.n_num])
            num[:, known_num] = given.rows.num[:, known_num]
            cat[:, known_cat] = given.rows.cat[:, known_cat]
        frame = self.decoded(num, cat, 0, name)
        if given is not None:
            for label in given.labels:
                kind = frame[label].dtype
                frame[label] = given.rows.frame[label].astype(kind)
        return Drawn(num, cat, frame)

    def _batch(
        self, part: slice, name: str, given: Given | None
    ) -> tuple[FloatArray, CodeArray]:
        n, generator = part.stop - part.start, self.generator(name, part.start)
        if given is None:
            return sample_batch(self.backbone, n, generator, self.settings)
        num, cat, _ = complete_rows(
            self.backbone,
            given.rows.num[part],
            given.rows.cat[part],
            np.tile(self.features(given.labels), (n, 1)),
            generator,
            self._inpainting_sampler(),
            ROUNDS,
        )
        return num, cat
