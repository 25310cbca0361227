"""Figures of a grid, drawn from the table of results.

A figure is a module with two functions: ``needs(results)`` returns in one sentence why
it cannot be drawn from these results, or an empty text; ``draw(results, out)`` returns
a matplotlib `Figure`. `out` is the folder of the grid, for figures of kept rows.
"""

from __future__ import annotations

from types import ModuleType

from augmask_bench.figures import (
    augmentation_cost,
    augmenters,
    completions,
    cost_quality,
    critical_difference,
    fidelity,
    misspecification,
    preprocessing,
    ranks_map,
    robustness,
    toy,
    umap,
)

FIGURES: dict[str, ModuleType] = {
    "ranks": ranks_map,
    "critical-difference": critical_difference,
    "robustness": robustness,
    "cost-quality": cost_quality,
    "augmenters": augmenters,
    "misspecification": misspecification,
    "fidelity": fidelity,
    "umap": umap,
    "augmentation-cost": augmentation_cost,
    "completions": completions,
    "preprocessing": preprocessing,
    "toy": toy,
}
