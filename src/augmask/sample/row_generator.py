"""`RowGenerator`: rows from a trained denoiser, unconditional or given some cells.

Rows come in batches, each with its own random stream. Given known cells, the reverse
process inpaints the others: the noise of known cells is estimated rather than drawn
(see `augmask.diffusion.sampling`), which on Magic at MCAR 0.3 gave the best spread of
the alternatives tried (docs/impute.md, "Research notes").

Where a sampler draws all its noise at the start, a few coarse steps predict the row
that an initial noise leads to. Initial noise can then be screened at a fraction of the
cost, and only promising ones are denoised in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from augmask.config import Settings
from augmask.device import allow_tf32, uses_bf16
from augmask.diffusion.base import Backbone, Batch
from augmask.diffusion.compiled import CompiledSampler
from augmask.diffusion.nets import bf16_matmul
from augmask.diffusion.random_draws import RNG
from augmask.diffusion.sampling import (
    InpaintTask,
    Sampler,
    State,
    inpaint,
    inpainting_sampler,
    run_sampler,
)
from augmask.progress import Progress, silent
from augmask.rng import stream, stream_seed
from augmask.table.codec import Codec, indicator_name
from augmask.table.table import BoolArray, CodeArray, FloatArray

# Resampling rounds around known columns: one came closest to the true conditional
# distribution (on Adult, one category known; 3 rounds were worse).
CONDITION_ROUNDS = 1
# Steps of a screening run: a share of all, within bounds.
SCREEN_SHARE, MIN_SCREEN_STEPS, MAX_SCREEN_STEPS = 0.1, 4, 8


# -- batches of encoded rows -------------------------------------------------------


class RowBatch(NamedTuple):
    """Encoded rows; `start` is the number of the first."""

    start: int
    num: FloatArray
    cat: CodeArray


def generate_batches(
    backbone: Backbone,
    n: int,
    seed: int,
    settings: Settings,
    device: torch.device,
    progress: Progress = silent,
) -> Iterator[RowBatch]:
    """Yield `n` rows in batches of `settings.sampling_batch`.

    Memory does not depend on `n`, and a full batch does not change when `n` grows,
    because each batch has its own random stream.
    """
    size = settings.sampling_batch
    compiled = None
    if settings.compiled_sampling(device.type, n):
        compiled = _compiled_sampler(backbone, settings)
    for batch, start in enumerate(range(0, n, size)):
        rows = min(size, n - start)
        generator = torch.Generator(device)
        generator.manual_seed(stream_seed(seed, "sample", batch))
        # A shorter last batch is not worth another compilation.
        sampler = compiled if rows == size else None
        num, cat = sample_batch(backbone, rows, generator, settings, sampler)
        progress("sample", start + rows, n, {})
        yield RowBatch(start, num, cat)


def sample_batch(
    backbone: Any,
    rows: int,
    generator: torch.Generator,
    settings: Settings,
    sampler: Sampler | None = None,
) -> tuple[FloatArray, CodeArray]:
    """Return rows from the backbone's `sample`, or from `sampler` if there is one."""
    device = generator.device
    bf16 = uses_bf16(settings.matmul_precision, device)
    with allow_tf32(device), bf16_matmul(backbone, bf16):
        if sampler is None:
            solver = {"solver": settings.solver} if settings.solver else {}
            steps = settings.sampling_steps
            num, cat = backbone.sample(rows, generator, steps=steps, **solver)
        else:
            num, cat = run_sampler(sampler, rows, generator)
    return num.double().cpu().numpy(), cat.int().cpu().numpy()


@torch.no_grad()
def _compiled_sampler(backbone: Any, settings: Settings) -> Sampler | None:
    if not hasattr(backbone, "sampler"):
        return None
    solver = settings.solver or backbone.solvers[0]
    return cast(
        Sampler, CompiledSampler(backbone.sampler(settings.sampling_steps, solver))
    )


# -- inpainting --------------------------------------------------------------------


class CompletedRows(NamedTuple):
    """Complete encoded rows and the class probabilities of the network.

    `class_probs` [n, S] has one unnormalised weight per level of every category; [n, 0]
    if it was not requested.
    """

    num: FloatArray
    cat: CodeArray
    class_probs: npt.NDArray[np.float32]


