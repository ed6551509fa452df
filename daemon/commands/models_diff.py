"""`tripletd models diff A B`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import VERSION, ConfigOption, JsonOption, SetOption, console, load, opened, table
from daemon.exits import EX_OK
from daemon.text import safe

if TYPE_CHECKING:
    from rich.table import Table

    from daemon.models.diff import Diff, Queries
    from learners.spectrum import Spectrum


FIRST = 2
"""Most ids in the table of queries, of objects that entered and of objects that left."""


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help=VERSION.help)],
    after: Annotated[str, typer.Argument(metavar="B", help=VERSION.help)],
    *,
    queries: Annotated[
        int, typer.Option(min=0, max=100_000, help="Objects of the catalog asked as queries; 0 asks none.")
    ] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample of queries.")] = 0,
    most: Annotated[int, typer.Option(min=1, max=10_000, help="Longest list of each kind.")] = 10,
    key: Annotated[str | None, typer.Option(help="Whose model, where there is one per key.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """What changed between two versions: features, spectrum, and the queries whose top 10 moved most."""
    from daemon.models.compare import CompareOptions, catalog_objects, compare
    from daemon.models.decide import number_of

    settings = load(config, set_)
    versions, _, entries = opened(settings)
    kept = versions.versions()
    pair = number_of(before, kept, entries), number_of(after, kept, entries)
    objects = catalog_objects(settings, versions, pair[0]) if queries else None
    asked = CompareOptions(entries=most, queries=queries, moved=most, seed=seed, key=key)
    found = compare(versions, pair, settings.serving, objects, asked)
    if json:
        common.write_json(asdict(found))
    else:
        common.write_notes(f"left out: {what}" for what in found.skipped)
        _print(found)
    return EX_OK


def _print(found: Diff) -> None:
    out = console()
    out.print(f"from version {found.before} to version {found.after}, {found.dim:,} dimensions")
    if found.spectra:
        shares = found.relative, found.symmetric
        own, symmetric = ("-" if one is None else f"{one:.2%}" for one in shares)
        out.print(f"W changed by {own} of its norm, its symmetric part by {symmetric}")
    for one in _tables(found):
        out.print()
        out.print(one)
    if found.queries is not None:
        out.print()
        _print_queries(found.queries)


def _tables(found: Diff) -> Iterator[Table]:
    if found.spectra:
        spectra = table("spectrum of sym(W)", f"version {found.before}", f"version {found.after}")
        for name, of in _FIGURES.items():
            spectra.add_row(name, *(of(one) for one in found.spectra))
        yield spectra
    if found.steps:
        steps = table("similarity of", "and", "before", "after")
        for step in found.steps:
            steps.add_row(step.first, step.second, _number(step.before), _number(step.after))
        yield steps
    if found.directions:
        turns = table("along", "rose by")
        for turn in found.directions:
            features = ", ".join(f"{weight:+.2f} {name}" for name, weight in turn.features)
            turns.add_row(features, _number(turn.value))
        yield turns


def _print_queries(queries: Queries) -> None:
    from rich.text import Text

    out = console()
    out.print(
        f"{queries.sampled:,} objects as queries (seed {queries.seed}): {queries.shared:.1%} of the top "
        f"{queries.k} stay, {queries.unchanged:,} queries unchanged"
    )
    if not queries.moved:
        return
    moved = table("query", "stay", "entered", "left")
    for one in queries.moved:
        query, entered, left = (Text(safe(ids)) for ids in (one.id, _some(one.entered), _some(one.left)))
        moved.add_row(query, f"{one.shared}", entered, left)
    out.print(moved)


def _some(ids: Sequence[str]) -> str:
    """The first few; --json has them all."""
    more = f" and {len(ids) - FIRST} more" if len(ids) > FIRST else ""
    return ", ".join(ids[:FIRST]) + more


_FIGURES: Mapping[str, Callable[[Spectrum], str]] = {
    "largest eigenvalue": lambda one: _number(one.largest[0]),
    "smallest eigenvalue": lambda one: _number(one.smallest[0]),
    "negative": lambda one: "-" if one.negatives is None else f"{one.negatives:,}",
    "effective rank": lambda one: _number(one.effective_rank),
    "stable rank": lambda one: _number(one.stable_rank),
}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
