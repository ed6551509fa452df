"""The cap on pairs per impression: which are kept, what is counted, what it leaves alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from streams.event import Impression
from streams.feed.options import FeedSettings
from streams.feed.triplets import CatalogCandidates, Made, make_events

from .feed_builders import impression

CATALOG = CatalogCandidates([f"p{number}" for number in range(30)])


def make(item: Impression, unknown: frozenset[int] = frozenset(), **changes: object) -> Made:
    how = replace(FeedSettings(rule="skip_above", random_negatives=0), **changes)
    return make_events(item, unknown, CATALOG, how)


def test_pairs_over_the_cap_are_counted_and_random_negatives_are_not_capped() -> None:
    item = impression("i", 10, (4, 9))  # 4 + 8 pairs under skip_above
    whole = make(item, triplets_per_impression=0, random_negatives=2)
    assert (whole.pairs, len(whole.events), whole.capped_pairs) == (12, 12 + 4, 0)
    made = make(item, triplets_per_impression=3, random_negatives=2)
    assert (made.pairs, made.capped_pairs, made.negatives) == (12, 9, 4)
    assert made.events[3:] == whole.events[12:]
    unknown = make(item, frozenset({0}), triplets_per_impression=3, random_negatives=0)
    assert (unknown.pairs, unknown.lost_pairs, unknown.capped_pairs, len(unknown.events)) == (12, 2, 7, 3)


def test_the_pairs_kept_are_drawn_with_seed_and_id_in_list_order() -> None:
    item = impression("i", 10, (4, 9))
    names = [event.id for event in make(item, triplets_per_impression=0).events]

    def kept(cap: int, item: Impression = item, **changes: object) -> list[str]:
        return [event.id for event in make(item, triplets_per_impression=cap, **changes).events]

    for cap in range(1, 12):
        assert kept(cap) == [name for name in names if name in kept(cap)]
        assert set(kept(cap)) < set(kept(cap + 1))
        assert len(kept(cap)) == cap
    assert kept(6, seed=1) != kept(6)
    other = kept(6, replace(item, id="other"))
    assert [name.replace("other", "i") for name in other] != kept(6)


def test_every_pair_is_as_likely_to_be_kept() -> None:
    ranks = Counter(
        event.id.partition("/")[2]
        for number in range(600)
        for event in make(impression(f"i{number}", 7, (6,)), triplets_per_impression=2).events
    )
    assert len(ranks) == 6
    assert all(150 < count < 250 for count in ranks.values())  # 2 of 6 pairs, 600 times: 200 expected
