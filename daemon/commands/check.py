"""`tripletd check`."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, facts, flag, load, write_json
from daemon.exits import EX_CONFIG, EX_OK, UserError

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.exits import CheckFinding

AllOption = Annotated[bool, flag("--all", "Every setting, also those that have their default.")]

_STYLES = {"ok": "green", "note": "yellow", "error": "bold red"}


def check(
    *, config: ConfigOption = None, set_: SetOption = None, all_: AllOption = False, json: JsonOption = False
) -> int:
    """Check the configuration and what it names; print the values that somebody set, each with its origin."""
    from daemon.checks import run_checks

    try:
        effective = load(config, set_)
    except UserError as error:
        if not json:
            raise
        write_json({"ok": False, "errors": error.message.splitlines(), "findings": [], "config": None})
        return error.code
    findings = run_checks(effective)
    errors = sum(finding.grade == "error" for finding in findings)
    if json:
        document = {
            "ok": errors == 0,
            "errors": [f"{one.key}: {one.text}" for one in findings if one.grade == "error"],
            "findings": [one._asdict() for one in findings],
            "config": effective.values(),
            "origins": {key: effective.origin_of(key) for key, _ in _flat(effective)},
        }
        write_json(document)
    else:
        _print_config(effective, all_)
        _print_findings(findings, errors)
    return EX_CONFIG if errors else EX_OK


def _flat(config: Config) -> list[tuple[str, Any]]:
    from daemon.config.load import flatten

    return [(".".join(path), value) for path, value in flatten(config.values())]


def _print_config(config: Config, with_defaults: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text(f"configuration: {config.file or 'defaults alone, no file'}", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("origin", no_wrap=True, justify="right")
    section, flat = "", _flat(config)
    listed = [(key, one) for key, one in flat if with_defaults or config.origin_of(key) != "default"]
    heads = list(dict.fromkeys(key.rpartition(".")[0] for key, _ in listed))  # keys first, then tables within
    listed.sort(key=lambda one: heads.index(one[0].rpartition(".")[0]))
    for key, value in listed:
        head, _, name = key.rpartition(".")
        if head != section:
            table.add_row(Text(f"[{head}]", style="bold cyan"), "", "")
            section = head
        origin = config.origin_of(key)
        style = "dim" if origin == "default" else "green"
        shown = json_text.dumps(value, ensure_ascii=False)
        table.add_row(Text(f"  {name}"), Text(shown), Text(origin, style=style))
    out.print(table)
    if len(listed) < len(flat):
        out.print(
            Text(f"{len(flat) - len(listed)} settings have their defaults: --all prints them", style="dim")
        )


def _print_findings(findings: list[CheckFinding], errors: int) -> None:
    from rich.text import Text

    out, grid = console(), facts((), 2, None)
    out.print()
    for one in findings:
        text = Text(one.text)
        if one.remedy:
            text.append(f"\n{one.remedy}", style="dim")
        grid.add_row(Text(one.grade, style=_STYLES[one.grade]), Text(one.key, style="bold"), text)
    out.print(grid)
    summary = f"{errors} error(s)" if errors else "all is well"
    out.print(Text(summary, style="bold red" if errors else "bold green"))
