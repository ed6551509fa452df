"""Ids are their senders': under another key the same id is another list, wherever one is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streams.event import Impression, ObjectRef
from streams.feed.decide import Decider
from streams.feed.follow.checkpoint import FeedCheckpoints
from streams.feed.follow.join import MOST_OF_JOIN, EventTimeJoin, JoinSettings
from streams.feed.follow.records import RawRecord, RecordReader
from streams.feed.formats import read_sources
from streams.feed.items import LateClick, UnclickedList
from streams.feed.mapping.mapping import load_mapping
from streams.feed.options import FeedSettings, ReaderOptions
from streams.feed.triplets import CatalogCandidates
from tests.streams.feed.feed_builders import write_lines

GOLDEN = Path(__file__).parent / "golden"
TS = 1_700_000_000_000
SHOWN = ["p1", "p2", "p3"]


def shown(name: str, key: str | None, after: int = 0, **more: Any) -> dict[str, Any]:
    said = {"event": "impression", "impression": name, "ts": TS + after, "query": "q", "shown": SHOWN}
    return {**said, "key": key, **more}


def click(name: str, key: Any, after: int = 10, clicked: str = "p3") -> dict[str, Any]:
    said = {"event": "click", "impression": name, "ts": TS + after, "object": clicked}
    return said if key is None else {**said, "key": key}


class Followed:
    """A join and what its lists became."""

    def __init__(self, mapping: str | None = None, window_ms: int = 1_000) -> None:
        self.join = EventTimeJoin(JoinSettings(window_ms=window_ms))
        loaded = None if mapping is None else load_mapping(mapping)
        self.reader = RecordReader(self.join, ReaderOptions(0), loaded)
        self.reader.latest_ms = TS * 2
        self.decider = Decider(
            FeedSettings(holdout_share=0.0, random_negatives=0, query_cap=1), CatalogCandidates(SHOWN)
        )

    def take(self, *records: dict[str, Any]) -> None:
        self.reader.take([RawRecord(f"r:{n}", json.dumps(one).encode()) for n, one in enumerate(records)])

    def clicks(self) -> dict[tuple[str | None, str], tuple[int, ...]]:
        """Of each list that is closed now, by key and id."""
        self.join.finish()
        found: dict[tuple[str | None, str], tuple[int, ...]] = {}
        for _, item in self.join.drained():
            if isinstance(item, LateClick):
                found[item.impression.key, item.impression.id] = (*item.impression.clicked, item.rank)
            elif isinstance(item, Impression | UnclickedList):
                clicked = () if isinstance(item, UnclickedList) else item.clicked
                assert (item.key, item.id) not in found
                found[item.key, item.id] = clicked
                self.decider.decide(item)
        return found


@pytest.mark.parametrize("mapping", [None, "http"])
def test_another_key_takes_no_id_and_its_clicks_find_no_list(mapping: str | None) -> None:
    """Of a tenant who guesses ids, in every order of lists and clicks."""
    theirs = [shown(f"s{n}", "a") for n in range(20)] + [click(f"s{n}", "a") for n in range(20)]
    ours = [shown(f"s{n}", "b") for n in range(20)] + [click(f"s{n}", "b") for n in range(20)]
    for records in (theirs + ours, ours + theirs):
        followed = Followed(mapping)
        followed.take(*records)
        assert followed.clicks() == {(key, f"s{n}"): (2,) for key in "ab" for n in range(20)}
    alone = Followed(mapping)
    alone.take(*[shown(f"s{n}", "b") for n in range(20)], *[click(f"s{n}", "a") for n in range(20)])
    assert set(alone.clicks().values()) == {()}
    late = Followed(mapping, window_ms=1)
    late.take(*ours[:20])
    late.join.advance(TS + 5)
    late.take(*[click(f"s{n}", "a") for n in range(20)], *ours[20:])
    late.join.advance(TS + 20)
    assert {len(one.clicked) for one in late.join.lists()} == {1}


@pytest.mark.parametrize("mapping", [None, "http"])
def test_a_click_of_several_keys_or_of_all_finds_the_latest_list_of_its_id(mapping: str | None) -> None:
    followed = Followed(mapping)
    followed.take(shown("s", "a"), shown("s", "b", 1), shown("s", "c", 2), shown("s", None, 3))
    followed.take(click("s", ["a", "b"]), click("s", None, clicked="p2"))
    assert followed.clicks() == {("a", "s"): (), ("b", "s"): (2,), ("c", "s"): (), (None, "s"): (1,)}


def test_a_session_of_another_key_is_another() -> None:
    followed = Followed()
    followed.take(shown("i1", "a", session="s"), shown("i2", "b", 1, session="s"))
    one = {"event": "click", "session": "s", "query": "q", "ts": TS + 10, "object": "p1"}
    followed.take({**one, "key": "a"}, {**one, "key": "b"})
    assert followed.clicks() == {("a", "i1"): (0,), ("b", "i2"): (0,)}


@pytest.mark.parametrize("key", [None, "a"])
@pytest.mark.parametrize("session", [None, "s"])
@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("keys", [None, "a", ["b", "a"], "b", []])
@pytest.mark.parametrize("restored", [False, True])
def test_a_list_is_found_by_its_id_and_its_session_by_whoever_may(
    key: str | None, session: str | None, by_id: bool, keys: Any, restored: bool
) -> None:
    followed = Followed()
    followed.take(shown("i", key, session=session))
    if restored:
        plain = json.loads(json.dumps(followed.join.snapshot(), default=lambda one: one.plain()))
        followed.join = EventTimeJoin.restored(JoinSettings(window_ms=1_000), plain)
        followed.reader = RecordReader(followed.join, ReaderOptions(TS * 2))
    named = {"impression": "i"} if by_id else {"session": "s", "query": "q"}
    followed.take({"event": "click", **named, "ts": TS + 10, "object": "p3", "key": keys})
    allowed = keys is None or (key is not None and key in keys)
    assert followed.clicks() == {(key, "i"): (2,) if allowed and (by_id or session) else ()}


def test_a_forgotten_list_is_found_by_nothing() -> None:
    join = EventTimeJoin(JoinSettings(window_ms=1, remembered=1))
    for n in range(5):
        said = shown(f"i{n}", "a" if n % 2 else None, 10 * n, session="s" if n % 3 else None)
        RecordReader(join, ReaderOptions(TS * 2)).take([RawRecord("r", json.dumps(said).encode())])
    join.finish()
    (left,) = join.lists()
    assert {one.said.id for some in join._by_join.values() for one in some} == {left.said.id}


def test_the_cap_of_a_query_is_of_its_key() -> None:
    decider = Followed().decider
    fates = [decider.decide(of_key(f"i{n}", key)).fate for n, key in enumerate(["a", "a", "b", None])]
    assert fates == ["training", "dropped", "training", "training"]


def test_an_id_that_was_fed_under_another_key_is_no_duplicate() -> None:
    decider = Decider(FeedSettings(holdout_share=0.0, random_negatives=0), CatalogCandidates(SHOWN))
    decided = [decider.decide(of_key("s", key)) for key in ("a", "b", None, "a")]
    assert [one.fate for one in decided] == ["training"] * 3 + ["dropped"]
    assert decided[-1].reason == "duplicate"


def of_key(name: str, key: str | None) -> Impression:
    refs = tuple(ObjectRef(id=one) for one in SHOWN)
    return Impression(name, TS, ObjectRef(id="q"), refs, (2,), key=key)


def test_what_is_fed_from_finished_files_is_scoped_alike(tmp_path: Path) -> None:
    records = [shown("s", "a"), shown("s", "b"), click("s", "b"), click("s", ["a", "c"], clicked="p2")]
    for order in (records, records[::-1]):
        path = write_lines(tmp_path / "spool.jsonl", order)
        items = read_sources([path], ReaderOptions(TS, mapping="http"), None)
        found = {item.key: item.clicked for _, item in items if isinstance(item, Impression)}
        assert found == {"a": (1,), "b": (2,)}


def test_of_a_session_without_an_end_the_newest_lists_are_looked_at() -> None:
    followed = Followed(window_ms=10**9)
    count = MOST_OF_JOIN + 5
    followed.take(*(shown(f"i{n}", None, n, session="s") for n in range(count)))
    one = {"event": "click", "session": "s", "query": "q", "object": "p1"}
    followed.take({**one, "ts": TS + 3, "object": "p2"}, {**one, "ts": TS + count})
    clicked = [name for (_, name), ranks in followed.clicks().items() if ranks]
    assert clicked == [f"i{count - 1}"]


def test_a_key_with_many_lists_of_a_session_takes_no_room_from_another() -> None:
    followed = Followed(window_ms=10**9)
    followed.take(shown("ours", "b", session="s"))
    followed.take(*(shown(f"i{n}", "a", n, session="s") for n in range(MOST_OF_JOIN + 5)))
    followed.take(shown("also ours", "b", 10, session="s"))
    one = {"event": "click", "session": "s", "query": "q", "key": "b"}
    followed.take({**one, "object": "p1", "ts": TS + 5}, {**one, "object": "p2", "ts": TS + 20})
    clicked = {name: ranks for (_, name), ranks in followed.clicks().items() if ranks}
    assert clicked == {"ours": (0,), "also ours": (1,)}


def test_a_checkpoint_of_the_first_release_goes_on(tmp_path: Path) -> None:
    """Written before clicks had keys and the decider a memory."""
    (tmp_path / "000000000001.ckpt").write_bytes((GOLDEN / "000000000001.ckpt").read_bytes())
    checkpoints = FeedCheckpoints(tmp_path)
    said, notes = checkpoints.load()
    checkpoints.close()
    assert notes == []
    join = EventTimeJoin.restored(JoinSettings(window_ms=1_000, within_ms=1_000), said["join"])
    assert (join.open_lists, join.remembered_lists, join.waiting_clicks) == (3, 2, 3)
    decider = Followed().decider
    decider.restore(said.get("decided", said))
    assert decider.fed == 2
    join.finish()
    closed = {item.id: item for _, item in join.drained() if isinstance(item, Impression)}
    assert {name: one.clicked for name, one in closed.items()} == {"i3": (2,), "i4": (1,), "i5": (0,)}


def test_a_snapshot_keeps_whose_clicks_wait() -> None:
    followed = Followed()
    followed.take(click("s", "a"), click("s", ["b", "c"]))
    plain = json.loads(json.dumps(followed.join.snapshot()))
    again = Followed()
    again.join = EventTimeJoin.restored(JoinSettings(window_ms=1_000), plain)
    again.reader = RecordReader(again.join, ReaderOptions(TS * 2))
    again.take(shown("s", "a"), shown("s", "c"), shown("s", "d"))
    assert again.clicks() == {("a", "s"): (2,), ("c", "s"): (2,), ("d", "s"): ()}
