"""Figures of the attacks, printed at the end; what cannot be repeated is shown."""

from __future__ import annotations

from .budget import FIGURES


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("attacks")
    for part, figures in FIGURES.items():
        told = ", ".join(f"{name} {value}" for name, value in figures.items())
        terminalreporter.write_line(f"{part}: {told}")
