"""The whole loop on a real broker: clicks in, a better similarity out, and nothing lost or counted twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from checkpoints.entries import aliases
from daemon.exits import EX_OK, EX_UNAVAILABLE
from daemon.versions.contents import learner_arrays
from streams.codec import decode_event, decode_impression, encode_event, encode_impression
from streams.errors import TopicMissing
from streams.event import Event, Impression, ObjectRef
from streams.kafka.topics import inspect_topic
from streams.source import parse_address
from tests.daemon.kafka.shop import DIM, Shop
from tests.harness import forked
from tests.harness.kafka.control import create_topic

ROOT = Path(__file__).parents[3]
Capture = pytest.CaptureFixture[str]


def event(name: str, clicked: ObjectRef) -> bytes:
    return encode_event(Event(name, 1, ObjectRef("o1"), clicked, ObjectRef("o3")))


def poisons() -> dict[str, tuple[bytes | None, str]]:
    """Records that can never be learned from: (value, reason)."""
    mark = np.float32(0.7654321)
    good = event("x", ObjectRef(x=np.full(DIM, mark, np.float32)))
    return {
        "noise": (b"\xc1 not msgpack", "not_msgpack"),
        "nothing": (None, "null_value"),
        "nan": (good.replace(mark.tobytes(), np.float32(np.nan).tobytes()), "not_finite"),
        "unknown": (event("u", ObjectRef("no-such-object")), "unknown_object"),
        "short": (event("s", ObjectRef(x=np.ones(DIM - 1, np.float32))), "wrong_dim"),
        "json": (b'{"clicked": 1}', "trailing_bytes"),
        "tail": (event("t", ObjectRef("o2")) + b"\0", "trailing_bytes"),
    }


def picture(shop: Shop, capsys: Capture) -> dict[str, object]:
    capsys.readouterr()
    assert shop.tripletd("status", "--json") == EX_OK
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_clicks_become_a_better_similarity(make_shop: Callable[[int], Shop], capsys: Capture) -> None:
    shop = make_shop(2)
    assert shop.feed(2500) == EX_OK
    before = picture(shop, capsys)["stream"]
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    newest, entries = shop.newest(), shop.ledger.entries()
    assert aliases(entries)["best"] == newest.number > 0
    (judged,) = (one.measures for one in entries if one.kind == "KEEP" and one.version == newest.number)
    assert judged["map_full"] > judged["version_0"]["map_full"] + 0.1
    after = picture(shop, capsys)["stream"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert (before["lag"] > 2000, after["lag"]) == (True, 0)
    assert newest.counters["records"] == before["lag"]
    described = inspect_topic(parse_address(shop.kafka.address(shop.topic))).identity
    assert newest.stream["topic_id"] == described.topic_id
    assert newest.stream["log_id"] == described.log_id


def test_topics_hold_what_they_are_for(shop: Shop) -> None:
    assert shop.feed(300) == EX_OK
    events = [decode_event(record.value) for record in shop.records(shop.topic)]
    lists = [decode_impression(record.value) for record in shop.records(f"{shop.topic}.holdout")]
    held_out = [one for one in lists if not one.trained]
    assert events
    assert held_out
    assert {one.query.id for one in events}.isdisjoint(one.query.id for one in held_out)
    assert all(len(one.shown) == 8 for one in held_out)
    assert shop.records(f"{shop.topic}.dead") == []


def test_every_poison_is_a_dead_letter_with_its_place(shop: Shop) -> None:
    assert shop.feed(200) == EX_OK
    bad = poisons()
    places = shop.produce(shop.topic, [value for value, _ in bad.values()])
    assert shop.feed(200, 1) == EX_OK
    holdout = f"{shop.topic}.holdout"
    query = Impression("i", 1, ObjectRef("o1"), (ObjectRef("o2"), ObjectRef("who")), (0,))
    worse = shop.produce(holdout, [b"\x93", encode_impression(query)])
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    letters = {record.key: record for record in shop.records(f"{shop.topic}.dead")}
    expected = [(shop.topic, *place, *kind) for place, kind in zip(places, bad.values(), strict=True)]
    expected += [(holdout, *worse[0], b"\x93", "not_msgpack")]
    expected += [(holdout, *worse[1], encode_impression(query), "unknown_object")]
    assert len(letters) == len(expected)
    for topic, partition, offset, value, reason in expected:
        letter = letters[f"{topic}/{partition}/{offset}".encode()]
        headers = {name: text.decode() for name, text in letter.headers}
        assert letter.value == value
        assert headers.pop("detail")
        assert headers == {
            "reason": reason,
            "topic": topic,
            "partition": str(partition),
            "offset": str(offset),
        }
    counters = shop.newest().counters
    assert counters["poison"] + counters["rejected"] == len(bad)


def test_a_restart_goes_on_where_it_stood(shop: Shop) -> None:
    assert shop.feed(300) == EX_OK
    shop.produce(shop.topic, [b"\xc1"])
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    first, judged = shop.newest(), len(shop.ledger.entries())
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    assert shop.newest().counters == first.counters
    assert shop.feed(100, 1) == EX_OK
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    assert shop.newest().counters["records"] == len(shop.records(shop.topic)) > first.counters["records"]
    assert len(shop.records(f"{shop.topic}.dead")) == 1
    assert len(shop.ledger.entries()) > judged


def test_clicks_fed_twice_change_nothing(shop: Shop) -> None:
    """What feed leaves behind when a broker does not answer and everything is sent again."""
    assert shop.feed(400) == EX_OK
    assert shop.learn() == EX_OK
    once, records = shop.versions.newest_valid(), len(shop.records(shop.topic))
    assert shop.feed(400) == EX_OK
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    twice = shop.versions.newest_valid()
    assert once is not None
    assert twice is not None
    assert twice.manifest.counters["duplicate"] == records
    assert twice.manifest.counters["updated"] == once.manifest.counters["updated"] > 0
    for name, array in learner_arrays(once.arrays).items():
        np.testing.assert_array_equal(array, learner_arrays(twice.arrays)[name])
    lists = (decode_impression(record.value) for record in shop.records(f"{shop.topic}.holdout"))
    held_out = sum(not one.trained for one in lists)
    (judged,) = [
        one for one in shop.ledger.entries() if one.kind == "KEEP" and one.version == twice.manifest.number
    ]
    assert judged.measures["impressions"] <= held_out // 2


def test_offsets_without_a_record_are_no_lag_and_what_was_aborted_is_not_learned(
    shop: Shop, capsys: Capture
) -> None:
    holdout, query = f"{shop.topic}.holdout", ObjectRef("o1")
    assert shop.feed(200) == EX_OK
    records = len(shop.records(shop.topic))
    for commit in (True, False):
        names = [f"{commit}{n}" for n in range(5)]
        events = [event(name, ObjectRef("o2")) for name in names]
        lists = [
            encode_impression(Impression(name, 1, query, (ObjectRef("o2"), ObjectRef("o30")), (0,)))
            for name in names
        ]
        shop.produce_in_transaction(shop.topic, events, commit=commit)
        shop.produce_in_transaction(holdout, lists, commit=commit)
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)  # both found the end
    assert shop.newest().counters["records"] == records + 5
    stream = picture(shop, capsys)["stream"]
    assert isinstance(stream, dict)
    assert stream["partitions"][0]["end"] == records + 5 + 1 + 5 + 1  # with two markers
    assert stream["lag"] == 0


def test_no_role_makes_topics(make_shop: Callable[[int], Shop], capsys: Capture) -> None:
    shop = make_shop(0)
    assert (shop.feed(10), shop.tripletd("topics", "describe")) == (EX_UNAVAILABLE, EX_UNAVAILABLE)
    assert capsys.readouterr().out.endswith("made by `tripletd topics create`\n")
    for role in (shop.learn, shop.validate):
        with pytest.raises(TopicMissing, match="`tripletd topics create`"):
            role()
    with shop.kafka.admin() as admin:
        assert not [name for name in admin.list_topics() if name.startswith(shop.topic)]


def test_without_a_topic_for_dead_letters_nothing_begins(make_shop: Callable[[int], Shop]) -> None:
    shop = make_shop(0)
    create_topic(shop.kafka, shop.topic)
    create_topic(shop.kafka, f"{shop.topic}.holdout")
    for role in (shop.learn, shop.validate):
        with pytest.raises(TopicMissing, match=f"{shop.topic}.dead.*`tripletd topics create`"):
            role()
    with shop.kafka.admin() as admin:
        assert f"{shop.topic}.dead" not in admin.list_topics()


def test_retention_is_the_brokers(shop: Shop, capsys: Capture) -> None:
    assert shop.feed(100) == EX_OK
    records = len(shop.records(shop.topic))
    assert shop.feed(100, 1, "--set", "stream.retention=1s") == EX_OK
    assert shop.learn(stream__retention="1s") == EX_OK
    assert len(shop.records(shop.topic)) > records  # all far older than a second
    capsys.readouterr()
    shop.tripletd("topics", "describe", "--set", "stream.retention=1s", "--json")
    (told,) = json.loads(capsys.readouterr().out)["topics"][0]["differences"]
    assert (told["setting"], told["found"], told["wanted"]) == ("retention.ms", "-1", "1000")
    assert "the broker keeps records longer than stream.retention says" in told["why"]


def test_up_runs_the_loop_on_a_broker(make_shop: Callable[[int], Shop]) -> None:
    shop = make_shop(3)
    assert shop.feed(1500) == EX_OK
    ended = forked.run(
        [sys.executable, "-m", "daemon", "up", "--config", str(shop.file), "--exit-when-caught-up"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == EX_OK, ended.stderr
    assert aliases(shop.ledger.entries())["best"] > 0
