"""`tripletd models average|export`: the verbs that make something new of versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands.common import ConfigOption, JsonOption, SetOption, load, write_json
from daemon.exits import EX_OK, EX_UNAVAILABLE, EX_USAGE, UserError

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.models.derive import AverageSource


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
        told = f"{len(weights)} weights for {len(sources)} sources"
        raise UserError(told, "repeat --weight once for each, in their order", EX_USAGE)
    made = act(list(_sources(load(config, set_), sources)), weights, into)
    if json:
        write_json(asdict(made))
    else:
        typer.echo(
            f"version {made.number} in {made.folder}: the average of {len(sources)}, {made.events:,} events"
        )
    return EX_OK


def export(
    name: Annotated[
        str, typer.Argument(metavar="VERSION", help="A number, or latest, best, stable, a pinned name.")
    ],
    *,
    factor: Annotated[
        Path, typer.Option(metavar="FILE.npy", help="A with A^T A = the PSD part of W, float32 [rank, dim].")
    ],
    embed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            show_default=False,
            help="Also A x of every catalog object, float32 [n, rank].",
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Write the factor of a version's matrix: it embeds mapped objects for any index of inner products.

    W is made PSD once, after learning. Beside each file lies FILE.npy.json, which says what it is.
    """
    from daemon.look.readable import read_entries
    from daemon.models.compare import catalog_objects
    from daemon.models.decide import number_of
    from daemon.models.derive import export_embedding, export_factor
    from daemon.versions.storage import open_for_reading

    settings = load(config, set_)
    versions, ledger = open_for_reading(settings)
    number = number_of(name, versions.versions(), read_entries(ledger)[0])
    objects = catalog_objects(settings, versions, number) if embed is not None else None
    told, A = export_factor(versions, number, factor)
    embedded = None if embed is None else export_embedding(told, A, objects, embed)
    if json:
        write_json(asdict(told) | {"embedded": embedded})
    else:
        typer.echo(f"version {number}: A of rank {told.rank:,} in {told.dim:,} dimensions, {told.similarity}")
        if embedded is not None:
            typer.echo(f"{embedded:,} objects embedded")
    return EX_OK


def _sources(config: Config, names: Sequence[str]) -> Iterator[AverageSource]:
    """Where each named version lies. Raises UserError."""
    from checkpoints import Ledger, LocalStore, VersionStore
    from daemon.look.readable import read_entries
    from daemon.models.decide import number_of
    from daemon.models.derive import AverageSource

    for told in names:
        folder, _, name = told.rpartition(":")
        path = Path(folder or config.checkpoints.path)
        if not path.is_dir():
            raise UserError(
                f"{path}: no such folder of checkpoints", "name a source as FOLDER:VERSION", EX_UNAVAILABLE
            )
        store = LocalStore(path)
        versions = VersionStore(store)
        number = number_of(name, versions.versions(), read_entries(Ledger(store))[0])
        yield AverageSource(versions, number, f"{path}:{number}")
