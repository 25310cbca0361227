"""`augmask inspect`: the inferred schema, missing values and suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from augmask.cli.shared_options import (
    Data,
    Encoding,
    Header,
    Json,
    Na,
    SchemaFile,
    Sep,
    Sheet,
    table_file,
)
from augmask.cli.terminal import (
    check_suffix,
    collect_warnings,
    print_error,
    print_json,
)


def inspect(
    data: Data,
    schema: SchemaFile = None,
    save_schema: Annotated[
        Path | None,
        typer.Option(help="write the inferred schema to this TOML file, to be edited"),
    ] = None,
    na: Na = None,
    sep: Sep = None,
    header: Header = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    as_json: Json = False,
) -> None:
    """Show the inferred schema, where values are missing, and what stands out."""
    from augmask.files import check_apart, check_writable
    from augmask.inspection import inspection_of
    from augmask.sample.constraints import suggestion_notes
    from augmask.table.frames import read_frame
    from augmask.table.infer import infer_schema
    from augmask.table.seen_combinations import with_links

    if save_schema is not None:
        check_writable(check_suffix(save_schema, "--save-schema", ".toml"))
        check_apart("--save-schema", save_schema, data)
    source = table_file(data, na, sep, header, encoding, sheet)
    with collect_warnings(as_json) as told:
        frame = read_frame(source)
    inferred = infer_schema(frame, schema, suggest=True, group_codes=True)
    columns = with_links(frame, inferred)
    found = inspection_of(frame, columns)
    if save_schema is not None:
        columns.to_toml(save_schema)
    if as_json:
        document = found.to_dict()
        print_json(document | {"notes": [*told, *document["notes"]]})
        return
    typer.echo(f"{data}: {found}")
    for note in (*found.notes, *suggestion_notes(found.constraints)):
        print_error(f"note: {note}")
