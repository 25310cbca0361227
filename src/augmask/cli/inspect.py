"""`augmask inspect`: the inferred schema, missing values and suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from augmask.cli.shared_options import Data, Json, SchemaFile
from augmask.cli.terminal import check_suffix, print_error, print_json


def inspect(
    data: Data,
    schema: SchemaFile = None,
    save_schema: Annotated[
        Path | None,
        typer.Option(help="write the inferred schema to this TOML file, to be edited"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the inferred schema, where values are missing, and what stands out."""
    from augmask.files import check_apart, check_writable
    from augmask.missing.describe import describe
    from augmask.sample.constraints import suggest_constraints, suggestion_notes
    from augmask.table.frames import read_frame
    from augmask.table.infer import infer_schema, missing_mask
    from augmask.table.notes import missingness_findings
    from augmask.table.seen_combinations import with_links

    if save_schema is not None:
        check_writable(check_suffix(save_schema, "--save-schema", ".toml"))
        check_apart("--save-schema", save_schema, data)
    frame = read_frame(data)
    columns = with_links(frame, infer_schema(frame, schema, group_codes=True))
    facts = describe(frame, missing_mask(frame, columns))
    if save_schema is not None:
        columns.to_toml(save_schema)
    constraints = suggest_constraints(frame, columns)
    if as_json:
        print_json(
            {
                "columns": [column.to_dict() for column in columns],
                "missing": facts.to_dict(),
                "not_applicable": missingness_findings(columns),
                "constraints": constraints,
                "notes": columns.notes(),
            }
        )
        return
    typer.echo(f"{data}: {len(frame):,} rows, {len(columns)} columns")
    kept = sum(column.missing_rate for column in columns if column.missing_is_level)
    kept /= max(len(columns), 1)
    not_applicable = f" ({kept:.1%} not applicable, kept missing)" if kept else ""
    typer.echo(
        f"missing: {facts.rate:.1%} of all cells{not_applicable}, "
        f"{facts.complete_rows:,} complete rows, {facts.n_patterns:,} patterns\n"
    )
    typer.echo(str(columns))
    if facts.rate:
        typer.echo("\nmost frequent patterns (rows: columns missing together)")
        for names, count in facts.patterns[:5]:
            typer.echo(f"{count:>9,}: {', '.join(map(str, names)) or '(none)'}")
    for note in (*columns.notes(), *suggestion_notes(constraints)):
        print_error(f"note: {note}")
