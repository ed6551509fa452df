"""One impression -> its events: the rule's pairs up to a cap, and random negatives for its clicks.  Pure.

Why a cap: the pairs of a rule grow with clicks times list length, and those of one list share query,
clicked and skipped objects, so each further one repeats what the others said.  Uncapped, one long list with
several clicks gives dozens of them and outweighs many short ones; on photo lists a cap of a few pairs
gave the same quality from a fraction of the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from streams.event import Event, ObjectRef
from streams.feed.negatives import Candidates, draw
from streams.feed.rules import RULES, Pairs
from streams.feed.settings import FeedSettings
from streams.impression import Impression
from streams.routing import route_key


@dataclass(frozen=True, slots=True)
class Made:
    """The events of one impression and how they came about.

    `negatives`: how many of them have a random negative; `no_negative`: how many could not be
    drawn; `pairs`: what the rule gave, of which `lost_pairs` are left out because an object is
    unknown and `capped_pairs` because of the cap.
    """

    events: tuple[Event, ...]
    negatives: int = 0
    no_negative: int = 0
    pairs: int = 0
    lost_pairs: int = 0
    capped_pairs: int = 0


def make_events(
    impression: Impression, unknown: frozenset[int], candidates: Candidates, settings: FeedSettings
) -> Made:
    """The events of an impression, ids derived from its id and the ranks (`id/c/s`, `id/c/r0`).

    `unknown`: shown ranks whose objects the catalog lacks.  A random negative is never the query nor
    any object clicked in this impression, and is drawn for every click, whatever the cap left of its pairs.
    """
    pairs = RULES[settings.rule](len(impression.shown), impression.clicked)
    usable = tuple(pair for pair in pairs if not unknown.intersection(pair)) if unknown else pairs
    kept = capped(usable, settings.triplets_per_impression, impression.id, settings.seed)
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
    lost, over = len(pairs) - len(usable), len(usable) - len(kept)
    return Made(tuple(events), found, len(drawn) - found, len(pairs), lost, over)


def capped(pairs: Pairs, cap: int, impression_id: str, seed: int) -> Pairs:
    """At most `cap` of the pairs (all where it is 0), in their order; every choice is as likely.

    Kept are those whose hash of seed, impression id and ranks is smallest (BLAKE2b-64), so feeding the same
    impression again keeps the same pairs, and a larger cap only adds to them.
    """
    if not cap or len(pairs) <= cap:
        return pairs
    salt = seed.to_bytes(16, "little", signed=True)

    def place(pair: tuple[int, int]) -> bytes:
        text = f"{impression_id}/{pair[0]}/{pair[1]}".encode()
        return blake2b(text, digest_size=8, key=salt, person=b"pair").digest()

    chosen = frozenset(sorted(pairs, key=place)[:cap])
    return tuple(pair for pair in pairs if pair in chosen)


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
        key=impression.key,
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
        key=event.key,
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
