"""`augmask status`: how far the job is that fills a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augmask.cli.shared_options import Json
from augmask.cli.terminal import print_json

if TYPE_CHECKING:
    from augmask.job_folder import StageProgress

# Seconds without a change after which nobody seems to be at work.
QUIET = 600


def _line(stage: StageProgress, wide: int) -> str:
    """Return what to print about a stage."""
    from augmask.progress import duration

    facts = [f"{stage.done:,} of {stage.total:,} parts"]
    if 0 < stage.done < stage.total:
        if stage.rows_per_second is not None:
            facts.append(f"{stage.rows_per_second:,.0f} rows/s")
        if stage.seconds_left is not None:
            facts.append(f"{duration(stage.seconds_left)} left")
    return f"  {stage.name:{wide}}  {', '.join(facts)}"


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="folder that a job fills part by part")
    ],
    as_json: Json = False,
) -> None:
    """Show how far the job is that fills a folder: parts done, rate, time left."""
    from augmask.job_folder import job_folder
    from augmask.progress import duration

    job = job_folder(folder)
    stages, since = job.stages(), job.last_change()
    finished = all(stage.done >= stage.total for stage in stages)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "job": job.manifest["job"],
                "finished": finished,
                "seconds_since_change": round(since, 1),
                "stages": [
                    vars(stage) | {"seconds_left": stage.seconds_left}
                    for stage in stages
                ],
            }
        )
        return
    ago = f"last change {duration(since)} ago"
    if finished:
        ago = "finished"
    elif since > QUIET:
        ago += "; if nobody works on it, start the same command again"
    typer.echo(f"{folder}: {job.manifest['job']}, {ago}")
    wide = max(len(stage.name) for stage in stages)
    for stage in stages:
        typer.echo(_line(stage, wide))
