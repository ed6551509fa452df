"""One impression -> its events: the rule's pairs up to a cap, and random negatives for its clicks.

Why a cap: the pairs of a rule grow with clicks times list length, and those of one list share query,
clicked and skipped objects, so each further one repeats what the others said. Uncapped, one long list
with several clicks gives dozens of them and outweighs many short ones; on photo lists a cap of a few
pairs gave the same quality from a fraction of the events. Learners of pairs above the clicks and learners of
both sides have a sample of their own each, whose pairs are as likely as one another: of a long list with a
click near the top nearly all pairs are below it, and who learns both sides must not learn otherwise. One
event serves both samples where it is in both; what the other takes changes nothing for either.

Why random negatives: learning from shown lists alone compares nearly right objects with nearly right
ones; a uniformly drawn object per click is the sampling of Chechik et al., JMLR 11 (2010), section 2.3,
and keeps retrieval over the whole catalog in view. They are drawn once, from a seed, and written into the
event.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from streams.event import (
    ONLY_ABOVE,
    ONLY_BOTH,
    PAIR_ABOVE,
    PAIR_BELOW,
    PAIR_RANDOM,
    PAIR_SIDES,
    Draft,
    Event,
    Impression,
    ObjectRef,
)
from streams.feed.options import OF_BOTH_SIDES, RULES, FeedSettings, RankPairs
from streams.partitions import route_key

SEEN_SIZE = 10_000
"""Objects remembered without a catalog."""

MAX_DRAWS = 64
"""Draws before giving up where nearly every candidate is excluded."""


class Candidates(Protocol):
    """The objects a negative is drawn from."""

    def __len__(self) -> int:
        """How many there are now."""

    def at(self, index: int) -> ObjectRef:
        """The candidate at this place."""

    def see(self, shown: Sequence[ObjectRef | str]) -> None:
        """Take in the objects of one impression, or their ids."""


class CatalogCandidates:
    """All objects of a catalog, by id: every one is as likely."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def at(self, index: int) -> ObjectRef:
        """The object in this row of the catalog."""
        return ObjectRef(id=self._ids[index])

    def see(self, shown: Sequence[ObjectRef | str]) -> None:
        """Nothing to learn: the catalog is complete."""


class SeenCandidates:
    """Without a catalog: a uniform sample of the distinct objects shown so far, of bounded size.

    It keeps the `size` objects whose seeded hash is smallest (a bottom-k sketch; Cohen and Kaplan,
    PODC 2007), so an object counts once however often it is shown, and the same input gives the same
    sample.  Until more than `size` objects were shown it holds all of them; the first impressions of
    a run therefore draw from few.
    """

    def __init__(self, size: int = SEEN_SIZE, seed: int = 0) -> None:
        self._size = size
        self._salt = _salt(seed)
        self._members: dict[bytes, None] = {}
        self._heap: list[tuple[int, bytes, ObjectRef]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, index: int) -> ObjectRef:
        """One object of the sample; the order is fixed by what was seen, in which order."""
        return self._heap[index][2]

    def see(self, shown: Sequence[ObjectRef | str]) -> None:
        """Take the objects of one impression into the sample."""
        for item in shown:
            key = item.encode() if isinstance(item, str) else route_key(item)
            if key not in self._members:
                self._offer(key, item)

    def _offer(self, key: bytes, item: ObjectRef | str) -> None:
        # Negated: heapq keeps its smallest entry in front, the one to give way is the largest hash.
        place, full = -_hash(self._salt, key), len(self._heap) >= self._size
        if full and place <= self._heap[0][0]:
            return
        entry = (place, key, ObjectRef(id=item) if isinstance(item, str) else item)
        if full:
            del self._members[heapq.heapreplace(self._heap, entry)[1]]
        else:
            heapq.heappush(self._heap, entry)
        self._members[key] = None


def draw(candidates: Candidates, excluded: frozenset[bytes], purpose: str, seed: int) -> ObjectRef | None:
    """One candidate, uniform among those whose route key is not in `excluded`; None where none is found.

    A pure function of the candidates, the seed and `purpose` (impression id, clicked rank and number
    of the negative), so feeding the same impression again draws the same object.
    """
    size = len(candidates)
    if not size:
        return None
    salt = _salt(seed)
    for attempt in range(MAX_DRAWS):
        # The bias of the modulo is below size / 2**64.
        chosen = candidates.at(_hash(salt, f"{purpose}/{attempt}".encode()) % size)
        if route_key(chosen) not in excluded:
            return chosen
    return None


def _salt(seed: int) -> bytes:
    return seed.to_bytes(16, "little", signed=True)


def _hash(salt: bytes, key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8, key=salt, person=b"negative").digest(), "little")


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

    @property
    def below(self) -> int:
        """How many events have a skipped object that stood below the click."""
        return sum(event.pair & PAIR_SIDES == PAIR_BELOW for event in self.events)

    @property
    def for_above(self) -> int:
        """How many events a learner of pairs above the clicks takes, those with random negatives included."""
        return sum(event.pair in _FOR_ABOVE for event in self.events)


_FOR_ABOVE = frozenset(range(ONLY_BOTH)) - {PAIR_BELOW, PAIR_BELOW | ONLY_ABOVE}


