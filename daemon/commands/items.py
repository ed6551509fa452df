"""`tripletd items put|remove|list|show`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, ToOption, flag, load, say
from daemon.exits import EX_USAGE, UserError
from daemon.text import moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.serve.items.files import ItemsRead, ListedItem

app = typer.Typer(help="Keep the catalog that serve answers with current.", no_args_is_help=True)

_DryRun = Annotated[bool, flag("--dry-run", "Check everything, write nothing.")]


@app.command("put")
def put(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Objects: .jsonl, or a .safetensors catalog.")],
    *,
    to: ToOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    dry_run: _DryRun = False,
    json: JsonOption = False,
) -> int:
    """Add the objects of a file, or replace those of the same ids, while serve keeps answering.

    A line of .jsonl has id, and x or views as in a catalog; title, text, image and tags if there are any.
    """
    from daemon.serve.items.files import records_to_put, send_items

    effective = load(config, set_, {"stream.address": to})
    address = effective.stream.to_address()
    with _progress(file) as read:
        records = records_to_put(file, effective.space_spec(), read)
        count = sum(1 for _ in records) if dry_run else send_items(address, records, common.write_note)
    return _show("put", count, str(address.items), dry_run, json)


@app.command("remove")
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Objects, also those of a file.")],
    *,
    to: ToOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    dry_run: _DryRun = False,
    json: JsonOption = False,
) -> int:
    """Remove objects from the catalog that serve answers with; one that is not there is no error."""
    from daemon.serve.items.files import removals, send_items

    effective = load(config, set_, {"stream.address": to})
    address, records = effective.stream.to_address(), removals(ids)
    count = len(records) if dry_run else send_items(address, records, common.write_note)
    return _show("remove", count, str(address.items), dry_run, json)


@app.command("list")
def list_(
    *,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="How many, the newest.")] = 20,
    to: ToOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """The newest objects put or removed, and how many there are. Those of the catalog file are not listed."""
    from daemon.serve.items.files import read_items

    found = read_items(load(config, set_, {"stream.address": to}).stream.to_address())
    newest = list(found.newest.items())[-last:]
    counts = {"records": found.records, "put": found.there, "removed": len(found.newest) - found.there}
    items = [_document(object_id, entry) for object_id, entry in newest]
    document = {**counts, "refused": found.refused, "items": items}
    return common.show(json, document, partial(_print_list, found, newest))


@app.command("show")
def show(
    object_id: Annotated[str, typer.Argument(metavar="ID", help="The object.")],
    *,
    to: ToOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """What the topic says last of one object: features, tags, what people see."""
    from daemon.serve.items.files import read_items

    address = load(config, set_, {"stream.address": to}).stream.to_address()
    entry = read_items(address, object_id).newest.get(object_id)
    if entry is None:
        remedy = "it may be in the catalog file; `tripletd items list` shows what the topic has"
        raise UserError(f"{address.items} has no record of {object_id[:80]!r}", remedy, EX_USAGE)
    views = {
        name: f"dense, {len(raw) // 4} numbers"
        if isinstance(raw, bytes)
        else f"sparse, {len(raw[0]) // 4} entries"
        for name, raw in (entry.item.vectors or {}).items()
    }
    document = _document(object_id, entry) | ({"views": views} if views else {})
    lines = (f"{name:<9} {_plain(value)}" for name, value in document.items())
    return common.show(json, document, partial(say, *lines))


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr while a file is read, where that is a terminal; takes the bytes read so
    far."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    out = Console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(file.name, total=file.stat().st_size if file.is_file() else None)
        yield lambda count: bar.advance(task, count)


def _show(verb: str, count: int, to: str, dry_run: bool, as_json: bool) -> int:
    done = {"put": "put into", "remove": "removed from"}[verb]
    line = f"{'1 item' if count == 1 else f'{count:,} items'} {'would be ' if dry_run else ''}{done} {to}"
    return common.show(as_json, {verb: count, "to": to, "dry_run": dry_run}, partial(say, line))


def _document(object_id: str, entry: ListedItem) -> dict[str, Any]:
    item = entry.item
    place = {"partition": entry.partition, "offset": entry.offset, "bytes": entry.size}
    shown = {"title": item.display.title, "text": item.display.text, "image": item.display.image}
    tags = {"tags": list(item.display.tags)} if item.display.tags else {}
    given = {name: text for name, text in shown.items() if text is not None}
    return {"id": object_id, "op": item.op, "time": moment(entry.time), **place, **given, **tags}


def _print_list(found: ItemsRead, newest: list[tuple[str, ListedItem]]) -> None:
    for object_id, entry in newest:
        document = _document(object_id, entry)
        words = [document.get("title") or document.get("text") or "", *document.get("tags", ())]
        say(f"{document['time']}  {entry.item.op:<6}  {object_id}  {'  '.join(words)[:80]}")
    removed = len(found.newest) - found.there
    refused = "".join(f", {count:,} refused as {reason}" for reason, count in found.refused.items())
    say(f"{found.there:,} put, {removed:,} removed, by {found.records:,} records{refused}")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {text}" for name, text in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
