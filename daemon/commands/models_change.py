"""`tripletd models promote|rollback|pin|unpin|gc|write-off|average|migrate`: what writes versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, ReasonOption, SetOption, VersionArgument, load
from daemon.exits import EX_USAGE, UserError
from daemon.text import number_runs, size

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from daemon.config import Config
    from daemon.models.actions import GcResult
    from daemon.models.decide import Verb
    from daemon.models.derive import AverageSource


NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Small letters, digits, - and _; begins with a letter.")
]
AliasOption = Annotated[
    str, typer.Option("--alias", "-a", metavar="NAME", help="The name to move; reserved: latest, best, own.")
]


DryRunOption = Annotated[bool, common.flag("--dry-run", "Check and report; write nothing, delete nothing.")]


def promote(
    version: VersionArgument,
    *,
    alias: AliasOption = "stable",
    reason: ReasonOption = "asked for",
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Point stable, or another name, at a version, which is read and checked first.

    Servers, replicas and clients of that name follow by themselves.
    """
    return _move(("promote", alias, version), load(config, set_), reason=reason, dry_run=dry_run, json=json)


def rollback(
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="VERSION", show_default=False, help="A version other than the previous one."),
    ] = None,
    alias: AliasOption = "stable",
    reason: ReasonOption = "asked for",
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Point a name at the version it pointed at before; again: at the one before that."""
    return _move(("rollback", alias, to), load(config, set_), reason=reason, dry_run=dry_run, json=json)


def pin(
    name: NameArgument,
    version: VersionArgument,
    *,
    reason: ReasonOption = "asked for",
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Give a version a name that keeps it and that no promotion moves."""
    return _move(("pin", name, version), load(config, set_), reason=reason, dry_run=dry_run, json=json)


def unpin(
    name: NameArgument,
    *,
    reason: ReasonOption = "asked for",
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Take a name away; stable then means the best version again."""
    return _move(("unpin", name, None), load(config, set_), reason=reason, dry_run=dry_run, json=json)


def gc(
    *,
    keep: Annotated[
        int | None,
        typer.Option(
            min=2, show_default=False, help="Newest versions kept; default: checkpoints.keep as configured."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Delete old versions now; what a name points at stays.

    Running servers are not affected: what they have loaded is their own copy.
    """
    from daemon.models.actions import gc as act
    from daemon.versions.storage import open_for_reading

    settings = load(config, set_)
    versions, ledger = open_for_reading(settings)
    found = act(versions, ledger, settings.checkpoints.keep if keep is None else keep, dry_run=dry_run)
    return common.show(json, asdict(found), partial(_print_collected, found))


def write_off(
    entries: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[ENTRY]...", show_default=False, help="Numbers of entries that cannot be read."
        ),
    ] = None,
    *,
    reason: ReasonOption = "asked for",
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Count entries of the ledger that cannot be read as never said; without a number, list them.

    Pruning, gc and folding then work again. It cannot be undone: if there is a copy, restore it instead.
    """
    from daemon.models.actions import lost_entries
    from daemon.models.actions import write_off as act
    from daemon.versions.storage import open_for_reading

    _, ledger = open_for_reading(load(config, set_))
    lost = act(ledger, entries, _by(), reason) if entries else lost_entries(ledger)
    lines = [
        f"{'entry' if one.first == one.last else f'entries {one.first} to'} {one.last}: "
        f"{'written off' if entries else one.why}"
        for one in lost
    ]
    nothing = "every entry of the ledger can be read, or was written off"
    return common.show(json, [asdict(one) for one in lost], partial(common.say, *(lines or [nothing])))


class FitMethodName(StrEnum):
    """How the matrix is fitted."""

    auto = "auto"
    ridge = "ridge"
    procrustes = "procrustes"


def migrate(
    *,
    pairs: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The same texts by both models: a table (.parquet, .arrow) with the columns new and old, or "
            ".npz with such arrays.",
        ),
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The new model's name, as queries may say it in views.")
    ] = "new",
    view: Annotated[
        str, typer.Option(metavar="VIEW", show_default=False, help="Whose vectors are old; the only one.")
    ] = "",
    method: Annotated[
        FitMethodName, typer.Option(help="auto tries both, and pairs that are left out choose.")
    ] = FitMethodName.auto,
    least_recall: Annotated[
        float,
        typer.Option(min=0, max=1, help="Write nothing where less of the old ten nearest objects stays."),
    ] = 0.2,
    dry_run: Annotated[bool, common.flag("--dry-run", "Fit and report; write nothing.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Write a version that also takes queries of another embedding model; objects stay as they are.

    Stop `learn` meanwhile. See docs/another-embedding-model.md.
    """
    from daemon.models.migrate import MigrationRequest
    from daemon.models.migrate import migrate as write

    asked = MigrationRequest(pairs, name, view, method.value, least_recall)
    made = write(load(config, set_), asked, dry_run=dry_run)
    written = "nothing is written" if made.version is None else f"version {made.version}, behind {made.of}"
    return tell(
        made,
        json,
        f"{written}: queries of {made.name}, {made.dims[0]:,} numbers, become those of view {made.view}, "
        f"{made.dims[1]:,}, by {made.way} of {made.pairs:,} pairs",
        f"of {made.left_out:,} pairs left out: of the ten nearest of {made.objects:,} objects "
        f"{made.recall:.3f} stay, cosine {made.cosine:.3f}, R^2 {made.explained:.3f}",
    )


