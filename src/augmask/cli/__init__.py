"""The command line: `augmask inspect|fit|sample|impute|evaluate|report|status|demo`.

Results go to standard output, everything else to standard error. Heavy libraries are
imported inside the commands, so that `augmask --help` answers at once. Other packages
add commands through the entry-point group `augmask.commands`; `augmask-bench` adds
`bench`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from augmask import __version__
from augmask.cli.fit import fit
from augmask.cli.inspect import inspect
from augmask.cli.rows import impute, sample
from augmask.cli.scores import demo, evaluate, report
from augmask.cli.status import status
from augmask.cli.terminal import graceful_shutdown, print_error
from augmask.errors import AugMaskError, UsageError
from augmask.packages import entry_points_of
from augmask.train import parallel

app = typer.Typer(
    name="augmask",
    help="Train diffusion models on incomplete tables; generate complete ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (inspect, fit, sample, impute, evaluate, report, status, demo):
    app.command()(_command)
for _name, _point in entry_points_of("augmask.commands").items():
    try:
        app.add_typer(_point.load(), name=_name)
    # a plugin that cannot be imported must not take the other commands with it
    except Exception as _error:
        print_error(f"augmask: the command {_name} is unavailable: {_error}")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"augmask {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="print the version and exit",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="show the traceback of an error")
    ] = False,
) -> None:
    """Train diffusion models on incomplete tables; generate complete ones."""
    command = context.invoked_subcommand
    if command != "fit" and not parallel.is_main_process():
        raise typer.Exit
    if command == "demo" and parallel.launched_by_torchrun():
        raise UsageError("the demo runs in one process; start it without torchrun")


@contextmanager
def _silent_unless_main_process() -> Iterator[None]:
    """Discard the output of all processes under torchrun but the first."""
    if parallel.is_main_process():
        yield
        return
    with (
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, or torch on a GPU or a CPU, ran out of memory."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


def _internal_error(error: Exception) -> str:
    """Return the sentence about an error that is a defect of augmask."""
    text = " ".join(str(error).split())[:200]
    return (
        f"internal error ({type(error).__name__}: {text}); please report it with the "
        "output of --debug"
    )


def main() -> None:
    """Run the command line; an error is one sentence and an exit code."""
    arguments = sys.argv[1:]
    # anywhere: people append it to the command that failed
    debug = "--debug" in arguments
    try:
        with _silent_unless_main_process(), graceful_shutdown():
            app(args=[a for a in arguments if a != "--debug"], prog_name="augmask")
    except parallel.AlreadyReported:
        sys.exit(0)
    except SystemExit as stop:
        # a usage error: the first process reports it, and its exit code counts
        sys.exit(0 if not parallel.is_main_process() else stop.code)
    except Exception as error:
        if isinstance(error, AugMaskError):
            sentence, code = " ".join(str(error).splitlines()), error.exit_code
        elif _is_out_of_memory(error):
            sentence, code = "out of memory; use fewer rows or columns", 3
        elif isinstance(error, OSError):
            sentence, code = f"I/O error: {error}", 3
        else:
            sentence, code = _internal_error(error), 1
        if debug:
            traceback.print_exc()
        print_error(f"augmask: {sentence}")
        sys.exit(code)
