from __future__ import annotations

import pandas as pd

from augmask.report.plots_curves import training_figure


def test_both_losses_fill_their_own_panel_the_held_out_one_above():
    history = pd.DataFrame(
        {
            "step": [1.0, 2.0, 3.0, 4.0],
            "loss": [5.0, 4.0, 5.0, 4.5],
            "held_out": [0.60, None, None, 0.58],
        }
    )
    panels = training_figure(history, 4).axes
    above, below = sorted(panels, key=lambda ax: -ax.get_position().y0)
    for ax, values in ((above, (0.58, 0.60)), (below, (4.0, 5.0))):
        low, high = ax.get_ylim()
        assert low < values[0]
        assert high > values[1]
        # A common scale would press the held-out curve into a line.
        assert (values[1] - values[0]) / (high - low) > 0.7
    assert above.get_xlim() == below.get_xlim()


def test_without_held_out_cells_there_is_one_panel():
    history = pd.DataFrame({"step": [1.0, 2.0], "loss": [2.0, 1.0], "held_out": None})
    assert len(training_figure(history, None).axes) == 1
