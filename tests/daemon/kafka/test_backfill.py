"""History that lies in a topic of a real broker: learned as the live learner would, and swept."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from checkpoints import Version
from daemon.backfill.plan import HistoryProgress
from daemon.backfill.rounds import Reached
from daemon.backfill.run import HistoryPublisher
from daemon.exits import EX_DATAERR, EX_OK
from daemon.versions.storage import open_store
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from tests.daemon.kafka.shop import Shop
from tests.harness.kafka.control import create_topic, delete_records, delete_topic

HERE = ("--here", "--merge-events", "300", "--version-events", "1000", "--no-judge")


def backfill(shop: Shop, into: str, *options: str) -> int:
    source = shop.kafka.address(shop.topic)
    path = f"checkpoints.path={shop.folder / into}"
    return shop.tripletd("backfill", source, "--set", path, *options)


class Killed(BaseException):
    """As a kill: nothing is written afterwards."""


def end_early(shop: Shop, monkeypatch: pytest.MonkeyPatch, into: str, *options: str) -> None:
    """A backfill that is gone once its first version is there."""
    published = HistoryPublisher.__call__

    def then_end(publisher: HistoryPublisher, reached: Reached) -> Version:
        published(publisher, reached)
        assert not reached.progress.done
        raise Killed

    monkeypatch.setattr(HistoryPublisher, "__call__", then_end)
    with pytest.raises(Killed):
        backfill(shop, into, *options)
    monkeypatch.undo()


def hash_in(shop: Shop, into: str) -> str:
    found = open_store(shop.folder / into).versions.newest_manifest()
    assert found is not None
    return found.state_hash


def late(name: str) -> bytes:
    return encode_event(Event(name, 1_700_000_900_000, ObjectRef("o1"), ObjectRef("o2"), ObjectRef("o30")))


def test_a_topic_is_learned_as_its_learner_would_gaps_of_transactions_too(shop: Shop) -> None:
    assert shop.feed(600) == EX_OK
    shop.produce_in_transaction(shop.topic, [late("kept")], commit=True)
    shop.produce_in_transaction(shop.topic, [late("never")], commit=False)
    shop.produce(shop.topic, [late("last"), b"\xc1 not msgpack"])
    assert shop.learn() == EX_OK
    assert backfill(shop, "again", *HERE) == EX_OK
    versions = open_store(shop.folder / "again").versions
    assert len(versions.versions()) > 2
    assert hash_in(shop, "again") == hash_in(shop, "checkpoints")
    newest = versions.newest_manifest()
    assert newest is not None
    assert newest.counters["poison"] == 1


def test_partitions_are_shared_out_and_a_topic_that_grew_is_read_to_where_it_was(
    make_shop: Callable[[int], Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(3)
    assert shop.feed(600) == EX_OK
    assert backfill(shop, "two", *HERE, "--shards", "2") == EX_OK

    end_early(shop, monkeypatch, "ended", *HERE, "--shards", "2")
    assert shop.feed(100, 1) == EX_OK
    assert backfill(shop, "ended", *HERE, "--shards", "2") == EX_OK
    assert hash_in(shop, "ended") == hash_in(shop, "two")
    manifest = open_store(shop.folder / "ended").versions.newest_manifest()
    assert manifest is not None
    progress = HistoryProgress.in_version(manifest)
    assert progress is not None
    assert [one.partition for one in progress.units] == [0, 1, 2]


def test_a_sweep_over_a_topic_is_judged_on_its_holdout_topic(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shop.feed(900) == EX_OK
    out = str(shop.folder / "sweep")
    words = ("sweep", shop.kafka.address(shop.topic), "--set", "learner.C=0.001,0.1", "--out", out, "--json")
    capsys.readouterr()
    assert shop.tripletd(*words) == EX_OK
    found = json.loads(capsys.readouterr().out)
    assert found["measure"] == "map_full", "the shop has judgments"
    assert [one["learner.C"] for one in found["settings"]] == [0.1, 0.001]
    assert found["settings"][0]["over_own_ranking"] > 0.05
    assert shop.learn() == EX_OK
    assert shop.tripletd("judge", "latest", "--json", "--set", "learner.C=0.1") == EX_OK


@pytest.mark.parametrize("change", ["made anew", "expired"])
def test_a_topic_that_holds_other_records_now_is_not_gone_on_with(
    shop: Shop, change: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shop.feed(600) == EX_OK
    end_early(shop, monkeypatch, "ended", *HERE)
    if change == "made anew":
        delete_topic(shop.kafka, shop.topic)
        create_topic(shop.kafka, shop.topic)
        assert shop.feed(600, 1) == EX_OK
    else:
        delete_records(shop.kafka, shop.topic, before=100)
    assert backfill(shop, "ended", *HERE) == EX_DATAERR
    assert "is not given or has changed" in capsys.readouterr().err
