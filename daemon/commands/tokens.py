"""`tripletd tokens add|list|remove`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, load
from daemon.exits import EX_CONFIG, EX_OK, UserError

app = typer.Typer(help="Give tokens to those who may ask, write or promote over HTTP.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Who it is for; the ledger names it.")]


@app.command("add")
def add(
    name: NameArgument,
    *,
    scope: Annotated[
        list[str],
        typer.Option("--scope", metavar="SCOPE", help="ask, click, promote or metrics; may be repeated."),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Only models of this key; may be repeated. Else all."),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Make a token and print it, this once: the file keeps its hash alone. Roles take it within a second."""
    from daemon.runtime.doors import add_token

    token = add_token(_file(config, set_), name, scope, key or ())
    sys.stdout.write(token + "\n")
    return EX_OK


@app.command("list")
def list_(*, config: ConfigOption = None, set_: SetOption = None, json: JsonOption = False) -> int:
    """Who has a token, and for what."""
    from daemon.runtime.doors import SCOPES, read_tokens

    kept = read_tokens(_file(config, set_))
    rows: list[dict[str, Any]] = [
        {
            "name": one.grant.name,
            "scopes": [scope for scope in SCOPES if scope in one.grant.scopes],
            "keys": None if one.grant.keys is None else sorted(one.grant.keys),
            "added": one.added,
        }
        for one in kept
    ]
    return common.show(json, {"tokens": rows}, partial(_print, rows))


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "scopes", "keys", "added")
    for row in rows:
        keys = "all" if row["keys"] is None else ", ".join(row["keys"])
        table.add_row(*map(Text, (row["name"], ", ".join(row["scopes"]), keys, row["added"])))
    console().print(table)


@app.command("remove")
def remove(name: NameArgument, *, config: ConfigOption = None, set_: SetOption = None) -> int:
    """Take a token back: within a second it opens nothing."""
    from daemon.runtime.doors import remove_token

    remove_token(_file(config, set_), name)
    return EX_OK


def _file(config: Path | None, settings: list[str] | None) -> Path:
    path = load(config, settings).http.tokens
    if not path:
        remedy = 'set it, such as tokens = "tokens.json" in [http]'
        raise UserError("http.tokens names no file for tokens", remedy, EX_CONFIG)
    return Path(path)