def complete_rows(
    backbone: Backbone,
    num: FloatArray,
    cat: CodeArray,
    known: BoolArray,
    generator: torch.Generator,
    sampler: Sampler | None = None,
    rounds: int | None = None,
    class_probs: bool = False,
) -> CompletedRows:
    """Draw the unknown cells of rows given the known ones.

    Parameters
    ----------
    backbone : Backbone
        On the device of the generator.
    num, cat : float array [n, d_num], int array [n, d_cat]
        Scaled numbers and codes. Unknown cells have any finite number or valid code.
    known : bool array [n, d]
        Columns as in the layout: numeric, then categorical.
    generator : torch.Generator
    sampler : Sampler, optional
        Instead of the backbone's inpainting sampler.
    rounds : int, optional
        Resampling rounds at middle noise levels, instead of `inpaint_config.rounds`.
    class_probs : bool
        Whether to collect class probabilities.
    """
    device, n_num = generator.device, num.shape[1]
    dtype = next(iter(backbone.parameters())).dtype
    mask = torch.as_tensor(known, device=device)
    batch = Batch(
        torch.as_tensor(num, dtype=dtype, device=device),
        torch.as_tensor(cat, dtype=torch.long, device=device),
    )
    sampler = sampler or inpainting_sampler(backbone)
    config = cast(Any, backbone).inpaint_config
    cells = InpaintTask(
        batch,
        mask[:, :n_num],
        mask[:, n_num:],
        config.rounds if rounds is None else rounds,
        config.resample_sigmas,
        class_probs,
    )
    with allow_tf32(device):
        rows, probs = inpaint(sampler, generator, cells)
    return CompletedRows(
        rows.num.double().cpu().numpy(),
        rows.cat.int().cpu().numpy(),
        probs.float().cpu().numpy(),
    )


# -- the generator -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows, encoded and as a frame."""

    num: FloatArray
    cat: CodeArray
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def select(self, rows: np.ndarray) -> EncodedRows:
        """Return some of the rows, by mask or by position."""
        frame = self.frame[rows] if rows.dtype == bool else self.frame.iloc[rows]
        return EncodedRows(self.num[rows], self.cat[rows], frame.reset_index(drop=True))

    @classmethod
    def concat(cls, parts: list[EncodedRows]) -> EncodedRows:
        """Return the rows of all parts."""
        return cls(
            np.concatenate([part.num for part in parts]),
            np.concatenate([part.cat for part in parts]),
            pd.concat([part.frame for part in parts], ignore_index=True),
        )


class KnownCells(NamedTuple):
    """Rows in which the columns `labels` are known; the other cells are ignored."""

    rows: EncodedRows
    labels: tuple[Any, ...]


class _FixedStart:
    """A sampler that starts from a given state instead of fresh noise."""

    def __init__(self, sampler: Sampler, state: State) -> None:
        self._sampler, self._state = sampler, state

    def start(self, _n: int, _noise: RNG) -> State:
        return self._state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _starting_at(state: State, sampler: Sampler) -> Sampler:
    return cast(Sampler, _FixedStart(sampler, state))


