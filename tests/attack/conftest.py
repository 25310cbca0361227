"""Print the figures of the attacks at the end."""

from __future__ import annotations

from .budget import FIGURES


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("attacks")
    for part, figures in FIGURES.items():
        text = ", ".join(f"{name} {value}" for name, value in figures.items())
        terminalreporter.write_line(f"{part}: {text}")
