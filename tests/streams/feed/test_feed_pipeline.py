"""The pipeline: sums balance, no query on both sides, feeding again gives the same, every reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.codec import decode_event, decode_impression
from streams.event import (
    PAIR_ABOVE,
    PAIR_BELOW,
    Event,
    Impression,
    ObjectRef,
    SpaceSpec,
    SparseVector,
    ViewSpec,
)
from streams.feed import items as reasons
from streams.feed.decide import Decider, Decision, QueryCap, SeenIds
from streams.feed.items import Dropped, FeedError, Ignored, Item
from streams.feed.options import RULES, FeedSettings
from streams.feed.run import Account, FeedRun
from streams.feed.triplets import CatalogCandidates, SeenCandidates
from streams.partitions import partition_of, route_key

from .feed_builders import Kept, impression, placed

CATALOG = [f"p{number}" for number in range(12)]
NAMES = st.sampled_from([*CATALOG, "gone1", "gone2"])


def balances(account: Account) -> bool:
    """Whether nothing was read without a fate, nor written without a ground."""
    fates = account.training + account.holdout + sum(account.dropped.values())
    pairs = account.from_pairs + account.unknown_pairs + account.capped_pairs
    written = account.from_pairs + account.random_negatives
    return (account.read, account.triplets, account.pairs) == (fates, written, pairs)


def events(name: str, query: str, clicked: str, skipped: str) -> Event:
    return Event(name, 5, ObjectRef(id=query), ObjectRef(id=clicked), ObjectRef(id=skipped))


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    """A random log: impressions, plain triplets, malformed and foreign lines; ids repeat now and then."""
    made: list[Item] = []
    for _ in range(draw(st.integers(0, 16))):
        kind = draw(st.integers(0, 9))
        name = f"i{draw(st.integers(0, 20))}"
        query = f"q{draw(st.integers(0, 6))}" if draw(st.booleans()) else draw(NAMES)
        if kind == 0:
            made.append(Dropped(draw(st.sampled_from([reasons.NOT_JSON, reasons.MISSING_ID])), "x"))
        elif kind == 1:
            made.append(Ignored(reasons.OTHER_ACTION, "x"))
        elif kind == 2:
            made.append(events(name, query, draw(NAMES), draw(NAMES)))
        else:
            shown = draw(st.lists(NAMES, min_size=1, max_size=6))
            clicked = sorted(draw(st.sets(st.integers(0, len(shown) - 1))))
            made.append(impression(name, shown, clicked, query))
    return made


FEEDS = st.builds(
    FeedSettings,
    rule=st.sampled_from(sorted(RULES)),
    triplets_per_impression=st.integers(0, 3),
    random_negatives=st.integers(0, 2),
    holdout_share=st.sampled_from([0.0, 0.3, 0.7]),
    query_cap=st.sampled_from([0, 1, 3]),
    dedupe_window=st.sampled_from([0, 2, 1000]),
    seed=st.integers(0, 3),
    partitions=st.integers(1, 3),
)


def feed(log: list[Item], how: FeedSettings, with_catalog: bool) -> tuple[Account, Kept]:
    kept = Kept()
    candidates = CatalogCandidates(CATALOG) if with_catalog else SeenCandidates(size=5, seed=how.seed)
    known = frozenset([*CATALOG, *(f"q{n}" for n in range(7))]) if with_catalog else None
    return FeedRun(Decider(how, candidates, known), kept).run(placed(log)), kept


@settings(max_examples=80, deadline=None)
@given(items(), FEEDS, st.booleans())
def test_sums_balance_and_match_what_was_written(log: list[Item], how: FeedSettings, catalog: bool) -> None:
    account, kept = feed(log, how, catalog)
    assert balances(account)
    assert account.read == sum(not isinstance(item, Ignored) for item in log)
    assert sum(account.ignored.values()) == len(log) - account.read
    assert account.triplets == len(kept.training)
    assert account.holdout == len(kept.holdout)
    written = [decode_event(record.value) for record in kept.training]
    random = sum(event.id.rpartition("/")[2].startswith("r") for event in written)
    assert account.random_negatives == random
    if how.triplets_per_impression:
        pairs = Counter((one.impression, one.pair) for one in written if one.pair in (PAIR_ABOVE, PAIR_BELOW))
        if how.dedupe_window >= len(log):
            assert max(pairs.values(), default=0) <= how.triplets_per_impression
    if how.dedupe_window >= len(log):
        assert account.training == len({event.impression or event.id for event in written})


@settings(max_examples=80, deadline=None)
@given(items(), FEEDS, st.booleans())
def test_no_query_is_in_both_and_each_keeps_its_partition(
    log: list[Item], how: FeedSettings, catalog: bool
) -> None:
    _, kept = feed(log, how, catalog)
    training = {route_key(decode_event(record.value).query) for record in kept.training}
    holdout = {route_key(decode_impression(record.value).query) for record in kept.holdout}
    assert not training & holdout
    for record in kept.training:
        assert record.key is not None
        assert record.partition == partition_of(record.key, how.partitions)
    # a sink places these by their key, over as many partitions as its topic has
    assert {(record.key is None, record.partition) for record in kept.holdout} <= {(False, None)}


@settings(max_examples=50, deadline=None)
@given(items(), FEEDS, st.booleans())
def test_feeding_again_writes_the_same_records(log: list[Item], how: FeedSettings, catalog: bool) -> None:
    first, again = feed(log, how, catalog), feed(log, how, catalog)
    assert first[0] == again[0]
    assert (first[1].training, first[1].holdout) == (again[1].training, again[1].holdout)


@settings(max_examples=50, deadline=None)
@given(items(), FEEDS, st.integers(0, 16))
def test_going_on_after_an_interruption_writes_exactly_the_rest(
    log: list[Item], how: FeedSettings, fed: int
) -> None:
    fed = min(fed, len(log))
    _, whole = feed(log, how, with_catalog=False)
    _, before = feed(log[:fed], how, with_catalog=False)
    after = Kept()
    FeedRun(Decider(how, SeenCandidates(size=5, seed=how.seed)), after, skip=fed).run(placed(log))
    assert before.training + after.training == whole.training
    assert before.holdout + after.holdout == whole.holdout


@settings(max_examples=50, deadline=None)
@given(items(), FEEDS)
def test_caps_ids_and_negatives_keep_their_word(log: list[Item], how: FeedSettings) -> None:
    _, kept = feed(log, how, with_catalog=True)
    per_query: defaultdict[bytes | None, set[str]] = defaultdict(set)
    ids: Counter[str] = Counter()
    for event in (decode_event(record.value) for record in kept.training):
        per_query[route_key(event.query)].add(event.impression or event.id)
        ids[event.id] += 1
        assert {event.clicked.id, event.skipped.id} <= set(CATALOG) | {f"q{n}" for n in range(7)}
        if event.id.rpartition("/")[2].startswith("r"):
            assert event.skipped.id not in (event.query.id, event.clicked.id)
    for one in (decode_impression(record.value) for record in kept.holdout):
        per_query[route_key(one.query)].add(one.id)
        ids[one.id] += 1
        assert 0 < len(one.clicked) < len(one.shown)
    if how.query_cap:
        assert all(len(names) <= how.query_cap for names in per_query.values())
    if how.dedupe_window >= len(log):
        assert all(count == 1 for count in ids.values())


def decide(item: Item, known: set[str] | None = None, **changes: object) -> Decision:
    how = replace(FeedSettings(holdout_share=0.0, random_negatives=0), **changes)
    return Decider(how, CatalogCandidates(CATALOG), known).decide(item)


ALL = {*CATALOG, "q"}

REASONS: list[tuple[str, Item, set[str] | None, dict[str, object]]] = [
    (reasons.NO_CLICK, impression("i", 4, ()), None, {}),
    (reasons.NO_SKIPPED_ABOVE, impression("i", 4, (0,)), None, {"rule": "skip_above"}),
    (reasons.NO_SKIPPED_ABOVE, impression("i", 4, (0, 1)), None, {"rule": "last_click"}),
    (reasons.NO_PAIR, impression("i", 4, (3,)), None, {"rule": "skip_next"}),
    (reasons.ALL_CLICKED, impression("i", 2, (0, 1)), None, {}),
    (
        reasons.ALL_CLICKED,
        impression("i", 2, (0, 1)),
        None,
        {"holdout_share": 0.999999, "random_negatives": 1},
    ),
    (reasons.UNKNOWN_OBJECT, impression("i", 4, (2,)), set(CATALOG), {}),
    (reasons.UNKNOWN_OBJECT, impression("i", 4, (2,)), ALL - {"p2"}, {}),
    (reasons.UNKNOWN_OBJECT, impression("i", 2, (1,)), ALL - {"p0"}, {}),
    (reasons.UNKNOWN_OBJECT, events("i", "q", "p0", "gone"), ALL, {}),
    ("malformed:too_large", impression("i" * 600, 4, (2,)), None, {}),
    (reasons.NOT_UTF8, impression("i", 4, (2,), query="\ud800"), None, {}),
    (reasons.BAD_CLICKED_RANK, Dropped(reasons.BAD_CLICKED_RANK, "x"), None, {}),
]


@pytest.mark.parametrize(("reason", "item", "known", "changes"), REASONS)
def test_reason(reason: str, item: Item, known: set[str] | None, changes: dict[str, object]) -> None:
    decision = decide(item, known, **changes)
    assert (decision.fate, decision.reason) == ("dropped", reason)
    assert not decision.training


SPACE = SpaceSpec("s", (ViewSpec("x", "dense", 2), ViewSpec("t", "sparse", 9)))
FITS = {"x": np.ones(2, np.float32), "t": SparseVector(np.array([8], np.int32), np.ones(1, np.float32))}
BEYOND = SparseVector(np.array([9], np.int32), np.ones(1, np.float32))
MISFITS = [
    ({**FITS, "x": np.ones(3, np.float32)}, "wrong_dim"),
    ({"x": FITS["x"]}, "wrong_view"),
    ({**FITS, "more": FITS["x"]}, "wrong_view"),
    ({**FITS, "t": FITS["x"]}, "wrong_kind"),
    ({**FITS, "t": BEYOND}, "index_out_of_range"),
]


@pytest.mark.parametrize("place", ["query", "clicked", "skipped", "shown"])
@pytest.mark.parametrize(("views", "reason"), [*MISFITS, (FITS, "")])
def test_features_of_another_size_are_not_fed(views: Any, reason: str, place: str) -> None:
    wrong, right = ObjectRef(views=views), ObjectRef(id="p0", views=FITS)
    item: Item = events("e", "q", "p1", "p2")
    if place == "shown":
        item = Impression("i", 5, right, (right, wrong), (0,))
    else:
        item = replace(item, **{place: wrong})
    how = FeedSettings(holdout_share=0.0, random_negatives=0, rule="all_skipped")
    decision = Decider(how, CatalogCandidates(CATALOG), None, SPACE).decide(item)
    assert decision.reason == (reasons.MALFORMED + reason if reason else "")
    assert (decision.fate == "training") == (not reason)
    if reason:
        assert place in decision.detail
        assert reasons.remedy(decision.reason)


def test_features_said_to_be_of_another_space_are_for_who_learns_it() -> None:
    other = replace(events("e", "q", "p1", "p2"), query=ObjectRef(views=MISFITS[0][0]), space="theirs")
    how = FeedSettings(holdout_share=0.0, random_negatives=0)
    assert Decider(how, CatalogCandidates(CATALOG), None, SPACE).decide(other).fate == "training"


@pytest.mark.parametrize("item", [impression("i", 4, (0,)), impression("i", 2, (0, 1))])
def test_a_random_negative_saves_what_the_rule_cannot_use(item: Impression) -> None:
    decision = decide(item, random_negatives=1, rule="skip_above")
    assert decision.fate == "training"
    assert decision.made.negatives == len(item.clicked) == len(decision.training)


def test_random_negatives_weigh_what_is_said_and_pairs_weigh_1() -> None:
    decision = decide(impression("i", 4, (2, 3)), random_negatives=1, negative_weight=0.25)
    weights = {event.id: event.weight for event in decision.made.events}
    pairs = dict.fromkeys(("i/2/0", "i/2/1", "i/3/0", "i/3/1"), 1.0)
    assert weights == pairs | {"i/2/r0": 0.25, "i/3/r0": 0.25}


def test_unknown_shown_objects_cost_their_pairs_only() -> None:
    decision = decide(impression("i", 4, (1, 3)), ALL - {"p0"}, random_negatives=1)
    assert [event.id for event in decision.made.events] == ["i/1/2", "i/3/2", "i/1/r0", "i/3/r0"]
    assert decision.made.lost_pairs == 2


def test_unknown_shown_objects_leave_a_holdout_impression() -> None:
    shown = replace(impression("i", 4, (1, 3)), propensity=(1.0, 0.7, 0.5, 0.4))
    decision = decide(shown, ALL - {"p0", "p1"}, holdout_share=0.999999)
    kept = decode_impression(decision.holdout[0].value)
    assert [item.id for item in kept.shown] == ["p2", "p3"]
    assert kept.clicked == (1,)
    assert kept.propensity == (0.5, 0.4)


def test_duplicates_and_the_cap() -> None:
    how = FeedSettings(holdout_share=0.0, query_cap=2)
    log = [*(impression(name) for name in ("a", "a", "b", "c")), impression("d", query="other")]
    account, kept = feed(log, how, with_catalog=False)
    assert account.dropped == {reasons.DUPLICATE: 1, reasons.QUERY_CAP: 1}
    assert {decode_event(record.value).impression for record in kept.training} == {"a", "b", "d"}


def test_an_id_is_known_for_its_key_alone() -> None:
    log = [replace(impression("1"), key=key) for key in ("a", "b", "a", None)]
    account, kept = feed(log, FeedSettings(holdout_share=0.0), with_catalog=False)
    assert account.dropped == {reasons.DUPLICATE: 1}
    assert {decode_event(record.value).key for record in kept.training} == {"a", "b", None}


def test_event_fields_come_from_the_impression() -> None:
    shown = replace(impression("i", 3, (2,)), propensity=(1.0, 0.7, 0.5), source="web")
    event = decode_event(decide(shown).training[0].value)
    wanted = Event(
        "i/2/0", 1000, ObjectRef(id="q"), ObjectRef(id="p2"), ObjectRef(id="p0"), 1.0, "web", "i", 0.5
    )
    assert event == replace(wanted, pair=PAIR_ABOVE)


def test_a_plain_triplet_of_a_holdout_query_becomes_a_two_item_impression() -> None:
    decision = decide(events("t", "q", "c", "s"), holdout_share=0.999999)
    kept = decode_impression(decision.holdout[0].value)
    assert decision.fate == "holdout"
    assert ([item.id for item in kept.shown], kept.clicked, kept.id) == (["s", "c"], (1,), "t")


def test_the_key_goes_with_the_events_and_with_the_holdout() -> None:
    shown = replace(impression("i", 3, (2,)), key="tenant")
    assert {decode_event(record.value).key for record in decide(shown).training} == {"tenant"}
    triplet = replace(events("t", "q", "c", "s"), key="tenant")
    for one in (shown, triplet):
        held = decide(one, holdout_share=0.999999)
        assert held.fate == "holdout"
        assert decode_impression(held.holdout[0].value).key == "tenant"
    long = decide(replace(shown, key="k" * 65))
    assert (long.fate, long.reason) == ("dropped", reasons.MALFORMED + "too_large")


def test_the_space_is_written_beside_inline_features_only() -> None:
    inline = Event("t", 1, *(ObjectRef(x=np.full(2, number, np.float32)) for number in range(3)))
    assert decode_event(decide(inline, space="s1").training[0].value).space == "s1"
    assert decode_event(decide(replace(inline, space="own"), space="s1").training[0].value).space == "own"
    assert decode_event(decide(events("t", "q", "c", "s"), space="s1").training[0].value).space is None


class Full:
    """An outlet that fails from the n-th call on."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.written = 0

    def write(self, training: list, holdout: list) -> None:
        if self.left == 0:
            raise OSError("no space")
        self.left -= 1
        self.written += len(training)


