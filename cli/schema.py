"""`kt schema`: JSON Schemas of kt's files, for editors and for checks."""

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["schema"]


class SchemaName(StrEnum):
    """The files that have a schema."""

    shapes = "shapes"
    space = "space"
    table = "table"


def schema(
    name: Annotated[
        SchemaName, typer.Argument(help="Which file: a shapes file, a search space, or an exported table.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As always: a schema is JSON.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="As always: there is nothing but data.")] = False,
) -> None:
    """Print the JSON Schema of one of kt's files."""
    from kt.cli.output import print_json

    match name:
        case SchemaName.shapes:
            from kt.problems.shapes_file import shapes_schema

            print_json(shapes_schema())
        case SchemaName.space:
            from kt.search_spaces.loader import space_schema

            print_json(space_schema())
        case SchemaName.table:
            from kt.export.table_schema import table_schema

            print_json(table_schema())
