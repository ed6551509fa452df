"""`tripletd models`: list, show and kernels; the other verbs are in models_*.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.commands import common, models_change, models_diff, models_export
from daemon.commands.common import ConfigOption, JsonOption, SetOption, VersionArgument, console, load, table
from daemon.exits import EX_OK, EX_USAGE, UserError
from daemon.text import ago, measure, safe, size
from daemon.versions.verdict import HIGHER, NOT_SHOWN, is_unproven, short_name

if TYPE_CHECKING:
    from rich.table import Table

    from checkpoints import LedgerEntry, Manifest, VersionStore
    from daemon.look.overview import KeyRow, VersionRow

app = typer.Typer(help="Look at the versions, and say which are served.", no_args_is_help=True)
_SHOWN = ("map_full", "p10_full", HIGHER, "map_shown", "position_balanced")

KNOWN_IDS = "dedupe.ids"
_ALWAYS = ("version", "events", "names")
_JUDGED = ("events", "impressions", "decision_measure", "guarded")


MOST_KEYS = 20
"""Keys in the table of a version; all of them with --json, one with --key."""


@app.command("list")
def list_(*, config: ConfigOption = None, set_: SetOption = None, json: JsonOption = False) -> int:
    """Every version with its events, size, names and measures."""
    from daemon.look.overview import read_all, version_rows
    from daemon.models.actions import look
    from daemon.models.decide import in_doubt
    from daemon.versions.storage import open_for_reading

    versions, ledger = open_for_reading(load(config, set_))
    found = read_all(versions, ledger)
    rows = version_rows(found.manifests, found.entries, found.newest, found.damaged)
    common.write_notes([*found.notes, *in_doubt(look(versions, ledger))])
    return common.show(json, [asdict(row) for row in rows], lambda: _print_list(rows))


@app.command("show")
def show(
    name: VersionArgument,
    *,
    key: Annotated[
        str | None, typer.Option(help="One key's model alone, where there is one per key.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """One version: position, counters, files, measures, and its keys where each has a model."""
    from daemon.look.overview import version_rows
    from daemon.models.decide import number_of

    store, _, entries = common.opened(load(config, set_))
    numbers = store.versions()
    number = number_of(name, numbers, entries)
    manifest = store.manifest(number)
    row = version_rows([manifest], entries, max(numbers))[0]
    keys = keys_of_version(store, number, entries, key)
    if json:
        fields = asdict(manifest) | {"aliases": row.aliases, "measures": dict(row.measures)}
        common.write_json(fields if keys is None else fields | {"keys": [asdict(one) for one in keys]})
        return EX_OK
    if key is None:
        _print_one(manifest, row)
    if keys is not None:
        print_keys(keys)
    return EX_OK


@app.command("kernels")
def kernels(
    name: VersionArgument = "best",
    *,
    queries: Annotated[int, typer.Option(min=1, max=100_000, help="Most judged queries.")] = 200,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """The kernels of a version: their weights, each one's own mAP, and the weights exp(mAP) of OMKS-W."""
    from daemon.models.decide import number_of
    from daemon.validate.kernels import judge_kernels

    settings = load(config, set_)
    versions, _, entries = common.opened(settings)
    number = number_of(name, versions.versions(), entries)
    rows = judge_kernels(versions, number, settings, queries)
    if json:
        common.write_json({"version": number, "kernels": [asdict(row) for row in rows]})
        return EX_OK
    out, shown = console(), table("kernel", right=("weight", "mAP alone", "exp(mAP)"))
    for row in rows:
        shown.add_row(row.name, measure(row.theta), measure(row.map), measure(row.weight))
    out.print(shown)
    weights = [round(row.weight, 4) for row in rows if row.weight is not None]
    if len(weights) == len(rows):
        out.print(f'OMKS-W: learner.combine = "given", learner.weights = {weights}', soft_wrap=True)
    else:
        out.print("no judgments (validate.judgments): each one's mAP is not known")
    return EX_OK


def _print_list(rows: list[VersionRow]) -> None:
    out = console()
    columns = _columns(rows)
    dropped = [*reversed([title for title in columns if title not in _ALWAYS]), "events"]
    widths = _widths(columns, wrapped=False)
    if _total(widths) > out.width:
        widths = _widths(columns, wrapped=True)
    while dropped and _total(widths) > out.width:
        del columns[dropped[0]], widths[dropped.pop(0)]
    shown = table()
    for title in columns:
        if title == "names":  # whole, however narrow it is: wrapped between names before one is cut
            shown.add_column(title, overflow="fold")
        else:
            shown.add_column(title, justify="right", width=widths[title])
    for place, row in enumerate(rows):
        cells = [cells[place] for cells in columns.values()]
        shown.add_row(*cells, style="bold green" if "best" in row.aliases else None)
    out.print(shown if rows else "no version yet")


def _columns(rows: list[VersionRow]) -> dict[str, list[str]]:
    """Title -> a cell per version; measures that no version has are left out."""
    columns = {
        "version": [str(row.number) for row in rows],
        "events": ["damaged" if row.damaged else f"{row.events:,}" for row in rows],
        "written": ["-" if row.damaged else ago(row.created) for row in rows],
        "size": ["-" if row.damaged else size(row.size) for row in rows],
    }
    for key in _SHOWN:
        values = [row.measures.get(key) for row in rows]
        if any(value is not None for value in values):
            columns[short_name(key)] = [measure(value) for value in values]
    best = next((row.number for row in rows if "best" in row.aliases), None)
    columns["names"] = []
    for row in rows:  # `latest` is not what is best because it is newest
        newest = f"latest ({NOT_SHOWN})" if is_unproven(row.number, best) else "latest"
        columns["names"].append(", ".join(newest if name == "latest" else name for name in row.aliases))
    return columns