def test_the_account_covers_what_was_written_when_the_outlet_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.feed.run.BATCH_RECORDS", 6)
    outlet = Full(calls=2)
    how = FeedSettings(holdout_share=0.0, random_negatives=0)
    run = FeedRun(Decider(how, CatalogCandidates([])), outlet)
    with pytest.raises(OSError, match="no space"):
        run.run(placed(impression(f"i{number}", 3) for number in range(30)))
    assert run.committed.triplets == outlet.written == 12
    assert (run.items, run.place) == (6, "log:6")
    assert balances(run.committed)


def test_what_came_before_an_unreadable_place_is_fed() -> None:
    def broken():
        yield from placed([impression("a"), impression("b")])
        raise FeedError("cut short", "copy it again")

    kept = Kept()
    run = FeedRun(Decider(FeedSettings(holdout_share=0.0), CatalogCandidates(CATALOG)), kept)
    with pytest.raises(FeedError):
        run.run(broken())
    assert run.committed.training == run.items == 2
    assert len(kept.training) == run.committed.triplets


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": "skipabove"},
        {"holdout_share": 1.0},
        {"random_negatives": -1},
        {"negative_weight": 0.0},
        {"negative_weight": 1.5},
        {"partitions": 0},
        {"triplets_per_impression": -1},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="use"):
        replace(FeedSettings(), **wrong)


