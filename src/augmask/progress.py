"""Progress callbacks: silent, JSON lines, a bar in a terminal or a notebook.

A callback is called as `progress(phase, done, total, numbers)`. `phase` is a word
("augment", "train", "sample"), and `numbers` holds values to show beside the bar, such
as the loss. It runs on the thread that does the work, so it should return quickly.

A callback may have a method `headline`, which gets one line on what is being done; the
bars show it with an estimate of the time. `reporting` turns what a user passes as
`progress` into a callback.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from types import TracebackType
from typing import IO, Any, Literal

from augmask.errors import UsageError, brief_repr

Progress = Callable[[str, int, int, Mapping[str, float]], None]
# What users may pass.
ProgressOption = Progress | bool | Literal["auto"] | None

# Sampling a few rows needs no bar: it appears after this many seconds.
PATIENCE = 1.0
# Seconds of training from which the rest is estimated.
ESTIMATE_AFTER = 1.0


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


def duration(seconds: float) -> str:
    """Return a rough time in words.

    Examples
    --------
    >>> duration(3.2), duration(42), duration(99), duration(5000)
    ('a few seconds', 'about 40 s', 'about 2 min', 'about 1.4 h')
    """
    if seconds < 10:
        return "a few seconds"
    if seconds < 55:
        return f"about {round(seconds, -1):.0f} s"
    if seconds < 3_570:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


class _Headline:
    """One line on what is being done, completed by how long the training takes.

    Examples
    --------
    >>> line = _Headline()
    >>> line.set("preset fast, 4,000 steps", 30)
    >>> line.observe("train", 0, 4_000, 10.0)
    False
    >>> line.observe("train", 100, 4_000, 12.0)
    True
    >>> line.shown
    'preset fast, 4,000 steps; training takes about 30 s'
    """

    def __init__(self) -> None:
        self.text = self.estimate = ""
        self.at_most: float | None = None
        self._first: tuple[float, int] | None = None

    def set(self, text: str, at_most: float | None) -> None:
        self.text, self.at_most = text or self.text, at_most

    def observe(self, phase: str, done: int, total: int, now: float) -> bool:
        """Estimate the time once there is enough to go by; return whether it did."""
        if phase != "train" or self.estimate:
            return False
        began, first = self._first = self._first or (now, done)
        if now - began < ESTIMATE_AFTER or done <= first:
            return False
        seconds = (now - began) / (done - first) * (total - first)
        if self.at_most is not None:
            seconds = min(seconds, self.at_most)
        self.estimate = f"training takes {duration(seconds)}"
        return True

    @property
    def shown(self) -> str:
        return "; ".join(filter(None, (self.text, self.estimate)))


def headline(progress: Progress, text: str, at_most: float | None = None) -> None:
    """Show a line with the bars, if `progress` is one that shows it.

    Parameters
    ----------
    progress : callable
    text : str
        Empty to leave the line as it is.
    at_most : float, optional
        Seconds after which the training ends in any case.
    """
    show = getattr(progress, "headline", None)
    if show is not None:
        show(text, at_most)


class TerminalBar:
    """A bar per phase on standard error: rate, numbers, time left.

    Use it as a context manager, which restores the terminal at the end, also after an
    error.

    Parameters
    ----------
    patience : float, default 0
        Seconds before the bar appears.
    """

    def __init__(self, patience: float = 0.0) -> None:
        # importing rich takes a tenth of a second
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        line = self._line = _Headline()

        class Bars(Progress):
            def get_renderables(self) -> Iterator[Any]:
                if line.text:
                    yield Text(line.shown, style="dim")
                yield from super().get_renderables()

        self._bars = Bars(
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
        self._appears = time.monotonic() + patience

    def __enter__(self) -> TerminalBar:
        self._appear()
        return self

    def _appear(self) -> None:
        if time.monotonic() >= self._appears:
            self._appears = float("inf")
            self._bars.start()

    def headline(self, text: str, at_most: float | None = None) -> None:
        """Show a line above the bars."""
        self._line.set(text, at_most)
        self._bars.refresh()

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
        self._appear()
        self._line.observe(phase, done, total, time.monotonic())
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

    Parameters
    ----------
    per_second : float, default 5
        Pictures a second.
    patience : float, default 0
        Seconds before the bar appears.
    """

    def __init__(self, per_second: float = 5.0, patience: float = 0.0) -> None:
        self._limit = _RateLimit(per_second)
        self._line = _Headline()
        self._phases: dict[str, str] = {}
        self._place: Any = None
        self._appears = time.monotonic() + patience

    def headline(self, text: str, at_most: float | None = None) -> None:
        """Show a line above the bars."""
        self._line.set(text, at_most)

    def __call__(
        self, phase: str, done: int, total: int, numbers: Mapping[str, float]
    ) -> None:
        """Move the bar of `phase` unless it moved a moment ago."""
        from IPython.display import HTML, display

        now = time.monotonic()
        estimated = self._line.observe(phase, done, total, now)
        if now < self._appears or not (self._limit.due(done, total) or estimated):
            return
        self._phases[phase] = (
            f"<div><code>{escape(phase)}</code> "
            f'<progress value="{done}" max="{max(total, 1)}"></progress> '
            f"{done:,}/{total:,} {escape(_beside(numbers))}</div>"
        )
        line = f"<div>{escape(self._line.shown)}</div>" if self._line.text else ""
        picture = HTML(line + "".join(self._phases.values()))
        if self._place is None:
            self._place = display(picture, display_id=True)
        else:
            self._place.update(picture)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    # a notebook has imported IPython, and nothing else needs it
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(get_ipython and get_ipython(), "kernel")


@contextmanager
def reporting(progress: ProgressOption, patience: float = 0.0) -> Iterator[Progress]:
    """Context manager: the callback for what a user passed as `progress`.

    Parameters
    ----------
    progress : None, "auto", bool or callable
        None and "auto" show a bar in a notebook, or on standard error if that is a
        terminal. False shows nothing, True a bar wherever it is.
    patience : float
        Seconds before a bar appears.

    Examples
    --------
    >>> with reporting(False) as report:
    ...     report is silent
    True
    >>> with reporting("loud"):
    ...     pass
    Traceback (most recent call last):
    augmask.errors.UsageError: progress must be None, True, False or a function of \
(phase, done, total, numbers), got 'loud'
    """
    if callable(progress):
        yield progress
        return
    named = progress is None or isinstance(progress, bool)
    if not named and not (isinstance(progress, str) and progress == "auto"):
        raise UsageError(
            "progress must be None, True, False or a function of (phase, done, total, "
            f"numbers), got {brief_repr(progress)}"
        )
    wanted = progress is not False
    if wanted and in_notebook():
        yield NotebookBar(patience=patience)
    elif wanted and (progress is True or (sys.stderr and sys.stderr.isatty())):
        with TerminalBar(patience) as bar:
            yield bar
    else:
        yield silent
