"""A user's backbone that follows `ConditionalBackbone` imputes and takes conditions.

The classes are those of docs/your-own-backbone.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from augmask import AugMask
from augmask.diffusion import build_members
from augmask.diffusion.base import Batch, ConditionalBackbone
from augmask.diffusion.sampling import (
    InpaintConfig,
    InpaintTask,
    Sampler,
    inpaint,
    inpainting_sampler,
    run_sampler,
)
from augmask.table.table import Layout

PAGE = Path(__file__).parents[2] / "docs" / "your-own-backbone.md"
SMALL = {"steps": 8, "warmup": 2, "batch_size": 32, "sampling_steps": 6, "width": 8}


def documented_classes() -> dict:
    """Run the page's imports and classes, but none of its fits."""
    text = PAGE.read_text().split("## Let it impute")[1].split("conditional = ")[0]
    blocks = text.split("```python\n")[1:]
    imports = (
        "import torch\nfrom torch import nn\n"
        "from torch.nn.functional import cross_entropy\n"
        "from augmask.diffusion.base import Batch, CellLoss\n"
    )
    names: dict = {"__name__": "page"}
    exec(imports + "\n".join(block.split("```")[0] for block in blocks), names)
    return names


NAMES = documented_classes()
OneHotEDM = NAMES["OneHotEDM"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def members_of(protocol: type) -> set[str]:
    own = set(vars(protocol)) | set(protocol.__annotations__)
    return {name for name in own if not name.startswith("_")}


def test_it_has_what_the_protocols_list_and_no_more_is_needed():
    model = OneHotEDM(Layout(("x",), ("c",), (3,)), width=4)
    assert members_of(ConditionalBackbone) == {"solvers", "inpaint_config", "sampler"}
    for protocol, value in (
        (ConditionalBackbone, model),
        (Sampler, model.sampler(5, "euler")),
    ):
        assert not [name for name in members_of(protocol) if not hasattr(value, name)]
    assert isinstance(model.inpaint_config, InpaintConfig)


@pytest.mark.parametrize("ensemble", [1, 2])
@pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")
def test_it_imputes_and_samples_with_conditions(ensemble):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=120), "y": rng.normal(size=120), "c": list("abc") * 40}
    )
    missing = rng.random(frame.shape) < 0.3
    incomplete = frame.mask(missing)
    model = AugMask(
        OneHotEDM, "ecdf", options=SMALL, ensemble=ensemble, device="cpu"
    ).fit(incomplete)
    completed = model.impute(incomplete, seed=1)
    assert not completed.isna().any(axis=None)
    for name in frame:
        observed = incomplete[name].notna()
        assert (completed[name][observed] == incomplete[name][observed]).all()
    rows = model.sample(30, seed=1, where={"c": "b"})
    assert (rows["c"] == "b").all()
    pd.testing.assert_frame_equal(rows, model.sample(30, seed=1, where={"c": "b"}))


def test_members_of_an_ensemble_keep_the_users_state_type():
    layout = Layout(("x",), ("c",), (3,))
    _, both = build_members(OneHotEDM, layout, [1, 2], width=4)
    sampler = both.sampler(4, "euler")
    state = sampler.step(sampler.start(5, seeded()), torch.tensor(0), seeded())
    assert type(state) is NAMES["OneHotState"]
    assert run_sampler(sampler, 5, seeded()).num.shape == (5, 1)


def test_unknown_numbers_have_the_conditional_distribution_of_an_exact_denoiser():
    """Two standard normal columns with correlation 0.8, the first one known."""
    model = OneHotEDM(Layout(("x", "y"), (), ()), width=4).double()
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)
    unit = torch.eye(2, dtype=torch.float64)

    def exact(x, sigma):
        noisy = covariance + sigma.squeeze() ** 2 * unit
        return x @ torch.linalg.solve(noisy, covariance), []

    model.denoise = exact
    n, config = 4000, model.inpaint_config[2:]
    first = torch.randn(n, generator=seeded(5), dtype=torch.float64)
    batch = Batch(
        torch.stack([first, torch.zeros_like(first)], 1), torch.zeros(n, 0).long()
    )
    mask = torch.tensor([[True, False]]).expand(n, 2)
    known = InpaintTask(batch, mask, torch.zeros(n, 0, dtype=torch.bool), *config)
    sampler = inpainting_sampler(model)
    sampler.sigma = sampler.sigma.double()
    rows, _ = inpaint(sampler, seeded(), known)
    assert torch.equal(rows.num[:, 0], first)
    error = rows.num[:, 1] - 0.8 * first
    assert error.mean().item() == pytest.approx(0, abs=4 * 0.6 / n**0.5)
    assert error.std().item() == pytest.approx(0.6, rel=0.1)
    slope = (rows.num[:, 1] @ first / (first @ first)).item()
    # with RePaint's random noise on known cells it is 0.63
    assert slope == pytest.approx(0.8, abs=0.1)