def test_a_long_log_keeps_every_query_on_one_side_and_the_share() -> None:
    log: list[Item] = [impression(f"i{number}", query=f"q{number % 200}") for number in range(1000)]
    log += [events(f"t{number}", f"q{number % 200}", "p1", "p2") for number in range(400)]
    account, kept = feed(log, FeedSettings(holdout_share=0.4), with_catalog=False)
    training = {decode_event(record.value).query.id for record in kept.training}
    holdout = {decode_impression(record.value).query.id for record in kept.holdout}
    assert not training & holdout
    assert len(training | holdout) == 200
    assert 60 <= len(holdout) <= 100
    assert account.holdout == 7 * len(holdout)


def test_lists_are_held_out_one_by_one_where_queries_are_few() -> None:
    """One query, whose lists go both ways; the same list always the same way."""
    how = FeedSettings(holdout_share=0.2, holdout_by="list", random_negatives=0, query_cap=0)
    items = [impression(f"visit-{n}", 4, (2,)) for n in range(1_000)]
    fates = [Decider(how, CatalogCandidates(CATALOG)).decide(item).fate for item in items]
    assert 150 < fates.count("holdout") < 250
    assert fates.count("training") == 1_000 - fates.count("holdout")
    decider = Decider(how, CatalogCandidates(CATALOG))
    assert [decider.decide(item).fate for item in reversed(items)] == fates[::-1]
    by_query = Decider(replace(how, holdout_by="query"), CatalogCandidates(CATALOG))
    assert len({by_query.decide(item).fate for item in items}) == 1
    with pytest.raises(ValueError, match="holdout_by"):
        FeedSettings(holdout_by="session")


def test_the_window_remembers_exactly_its_size() -> None:
    seen = SeenIds(2)
    for name in ("a", "b", "a", "c"):
        seen.add(name)
    assert [name in seen for name in "abc"] == [False, True, True]
    nothing = SeenIds(0)
    nothing.add("a")
    assert "a" not in nothing


def test_the_cap_forgets_the_query_longest_unseen() -> None:
    cap = QueryCap(1, max_queries=2)
    for key in (b"a", b"b", b"a", b"c"):
        cap.add(key)
    assert [cap.full(key) for key in (b"a", b"b", b"c")] == [True, False, True]
    assert not QueryCap(0).full(b"a")
