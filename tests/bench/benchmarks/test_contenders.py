"""What the speed benchmark times is what it says."""

from __future__ import annotations

import itertools
import time

import pandas as pd
import torch
from contenders import CARDS, Clock, Fitted, Stepping, adult_like, prepared_fit


def test_the_made_table_has_the_shape_of_adult_and_depends_on_its_seed_alone():
    frame = adult_like(500, seed=3)
    assert tuple(frame.filter(like="c").nunique()) == CARDS
    assert frame.filter(like="x").shape == (500, 6)
    pd.testing.assert_frame_equal(frame, adult_like(500, seed=3))
    assert not frame.equals(adult_like(500, seed=4))


def test_the_cpu_clock_stands_still_while_the_process_sleeps():
    clock = Clock()
    clock.on_wall = False
    before = clock()
    time.sleep(0.3)
    assert clock() - before < 0.2


def test_only_whole_passes_are_timed():
    taken = itertools.count()
    run = Stepping((None for _ in taken), torch.device("cpu"), whole=7)
    rate = run(0.02)
    assert next(taken) % 7 == 0
    assert rate > 0


def test_our_training_goes_on_between_two_turns():
    options = {"batch_size": 16, "width": 8, "depth": 1, "time_width": 8}
    ready = prepared_fit("tabddpm", adult_like(200), options, "cpu")
    ours = Fitted(ready)
    ours.warm_up()
    first = ready.trainer.steps_done
    assert first >= 60
    assert ours(0.05) > 0
    assert ready.trainer.steps_done > first
