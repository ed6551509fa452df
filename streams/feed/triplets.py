"""One impression -> its events: the rule's pairs, and random negatives for its clicks.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from streams.event import Event, ObjectRef
from streams.feed.negatives import Candidates, draw
from streams.feed.rules import RULES
from streams.feed.settings import FeedSettings
from streams.impression import Impression
from streams.routing import route_key


@dataclass(frozen=True, slots=True)
class Made:
    """The events of one impression and how they came about.

    ``negatives``: how many of them have a random negative; ``no_negative``: how many could not be
    drawn; ``lost_pairs``: pairs of the rule left out because an object is unknown.
    """

    events: tuple[Event, ...]
    negatives: int = 0
    no_negative: int = 0
    lost_pairs: int = 0


def make_events(
    impression: Impression, unknown: frozenset[int], candidates: Candidates, settings: FeedSettings
) -> Made:
    """The events of an impression, ids derived from its id and the ranks (``id/c/s``, ``id/c/r0``).

    ``unknown``: shown ranks whose objects the catalog lacks.  A random negative is never the query nor
    any object clicked in this impression.
    """
    pairs = RULES[settings.rule](len(impression.shown), impression.clicked)
    kept = [pair for pair in pairs if not unknown.intersection(pair)] if unknown else pairs
    events = [
        _event(impression, clicked, impression.shown[skipped], f"{impression.id}/{clicked}/{skipped}")
        for clicked, skipped in kept
    ]
    drawn = list(_negatives(impression, unknown, candidates, settings))
    events += [
        _event(impression, clicked, skipped, f"{impression.id}/{clicked}/r{number}")
        for clicked, number, skipped in drawn
        if skipped is not None
    ]
    found = len(events) - len(kept)
    return Made(tuple(events), found, len(drawn) - found, len(pairs) - len(kept))


def _negatives(
    impression: Impression, unknown: frozenset[int], candidates: Candidates, settings: FeedSettings
) -> Iterator[tuple[int, int, ObjectRef | None]]:
    """(clicked rank, number, object or None) per negative wanted."""
    if not settings.random_negatives:
        return
    clicked_objects = [impression.shown[rank] for rank in impression.clicked]
    excluded = frozenset(route_key(item) for item in (impression.query, *clicked_objects))
    for clicked in impression.clicked:
        if clicked in unknown:
            continue
        for number in range(settings.random_negatives):
            purpose = f"{impression.id}/{clicked}/{number}"
            yield clicked, number, draw(candidates, excluded, purpose, settings.seed)


def _event(impression: Impression, clicked: int, skipped: ObjectRef, name: str) -> Event:
    return Event(
        id=name,
        ts=impression.ts,
        query=impression.query,
        clicked=impression.shown[clicked],
        skipped=skipped,
        source=impression.source,
        impression=impression.id,
        propensity=impression.propensity[clicked] if impression.propensity else None,
        space=impression.space,
    )


def as_impression(event: Event) -> Impression:
    """A plain triplet as a two-item impression: the skipped object above the clicked one.

    Above, because a skipped object was passed over; the order has no other ground.
    """
    return Impression(
        id=event.id,
        ts=event.ts,
        query=event.query,
        shown=(event.skipped, event.clicked),
        clicked=(1,),
        source=event.source,
        space=event.space,
    )


def without(impression: Impression, ranks: frozenset[int]) -> Impression:
    """The impression less the objects at these ranks; clicks and propensities follow the rest."""
    if not ranks:
        return impression
    kept = [rank for rank in range(len(impression.shown)) if rank not in ranks]
    place = {rank: at for at, rank in enumerate(kept)}
    propensity = impression.propensity
    return replace(
        impression,
        shown=tuple(impression.shown[rank] for rank in kept),
        clicked=tuple(place[rank] for rank in impression.clicked if rank in place),
        propensity=tuple(propensity[rank] for rank in kept) if propensity else None,
    )
