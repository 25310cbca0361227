"""Terminal output shared by all commands: messages, progress, warnings, signals.

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


def print_error(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(text, err=True)


def print_json(document: dict[str, Any]) -> None:
    """Write one JSON document to standard output."""
    typer.echo(json.dumps(document, indent=1))


@contextmanager
def progress_reporter(as_json: bool) -> Iterator[Progress]:
    """Report progress as JSON lines, as a bar on a terminal, or not at all."""
    from augmask.progress import JsonLines, TerminalBar, silent

    if as_json:
        yield JsonLines(sys.stderr)
    elif sys.stderr.isatty():
        with TerminalBar() as bar:
            yield bar
    else:
        yield silent


@contextmanager
def collect_warnings(as_json: bool) -> Iterator[list[str]]:
    """Collect augmask's warnings; print each once unless they go into a document."""
    notes: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", AugMaskWarning)
        show = warnings.showwarning

        def note(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            text = str(message)
            if not issubclass(category, AugMaskWarning):
                show(message, category, *args, **kwargs)
            elif text not in notes:
                notes.append(text)
                if not as_json:
                    print_error(f"note: {text}")

        warnings.showwarning = note
        yield notes


@contextmanager
def graceful_shutdown() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that temporary files are removed."""

    def stop(number: int, _frame: Any) -> None:
        sys.exit(128 + number)

    previous = {}
    # only the main thread may set handlers, and not every system has both signals
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # under nohup SIGHUP is ignored, and stays ignored
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                previous[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def check_suffix(path: Path, option: str, suffix: str) -> Path:
    """Return `path` if it has the right suffix: a typo must not overwrite a table."""
    if path.suffix.lower() != suffix:
        raise UsageError(f"{option} must end in {suffix}, got {path}")
    return path