@dataclass(frozen=True, eq=False)
class RowGenerator:
    """Generates rows from a trained backbone.

    Parameters
    ----------
    backbone : Backbone
        On `device`.
    codec : Codec
    settings : Settings
    device : torch.device
    seed : int
    first : int, default 0
        Number of the first row in the entire output, for identifiers.
    """

    backbone: Backbone
    codec: Codec
    settings: Settings
    device: torch.device
    seed: int
    first: int = 0

    def features(self, labels: tuple[Any, ...]) -> BoolArray:
        """Return which features [d] encode the columns of these labels."""
        names = set()
        for column in self.codec.schema:
            if column.label in labels:
                names |= {column.name, indicator_name(column)}
        return np.isin(self.codec.layout.names, sorted(names))

    def constant(self, values: Mapping[Any, Any], n: int) -> KnownCells:
        """Return `n` rows in which some columns have one known value each."""
        cells = {
            column.label: [values.get(column.label)] for column in self.codec.schema
        }
        table = self.codec.encode(pd.DataFrame(cells, dtype=object))
        frame = pd.DataFrame({label: [value] * n for label, value in values.items()})
        num, cat = np.repeat(table.num, n, 0), np.repeat(table.cat, n, 0)
        return KnownCells(EncodedRows(num, cat, frame), tuple(values))

    def random_stream(self, *name: str | int) -> torch.Generator:
        """Return the random stream of that name."""
        generator = torch.Generator(self.device)
        return generator.manual_seed(stream_seed(self.seed, "sample", *name))

    def decode(
        self, num: FloatArray, cat: CodeArray, start: int, *name: str | int
    ) -> pd.DataFrame:
        """Return rows as a frame; `start` counts from the first of this generator."""
        rng = stream(self.seed, "decode", *name)
        return self.codec.decode(num, cat, rng, self.first + start)

    def batches(self, n: int, progress: Progress) -> Iterator[RowBatch]:
        """Yield `n` unconditional rows, encoded."""
        return generate_batches(
            self.backbone, n, self.seed, self.settings, self.device, progress
        )

    def decode_batch(self, batch: RowBatch) -> pd.DataFrame:
        """Decode a batch of `batches`."""
        return self.decode(batch.num, batch.cat, batch.start, batch.start)

    def generate(
        self, n: int, name: str, known: KnownCells | None = None
    ) -> EncodedRows:
        """Generate `n` rows from the random stream of that name."""
        size = self.settings.sampling_batch
        num = np.empty((n, self.codec.layout.n_num))
        cat = np.empty((n, self.codec.layout.n_cat), np.int32)
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            num[part], cat[part] = self._generate_part(part, name, known)
        if known is None:
            return EncodedRows(num, cat, self.decode(num, cat, 0, name))
        # The reverse process ends near the known cells; restore their exact values.
        num_known, cat_known = np.split(
            self.features(known.labels), [self.codec.layout.n_num]
        )
        num[:, num_known] = known.rows.num[:, num_known]
        cat[:, cat_known] = known.rows.cat[:, cat_known]
        frame = self.decode(num, cat, 0, name)
        for label in known.labels:
            frame[label] = known.rows.frame[label].astype(frame[label].dtype)
        return EncodedRows(num, cat, frame)

    def _generate_part(
        self, part: slice, name: str, known: KnownCells | None
    ) -> tuple[FloatArray, CodeArray]:
        n, generator = part.stop - part.start, self.random_stream(name, part.start)
        if known is None:
            return sample_batch(self.backbone, n, generator, self.settings)
        num, cat, _ = complete_rows(
            self.backbone,
            known.rows.num[part],
            known.rows.cat[part],
            np.tile(self.features(known.labels), (n, 1)),
            generator,
            self._inpainting_sampler(),
            CONDITION_ROUNDS,
        )
        return num, cat

    # -- screening -------------------------------------------------------------

    @property
    def can_screen(self) -> bool:
        """Whether initial noise decides the row and screening saves steps."""
        steps = self.settings.sampling_steps
        if self._screen_steps > steps // 2 or not hasattr(self.backbone, "sampler"):
            return False
        return bool(getattr(self._sampler(steps), "deterministic", False))

    @property
    def screening_cost(self) -> float:
        """The cost of screening an initial noise, as a share of a full row."""
        return (self._screen_steps + 1) / (self.settings.sampling_steps + 1)

    @property
    def _screen_steps(self) -> int:
        steps = round(SCREEN_SHARE * self.settings.sampling_steps)
        return min(max(steps, MIN_SCREEN_STEPS), MAX_SCREEN_STEPS)

    def _sampler(self, steps: int, solver: str = "") -> Sampler:
        backbone: Any = self.backbone
        sampler: Sampler = backbone.sampler(steps, solver or backbone.solvers[0])
        return sampler

    def _inpainting_sampler(self) -> Sampler:
        backbone: Any = self.backbone
        if not self.can_screen:
            return inpainting_sampler(backbone)
        # Without noise along the way, two thirds of the steps gave the same rows.
        steps, solver, *_ = backbone.inpaint_config
        return self._sampler(-(-2 * steps // 3), solver)

    def screen(
        self,
        n: int,
        max_rows: int,
        name: str,
        accept: Callable[[pd.DataFrame], BoolArray],
    ) -> tuple[int, EncodedRows]:
        """Screen `n` initial noises and denoise those predicted to be accepted.

        Returns
        -------
        promising : int
            How many initial noises are predicted to give accepted rows.
        rows : EncodedRows
            Rows of at most `max_rows` of them, accepted or not.
        """
        settings = self.settings
        # The last of the solvers needs the fewest steps.
        backbone: Any = self.backbone
        coarse = self._sampler(self._screen_steps, backbone.solvers[-1])
        full: Any = self._sampler(settings.sampling_steps, settings.solver)
        generator = self.random_stream(name)
        with allow_tf32(self.device):
            with torch.no_grad():
                noise = full.start(n, generator)
            batch = run_sampler(_starting_at(noise, coarse), n, generator)
            rows = self._decode_torch(batch, name)
            promising = np.flatnonzero(accept(rows.frame))
            if not len(promising):
                return 0, rows.select(promising)
            index = torch.as_tensor(promising[:max_rows], device=self.device)
            noise = type(noise)(*(part[index] for part in noise))
            # In an ensemble, the member that screened a noise also denoises it.
            full = full.for_rows(index) if hasattr(full, "for_rows") else full
            batch = run_sampler(_starting_at(noise, full), len(index), generator)
        return len(promising), self._decode_torch(batch, name)

    def _decode_torch(self, batch: Batch, name: str) -> EncodedRows:
        num, cat = batch.num.double().cpu().numpy(), batch.cat.int().cpu().numpy()
        return EncodedRows(num, cat, self.decode(num, cat, 0, name))
