"""Progress callbacks: silent, JSON lines, a bar in a terminal or a notebook.

A callback is called as `progress(phase, done, total, numbers)`. `phase` is a word
("augment", "train", "sample"), and `numbers` holds values to show beside the bar, such
as the loss. It runs on the thread that does the work, so it should return quickly.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from html import escape
from types import TracebackType
from typing import IO, Any

Progress = Callable[[str, int, int, Mapping[str, float]], None]


def silent(phase: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
    """Report nothing."""


def _beside(numbers: Mapping[str, float]) -> str:
    """Return the text beside a bar."""
    return "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())


class _RateLimit:
    """At most `per_second` reports a second, except for the last of a phase."""

    def __init__(self, per_second: float) -> None:
        self.interval = 1.0 / per_second
        self._next = 0.0

    def due(self, done: int, total: int) -> bool:
        """Whether to report now."""
        now = time.monotonic()
        if now < self._next and done < total:
            return False
        self._next = now + self.interval
        return True


class JsonLines:
    r"""Write each report as a JSON object, at most `per_second` of them a second.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO()
    >>> JsonLines(stream)("train", 1, 10, {"loss": 0.5})
    >>> stream.getvalue()
    '{"phase": "train", "done": 1, "total": 10, "loss": 0.5}\n'
    """

    def __init__(self, stream: IO[str], per_second: float = 5.0) -> None:
        self.stream = stream
        self._limit = _RateLimit(per_second)

    def __call__(
        self, phase: str, done: int, total: int, numbers: Mapping[str, float]
    ) -> None:
        """Write the report unless the last one was a moment ago."""
        if not self._limit.due(done, total):
            return
        report = {"phase": phase, "done": done, "total": total, **numbers}
        self.stream.write(json.dumps(report) + "\n")
        self.stream.flush()


class TerminalBar:
    """A bar per phase on standard error: rate, numbers, time left.

    Use it as a context manager, which restores the terminal at the end, also after an
    error.
    """

    def __init__(self) -> None:
        # importing rich takes a tenth of a second
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, Any] = {}
        self._started: dict[str, tuple[float, int]] = {}

    def __enter__(self) -> TerminalBar:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(
        self, phase: str, done: int, total: int, numbers: Mapping[str, float]
    ) -> None:
        """Move the bar of `phase`, which appears on the first report."""
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(
                phase, total=total, rate="", numbers=""
            )
            self._started[phase] = (time.monotonic(), done)
        began, first = self._started[phase]
        seconds = time.monotonic() - began
        self._bars.update(
            self._tasks[phase],
            completed=done,
            total=total,
            rate=f"{(done - first) / seconds:,.0f}/s" if seconds > 0.5 else "",
            numbers=_beside(numbers),
        )


class NotebookBar:
    """A bar per phase below the cell of a notebook: `fit(df, progress=NotebookBar())`.

    It needs IPython, which every notebook has, and no widgets.
    """

    def __init__(self, per_second: float = 5.0) -> None:
        self._limit = _RateLimit(per_second)
        self._phases: dict[str, str] = {}
        self._place: Any = None

    def __call__(
        self, phase: str, done: int, total: int, numbers: Mapping[str, float]
    ) -> None:
        """Move the bar of `phase` unless it moved a moment ago."""
        from IPython.display import HTML, display

        if not self._limit.due(done, total):
            return
        self._phases[phase] = (
            f"<div><code>{escape(phase)}</code> "
            f'<progress value="{done}" max="{max(total, 1)}"></progress> '
            f"{done:,}/{total:,} {escape(_beside(numbers))}</div>"
        )
        picture = HTML("".join(self._phases.values()))
        if self._place is None:
            self._place = display(picture, display_id=True)
        else:
            self._place.update(picture)
