"""Figures of a grid, each drawn from the table of results by name.

A figure is a module with two functions: ``needs(results)`` returns one sentence why it
cannot be drawn from this table, "" if it can; ``draw(results, out)`` returns a
matplotlib `Figure`, where `out` is the folder of the grid, for figures of kept rows.
"""

from __future__ import annotations

from types import ModuleType

from augmask_bench.figures import (
    augmentation_rules,
    cache,
    cost,
    cost_quality,
    critical_difference,
    fidelity,
    misspecification,
    ranks_map,
    robustness,
    umap_density,
)

FIGURES: dict[str, ModuleType] = {
    "ranks": ranks_map,
    "critical-difference": critical_difference,
    "robustness": robustness,
    "cost-quality": cost_quality,
    "augmentation-rules": augmentation_rules,
    "misspecification": misspecification,
    "fidelity": fidelity,
    "umap": umap_density,
    "augmentation-cost": cost,
    "cache": cache,
}