def tell(made: DataclassInstance, json: bool, *lines: str) -> int:
    """Write what came of it: one JSON document, or these lines; the exit code."""
    return common.show(json, asdict(made), partial(typer.echo, "\n".join(lines)))


def _by() -> str:
    import getpass

    try:
        return f"tripletd models, {getpass.getuser()}"
    except (KeyError, OSError):  # a container's user without a name
        return "tripletd models"


def _move(
    wish: tuple[Verb, str, str | None], config: Config, *, reason: str, dry_run: bool, json: bool
) -> int:
    from daemon.models.actions import move
    from daemon.versions.storage import open_for_reading

    stored, (verb, alias, version) = open_for_reading(config), wish
    moved = move(*stored, verb, alias, version, by=_by(), reason=reason, dry_run=dry_run)
    common.write_notes(moved.notes)
    before = "no version" if moved.before is None else f"version {moved.before}"
    what = f"taken away, was {before}" if moved.after is None else f"{before} -> version {moved.after}"
    how = "would be" if moved.entry is None else f"entry {moved.entry.n}"
    return tell(moved, json, f"{moved.alias}: {what} ({how})")


def _print_collected(found: GcResult) -> None:
    verb = "would delete" if found.dry_run else "deleted"
    gone = f"{number_runs(found.gone)} ({size(found.size)})" if found.gone else "nothing"
    typer.echo(f"{verb} {gone}")
    shown = common.table(right=("kept",))
    shown.add_column("because")
    for number, why in found.kept.items():
        shown.add_row(str(number), ", ".join(why))
    if found.kept:
        common.console().print(shown)


def average(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Versions by number or name; FOLDER:VERSION names one of another folder.",
        ),
    ],
    *,
    into: Annotated[Path, typer.Option(metavar="FOLDER", help="Checkpoint folder that is to be made.")],
    weight: Annotated[
        list[float] | None,
        typer.Option(
            metavar="X", show_default=False, help="One for each source, in their order; default: alike."
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Average versions of learners that learned from different events into one, in a folder of its own.

    The folder then holds version 0 and the average as version 1: judge, serve or learn on with
    `--set checkpoints.path=FOLDER`.
    """
    from daemon.models.derive import average as act

    weights = weight or [1.0] * len(sources)
    if len(weights) != len(sources):
        message = f"{len(weights)} weights for {len(sources)} sources"
        raise UserError(message, "repeat --weight once for each, in their order", EX_USAGE)
    made = act(list(_sources(load(config, set_), sources)), weights, into)
    told = f"version {made.number} in {made.folder}: the average of {len(sources)}, {made.events:,} events"
    return tell(made, json, told)


def _sources(config: Config, names: Sequence[str]) -> Iterator[AverageSource]:
    """The folder and number of each named version. Raises UserError."""
    from daemon.look.overview import read_entries
    from daemon.models.decide import number_of
    from daemon.models.derive import AverageSource
    from daemon.versions.storage import open_existing

    for note in names:
        folder, _, name = note.rpartition(":")
        path = folder or config.checkpoints.path
        stored = open_existing(path, " of checkpoints", "name a source as FOLDER:VERSION")
        number = number_of(name, stored.versions.versions(), read_entries(stored.ledger)[0])
        yield AverageSource(stored.versions, number, f"{path}:{number}")
