"""Complete rows of which some cells are known, whichever they are in each row.

What `diffusion.reverse` does to known cells was chosen by measuring alternatives on
Magic with 30 % of all cells removed at random (CDTD, preset `fast`, 5,000 rows learned,
1,000 or 1,500 filled by 10 draws each; scaled columns): the error of the mean of the
draws over that of a boosted regression of every column (`lgbm-d`), how often an
interval of 90 % covers the removed number, the variance of draws over that of the
removed numbers, and network calls. If that regression were the true mean, the mean of
ten exact draws would be at 1.05.

    | | error | covers | variance | calls |
    |---|---|---|---|---|
    | fresh noise on known cells, each step once | 1.16 | .93 | .81 | 41 |
    | fresh noise, each step six times | 1.03 | .88 | .94 | 121 |
    | no noise on known cells, middle steps three times | 1.06 | .92 | .90 | 67 |
    | noise that is found (here), middle steps three times | 1.04 | .92 | .96 | 67 |

On Adult (mixed kinds, weak dependence) the last line reads 1.06, .90, 1.03; noise that
may go farther (3 instead of 0.75) reads 1.16, .83, 1.42 there.

For TabDDPM it was looked at again with longer trained models (preset `balanced`,
batches of 4,096, H200) and all rows of whole tables: error, covers and variance as
above, and the accuracy of categories over that of `lgbm-d`; MCAR, and MAR below it.

    | rounds, levels | Adult | Magic | Beijing | calls |
    |---|---|---|---|---|
    | 20, 0.1 to 0.5 | 1.02 .93 .96 .99 | 1.01 .92 1.01 1.01 | .99 .94 1.30 .97 | 192 |
    | | 1.01 .93 .98 .99 | .98 .92 .99 1.01 | .96 .94 1.32 1.00 | |
    | 16, 0.2 to 0.8 | 1.02 .93 .95 .99 | 1.01 .93 1.00 1.01 | 1.00 .94 1.10 .97 | 220 |
    | | 1.01 .93 .96 .99 | .98 .92 .99 1.01 | .97 .94 1.19 .99 | |
    | 8, 0.2 to 1.0 | 1.02 .93 .95 .99 | 1.01 .93 .99 1.01 | 1.00 .94 1.06 .96 | 138 |
    | | 1.02 .93 .95 .99 | .99 .92 .98 1.01 | .98 .94 1.14 .99 | |

The last is taken: it costs least, and its spread is the least wrong. After the 2,000
steps of `fast` it is as good as the one before (2,000 rows of Adult and of Beijing).
More rounds at low levels bring out what is wrong with the network there: the spread of
Beijing's snow, which falls in 0.9 % of the hours. CDTD did not gain by other rounds
than the first table's.

All of these covered too often. How much noise is fresh in TabDDPM's steps, see
`diffusion.tabddpm_back`, was looked at then (MCAR, 8,000 rows; covers is for intervals
with two equal tails of 20 draws, and the variance that of completed columns):

    | fresh noise | Adult | Magic | Beijing |
    |---|---|---|---|
    | as published | 1.03 .94 .99 .99 | 1.01 .92 1.00 1.02 | 1.00 .94 1.03 1.00 |
    | half of the way | 1.02 .93 .96 .99 | 1.01 .90 .99 1.01 | .99 .93 .99 1.00 |
    | as if x_0 were known | 1.02 .92 .94 .99 | 1.00 .88 .98 1.02 | .99 .92 .96 .99 |
    | none (`ddim`) | 1.03 .94 .96 .99 | 1.02 .90 .98 1.01 | 1.01 .93 .98 .99 |

Longer trained, on cells that another seed had removed, half of the way left completed
columns of Adult MAR .945 of their variance and covered .923 in Beijing MCAR; two thirds
.956 and .927, three quarters .961 and .929. Two thirds is what `interpolated_variance` takes.

These are trials, whose scripts were not kept, and settings were chosen on these very
cells; docs/impute.md has fresh ones, and the command that gives them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch

from augmask.device import fast_matmul
from augmask.diffusion.base import Backbone, Batch
from augmask.diffusion.sampling import Known, Sampler, inpaint, inpainting_sampler
from augmask.table.table import BoolArray, CodeArray, FloatArray


class Completed(NamedTuple):
    """Rows without unknown cells, and what the network took categories to be.

    `class_probs` [n, S] has a weight for every level of every category, not divided by the
    sum over a category's levels; [n, 0] if it was not asked for.
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
    believe: bool = False,
) -> Completed:
    """Return the rows with unknown cells drawn given the known ones.

    Parameters
    ----------
    backbone : Backbone
        On the device of the generator.
    num, cat : float array [n, d_num], int array [n, d_cat]
        Scaled numbers and codes. Unknown cells hold any finite number or legal code.
    known : bool array [n, d]
        Columns as in the layout: numeric, then categorical.
    generator : torch.Generator
    way : Way, optional
        Instead of the one for known cells.
    rounds : int, optional
        How often each step at a middle level is taken, if not as `inpaint_config` says.
    believe : bool
        Whether to collect beliefs.
    """
    device, n_num = generator.device, num.shape[1]
    dtype = next(iter(backbone.parameters())).dtype
    mask = torch.as_tensor(known, device=device)
    batch = Batch(
        torch.as_tensor(num, dtype=dtype, device=device),
        torch.as_tensor(cat, dtype=torch.long, device=device),
    )
    sampler = sampler or inpainting_sampler(backbone)
    guide = cast(Any, backbone).inpaint_config
    cells = Known(
        batch,
        mask[:, :n_num],
        mask[:, n_num:],
        guide.rounds if rounds is None else rounds,
        guide.repeated,
        believe,
    )
    with fast_matmul(device):
        rows, class_probs = inpaint(sampler, generator, cells)
    return Completed(
        rows.num.double().cpu().numpy(),
        rows.cat.int().cpu().numpy(),
        class_probs.float().cpu().numpy(),
    )
