"""What every command does on a screen: say, report progress, pass on warnings.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from augmask.errors import AugMaskWarning, UsageError

if TYPE_CHECKING:
    from augmask.progress import Progress


def say(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(text, err=True)


def print_json(document: dict[str, Any]) -> None:
    """Write one document to standard output."""
    typer.echo(json.dumps(document, indent=1))


@contextmanager
def reporting(as_json: bool) -> Iterator[Progress]:
    """Give JSON lines, a bar on a terminal, or silence."""
    from augmask.progress import JsonLines, TerminalBar, silent

    if as_json:
        yield JsonLines(sys.stderr)
    elif sys.stderr.isatty():
        with TerminalBar() as bar:
            yield bar
    else:
        yield silent


@contextmanager
def noting(as_json: bool) -> Iterator[list[str]]:
    """Say augmask's warnings as they come, once each; a document holds them instead."""
    notes: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", AugMaskWarning)
        show = warnings.showwarning

        def note(
            message: Warning | str, category: type[Warning], *where: Any, **more: Any
        ) -> None:
            text = str(message)
            if not issubclass(category, AugMaskWarning):
                show(message, category, *where, **more)
            elif text not in notes:
                notes.append(text)
                if not as_json:
                    say(f"note: {text}")

        warnings.showwarning = note
        yield notes


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let a request to end unwind what runs, so that no half-written file is left."""

    def end(number: int, _frame: Any) -> None:
        sys.exit(128 + number)

    before = {}
    # only the first thread may; and not every system has both
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # what was told to outlive its terminal (nohup) does
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def named(path: Path, option: str, suffix: str) -> Path:
    """Return `path` if it ends as it should: a slip must not overwrite a table."""
    if path.suffix.lower() != suffix:
        raise UsageError(f"{option} must name a file *{suffix}, got {path}")
    return path
