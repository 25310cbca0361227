"""`augmask inspect`: the inferred schema, missing values and suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from augmask.cli.shared_options import (
    Data,
    Json,
    OpenTable,
    SchemaFile,
    reads_tables,
)
from augmask.cli.terminal import (
    check_suffix,
    collect_warnings,
    print_error,
    print_json,
)


@reads_tables
def inspect(
    data: Data,
    schema: SchemaFile = None,
    save_schema: Annotated[
        Path | None,
        typer.Option(help="write the inferred schema to this TOML file, to be edited"),
    ] = None,
    *,
    open_table: OpenTable,
    as_json: Json = False,
) -> None:
    """Show the inferred schema, where values are missing, and what stands out."""
    from augmask.files import check_apart, check_writable
    from augmask.inspection import inspect
    from augmask.sample.constraints import suggestion_notes

    if save_schema is not None:
        check_writable(check_suffix(save_schema, "--save-schema", ".toml"))
        check_apart("--save-schema", save_schema, data)
    with collect_warnings(as_json) as told:
        inspection = inspect(open_table(data), schema=schema)
    if save_schema is not None:
        inspection.schema.to_toml(save_schema)
    if as_json:
        document = inspection.to_dict()
        print_json(document | {"notes": [*told, *document["notes"]]})
        return
    typer.echo(f"{data}: {inspection}")
    for note in (*inspection.notes, *suggestion_notes(inspection.constraints)):
        print_error(f"note: {note}")