def make_events(
    impression: Impression,
    unknown: frozenset[int],
    candidates: Candidates,
    settings: FeedSettings,
    fed: int = 0,
) -> Made:
    """The events of an impression, ids derived from its id and the ranks (`id/c/s`, `id/c/r0`); `fed`: how
    many the stream holds already.

    `unknown`: shown ranks whose objects the catalog lacks.  A random negative is never the query nor
    any object clicked in this impression, and is drawn for every click, whatever the cap left of its pairs.
    """
    pairs = RULES[settings.rule](len(impression.shown), impression.clicked)
    usable = tuple(pair for pair in pairs if not unknown.intersection(pair)) if unknown else pairs
    kept = sampled(usable, settings, impression.id)
    by_rank = settings.position_weights
    events = [
        _event(
            impression,
            clicked,
            impression.shown[skipped],
            f"{impression.id}/{clicked}/{skipped}",
            pair=pair,
            weight=1.0 if by_rank is None else by_rank.of_pair(clicked, skipped),
        )
        for (clicked, skipped), pair in kept.items()
    ]
    drawn = list(_negatives(impression, unknown, candidates, settings))
    of_drawn = settings.weight_of_drawn(fed)
    events += [
        _event(
            impression,
            clicked,
            skipped,
            f"{impression.id}/{clicked}/r{number}",
            pair=PAIR_RANDOM,
            weight=of_drawn * (1.0 if by_rank is None else by_rank.of_drawn(clicked)),
        )
        for clicked, number, skipped in drawn
        if skipped is not None
    ]
    found = len(events) - len(kept)
    lost, over = len(pairs) - len(usable), len(usable) - len(kept)
    return Made(tuple(events), found, len(drawn) - found, len(pairs), lost, over)


def make_correction(
    impression: Impression,
    late: int,
    unknown: frozenset[int],
    candidates: Candidates,
    settings: FeedSettings,
    *,
    fed: int = 0,
) -> Made:
    """What a late click at rank `late` adds to a list that was learned with its other clicks.

    The pairs that the rule gives with all clicks and did not give without this one, under the ids that they
    would have had; and for each pair that had passed the late object over, the same pair turned round, which
    takes that step back and has the `pair` of what it takes back. `pairs` counts both.
    """
    before = make_events(impression, unknown, candidates, settings, fed)
    whole = replace(impression, clicked=tuple(sorted({*impression.clicked, late})))
    known = {event.id for event in before.events}
    added = [
        event
        for event in make_events(whole, unknown, candidates, settings, fed).events
        if event.id not in known and event.id.startswith(f"{impression.id}/{late}/")
    ]
    ending = f"/{late}"
    turned = [
        _event(
            impression,
            late,
            event.clicked,
            f"{impression.id}/{late}/{event.id.split('/')[-2]}",
            pair=event.pair,
            weight=event.weight,
        )
        for event in before.events
        if event.id.endswith(ending) and not is_drawn(event)
    ]
    drawn = sum(is_drawn(event) for event in added)
    return Made((*added, *turned), negatives=drawn, pairs=len(added) - drawn + len(turned))


def is_drawn(event: Event) -> bool:
    """Whether the skipped object of an event was drawn by chance, as its id says: nobody passed it over."""
    last = event.id.rpartition("/")[2]
    return event.impression is not None and last[:1] == "r" and last[1:].isdecimal()


def sampled(pairs: RankPairs, settings: FeedSettings, impression_id: str) -> Mapping[tuple[int, int], int]:
    """Pairs of ranks in their order, with the `pair` of their events: for learners of pairs above the clicks
    `triplets_per_impression` of those at most (0: all), for learners of both sides twice as many of all;
    where the rule gives pairs of one side, as many of that for everybody. Every choice is as likely.

    Chosen are those whose hash of seed, impression id and ranks is smallest (BLAKE2b-64), so feeding the same
    impression again chooses the same pairs, and a larger cap only adds to them.
    """
    side = {(c, s): PAIR_ABOVE if s < c else PAIR_BELOW for c, s in pairs}
    cap, salt = settings.triplets_per_impression, _salt(settings.seed)
    if not cap or len(pairs) <= cap:
        return side

    def place(pair: tuple[int, int]) -> bytes:
        text = f"{impression_id}/{pair[0]}/{pair[1]}".encode()
        return blake2b(text, digest_size=8, key=salt, person=b"pair").digest()

    ordered = sorted(pairs, key=place)
    if settings.rule not in OF_BOTH_SIDES:
        few = frozenset(ordered[:cap])
        return {pair: side[pair] for pair in pairs if pair in few}
    above = frozenset([pair for pair in ordered if side[pair] == PAIR_ABOVE][:cap])
    both, chosen = frozenset(ordered[: 2 * cap]), dict[tuple[int, int], int]()
    for pair in pairs:
        if pair in both:
            chosen[pair] = side[pair] | (ONLY_BOTH if side[pair] == PAIR_ABOVE and pair not in above else 0)
        elif pair in above:
            chosen[pair] = side[pair] | ONLY_ABOVE
    return chosen


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


def _event(
    impression: Impression, clicked: int, skipped: ObjectRef, name: str, *, pair: int, weight: float
) -> Event:
    return Event(
        weight=weight,
        pair=pair,
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
    """A plain triplet as a two-item impression: the skipped object below the clicked one where the triplet
    says so, else above, because a skipped object was passed over.
    """
    below = event.pair & PAIR_SIDES == PAIR_BELOW
    return Impression(
        id=event.id,
        ts=event.ts,
        query=event.query,
        shown=(event.clicked, event.skipped) if below else (event.skipped, event.clicked),
        clicked=(0 if below else 1,),
        source=event.source,
        space=event.space,
        key=event.key,
    )


def without(impression: Impression, ranks: frozenset[int]) -> Impression:
    """The impression less the objects at these ranks; clicks, propensities and teams follow the rest."""
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
        draft=None if impression.draft is None else _draft_of(impression.draft, place),
    )


def _draft_of(draft: Draft, place: Mapping[int, int]) -> Draft:
    explored = None if draft.explored is None else place.get(draft.explored)
    return replace(
        draft,
        teams=tuple(draft.teams[rank] for rank in place),
        explored=explored,
        chance=None if explored is None else draft.chance,
    )