def _widths(columns: Mapping[str, Sequence[str]], *, wrapped: bool) -> dict[str, int]:
    """Title -> width of the column; `wrapped`: with titles and the names of a version in several lines."""
    widths = {}
    for title, cells in columns.items():
        texts = [title, *cells] if title == "names" else [title]
        texts = [word for text in texts for word in text.split()] if wrapped else texts
        widths[title] = max(map(len, texts if title == "names" else [*texts, *cells]))
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _print_one(manifest: Manifest, row: VersionRow) -> None:
    from rich.text import Text

    out = console()
    out.print(common.facts((name, Text(text)) for name, text in _facts(manifest, row)))
    measures = _measures(row)
    if measures.row_count:
        out.print()
        out.print(measures)


def _measures(row: VersionRow) -> Table:
    reference = row.measures.get("version_0") or {}
    shown = table("measure", right=(f"version {row.number}", *(("version 0",) if row.number else ())))
    for name, value in row.measures.items():
        if name in reference:
            cells = [measure(value), measure(reference[name])]
            shown.add_row(short_name(name), *(cells if row.number else cells[:1]))
    return shown


def _facts(manifest: Manifest, row: VersionRow) -> list[tuple[str, str]]:
    from daemon.look.overview import form_of

    names = f" ({', '.join(row.aliases)})" if row.aliases else ""
    facts = [
        ("version", f"{manifest.number}{names}"),
        ("parent", "none" if manifest.parent is None else str(manifest.parent)),
        ("written", f"{manifest.created} ({ago(manifest.created)})"),
        ("learner", _pairs({"name": manifest.learner.get("name"), **manifest.learner.get("config", {})})),
        ("space", manifest.space),
        ("map", str(manifest.map.get("id", "-"))),
        ("events", f"{row.events:,}"),
        ("counters", _pairs(manifest.counters)),
        ("stream", _pairs(manifest.stream)),
    ]
    positions = {f"partition {p} at": at.next_offset for p, at in sorted(manifest.positions.items())}
    facts.append(("position", _pairs(positions)))
    known = next((array.shape[0] for array in manifest.arrays if array.name == KNOWN_IDS), None)
    if known is not None:
        window = manifest.learner.get("config", {}).get("dedupe_window", known)
        facts.append(("known ids", f"{known:,}, of at most {window:,}: an event with one of them is dropped"))
    for one in manifest.map.get("spec", {}).get("queries", ()):
        facts.append(("queries of", f"{one['name']}: {one['dim']:,} numbers, to view {one['view']}"))
    facts += [
        ("file", f"{file.name}, {size(file.size)}, sha256 {file.sha256[:16]}") for file in manifest.files
    ]
    facts.append(("state hash", manifest.state_hash))
    form = form_of(row.measures)
    if form is not None:
        facts.append(("form", form))
    plain = {key: row.measures[key] for key in _JUDGED if key in row.measures}
    if plain:
        facts.append(("judged", _pairs(plain)))
    return facts


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_value(value)}" for key, value in _flat(values)) or "-"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = (f"({_pairs(one)})" if isinstance(one, Mapping) else _value(one) for one in value)
        return " ".join(parts) or "[]"
    return str(value)


def keys_of_version(
    store: VersionStore, number: int, entries: Sequence[LedgerEntry], key: str | None
) -> list[KeyRow] | None:
    """A version's keys with the verdicts in force for it, the one asked for alone; None where there is one
    model for all. UserError for a key that it does not know.
    """
    from daemon.look.overview import key_rows, read_events
    from daemon.versions.key_verdicts import KeyVerdicts

    events = read_events(store, number)
    if events is None:
        if key is not None:
            raise UserError(
                f"version {number} has one model for all", "leave --key out (see keys.slots)", EX_USAGE
            )
        return None
    rows = key_rows(events, KeyVerdicts.of(entries).at(number))
    if key is None:
        return rows
    found = [row for row in rows if row.key == key]
    if not found:
        message = f"version {number} has no model of the key {key!r}, so version 0 answers it"
        remedy = f"`tripletd models show {number} --json` lists its {len(events):,} keys"
        raise UserError(message, remedy, EX_USAGE)
    return found


def print_keys(rows: Sequence[KeyRow]) -> None:
    """A table of the keys with most events."""
    from rich.text import Text

    shown = table("key", right=("events", "judged on", "decision", "version 0"))
    shown.columns[0].no_wrap = True
    shown.add_column("verdict")
    for row in rows[:MOST_KEYS]:
        verdict = f"{row.verdict}: {row.why}" if row.why else row.verdict or "not judged"
        lists = "-" if row.impressions is None else f"{row.impressions:,}"
        key = Text(safe(row.key))
        shown.add_row(
            key, f"{row.events:,}", lists, measure(row.decision), measure(row.version_0), Text(verdict)
        )
    console().print(shown if rows else "no key has a model yet")
    if len(rows) > MOST_KEYS:
        console().print(f"and {len(rows) - MOST_KEYS:,} more (--json)")


app.command("diff")(models_diff.diff)
for verb in ("promote", "rollback", "pin", "unpin", "gc", "average", "migrate"):
    app.command(verb)(getattr(models_change, verb))
app.command("write-off")(models_change.write_off)
app.command()(models_export.export)
