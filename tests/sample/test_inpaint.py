from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.diffusion import BACKBONES, build_backbone
from augmask.presets import OWN
from augmask.sample.inpaint import complete_rows


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_ten_thousand_patterns_go_at_once(make_table, backbone, monkeypatch):
    table = make_table(n=300, n_num=6, cards=(2, 3, 4, 2, 2, 3))
    model = build_backbone(backbone, table.layout, 0, width=8, depth=1, time_width=4)
    model.init_from_data(table)
    assert len(np.unique(table.observed, axis=0)) > 250
    calls, name = [], "_predict" if backbone == "tabddpm" else "_denoise"
    inner = getattr(model, name)
    monkeypatch.setattr(
        model, name, lambda x, *a: (calls.append(len(x)), inner(x, *a))[1]
    )
    num, cat, _ = complete_rows(
        model, table.num, table.cat, table.observed, torch.Generator().manual_seed(0)
    )
    # one pass for all of them, in fewer calls than three samplings
    assert set(calls) == {300}
    assert len(calls) < 3 * OWN["fast"][backbone]["sampling_steps"]
    seen_num, seen_cat = table.num_observed, table.cat_observed
    np.testing.assert_array_equal(num[seen_num], table.num[seen_num].astype("f4"))
    np.testing.assert_array_equal(cat[seen_cat], table.cat[seen_cat])
    assert np.isfinite(num).all()
