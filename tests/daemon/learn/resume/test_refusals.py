"""A version that this run must not go on with, and what the user is told."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from checkpoints.manifest import Manifest, PartitionPosition
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_OK, UserError
from daemon.learn import compatible as describe
from daemon.learn.reader import open_inputs
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.state import partitions
from streams.catalog import Catalog
from streams.codec import encode_event
from streams.errors import LogMismatch
from streams.event import DenseColumn, Event, ObjectRef, SpaceSpec, ViewSpec
from streams.open import MemorySource, open_source, retain
from streams.source import UNKNOWN
from tests.daemon.learn.conftest import DIM, Site, make_events
from tests.harness.catalog_files import save_catalog
from tests.harness.topics import delete_topic


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learner__C": 0.2}, "learner.C"),
        ({"learner__psd_every": 7}, "learner.psd_every"),
        ({"space__id": "other"}, "space.id"),
        ({"space__views__x__map": "unit"}, "learner.views"),
        ({"stream__max_record_bytes": "2KiB"}, "learner.max_record_bytes"),
    ],
)
def test_other_settings_are_refused_by_name(site: Site, change: dict[str, object], named: str) -> None:
    site.feed(make_events(5))
    site.learn()
    before = site.versions.store.list()
    with pytest.raises(UserError, match=named) as refused:
        site.learn(**change)
    assert refused.value.code == EX_CONFIG
    assert site.versions.store.list() == before  # not even a claim


@pytest.mark.parametrize(
    "options",
    [LearnOptions(restart_from=99), LearnOptions(restart_from=0, start='offset={"0": 99}'), LearnOptions()],
    ids=["no such version", "no such offset", "expired records"],
)
def test_a_mistaken_start_stops_no_running_learner(site: Site, options: LearnOptions) -> None:
    site.feed(make_events(5))
    site.learn()
    if options.restart_from is None:
        site.feed(make_events(20, seed=1))
        retain(site.address, max_age_s=None, max_bytes=1)
    before = site.versions.store.list()
    with pytest.raises(UserError):
        site.learn(options)
    assert site.versions.store.list() == before  # not even a claim


def test_going_on_where_bits_may_differ_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.feed(make_events(5))
    site.learn()
    with capture_logs() as same:
        site.learn()
    monkeypatch.setattr(describe, "CPU_LEVEL", "another")
    with capture_logs() as other:
        site.learn()
    assert not [line for line in same if "same bits" in line["event"]]
    assert [line["now"]["cpu_level"] for line in other if "same bits" in line["event"]] == ["another"]


def test_another_catalog_is_refused(site: Site) -> None:
    spec = SpaceSpec("default", (ViewSpec("x", "dense", DIM),))
    paths = []
    for seed in (1, 2):
        values = np.random.default_rng(seed).standard_normal((4, DIM)).astype(np.float32)
        paths.append(str(site.folder / f"catalog{seed}.safetensors"))
        save_catalog(Catalog(list("abcd"), {"x": DenseColumn(values)}, spec), paths[-1])
    by_id = [encode_event(Event(f"e{n}", n, *(ObjectRef(id=name) for name in "abc"))) for n in range(3)]
    unknown = encode_event(Event("u", 1, ObjectRef(id="a"), ObjectRef(id="nobody"), ObjectRef(id="b")))
    site.feed([*by_id, unknown, *make_events(3)])
    assert site.learn(catalog__path=paths[0]) == EX_OK
    counters = site.newest().counters
    assert counters["updated"] + counters["passive"] == 6
    assert [letter.reason for letter in site.dead()] == ["unknown_object"]
    with pytest.raises(UserError, match="catalog") as refused:
        site.learn(catalog__path=paths[1])
    assert refused.value.code == EX_CONFIG


def test_a_recreated_topic_is_refused(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    site.learn()
    delete_topic(site.address)
    site.feed(make_events(5))
    with pytest.raises(UserError, match="topic_id") as refused:
        site.learn()
    assert refused.value.code == EX_DATAERR


def test_no_reader_opens_another_topic_than_the_start_did(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    with ExitStack() as stack:
        inputs = open_inputs(stack, site.config())
        inputs.open_reader().close()
        delete_topic(site.address)
        site.feed(make_events(5, seed=1))
        with pytest.raises(LogMismatch, match="re-created"):
            inputs.open_reader()


def test_what_was_learned_last_is_known_to_the_reader(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make_events(5)
    site.feed(events)
    site.learn()
    known = []
    real = MemorySource.assign

    def assign(self: MemorySource, positions: Any, known_now: Any = UNKNOWN) -> None:
        known.append((dict(positions), dict(known_now)))
        real(self, positions, known_now)

    monkeypatch.setattr(MemorySource, "assign", assign)
    site.learn()
    assert ({0: 5}, {0: sha256(events[-1]).hexdigest()}) in known


def test_a_log_restored_from_an_older_copy_is_refused(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    log = site.folder / "clicks.log"
    shutil.copy(log, site.folder / "copy")
    site.feed(make_events(3, seed=1))
    site.learn()
    for part in site.folder.glob("clicks.log*"):
        part.unlink()
    shutil.copy(site.folder / "copy", log)
    with pytest.raises(UserError, match="3 learned records are missing"):
        site.learn()
    site.feed(make_events(3, seed=2))
    with pytest.raises(UserError, match="another record") as refused:
        site.learn()
    assert refused.value.code == EX_DATAERR


def test_the_record_learned_last_is_compared_also_where_it_is_the_oldest_kept(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    site.learn()
    retain(site.address, max_age_s=None, max_bytes=1, before={0: 4})
    assert _bounds(site) == (4, 5)
    assert site.learn() == EX_OK
    with closing(sqlite3.connect(site.folder / "clicks.log")) as log, log:
        for (table,) in log.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%(offset %'").fetchall():
            log.execute(f"UPDATE {table} SET value = ? WHERE offset = 4", make_events(1, seed=7))
    with pytest.raises(UserError, match="another record"):
        site.learn()


def test_expired_records_need_an_accepted_gap(site: Site) -> None:
    site.feed(make_events(5))
    site.learn()
    site.feed(make_events(10, seed=1))
    retain(site.address, max_age_s=None, max_bytes=1)
    earliest = _bounds(site)[0]
    assert earliest > 5
    site.feed(make_events(4, seed=2))
    with pytest.raises(UserError, match=f"{earliest - 5} records") as refused:
        site.learn()
    assert refused.value.code == EX_DATAERR
    assert site.learn(LearnOptions(exit_when_caught_up=True, accept_gap=True)) == EX_OK
    schedule = site.newest().schedule
    assert schedule[0] == {"control": "gap", "partition": 0, "from": 5, "to": earliest}
    assert schedule[1][1:] == (earliest, 19)


def _bounds(site: Site) -> tuple[int, int]:
    source = open_source(site.address)
    try:
        return source.bounds()[0]
    finally:
        source.close()


def _learned_from(topic_id: str) -> Manifest:
    stream = {"log_id": "L", "topic": "t", "topic_id": topic_id, "partitions": 1}
    return Manifest(
        kind="version",
        number=4,
        epoch=0,
        writer="",
        created="",
        stream=stream,
        positions={0: PartitionPosition(500)},
    )


def test_more_partitions_of_a_topic_without_an_id_are_refused_with_the_way_on() -> None:
    """Whether it is the same topic cannot be told: an old broker."""
    version = _learned_from("None")
    with pytest.raises(describe.OtherLog, match="gives topics no id") as refused:
        describe.refuse_other_stream(
            version, version.stream | {"partitions": 3}, dict.fromkeys(range(3), (0, 500))
        )
    assert """--accept-log --start 'offset={"0": 500, "1": 0, "2": 0}'""" in refused.value.remedy


@pytest.mark.parametrize(("change", "has"), [({"partitions": 3}, 3), ({}, None)])
def test_more_partitions_of_the_same_topic_are_the_same_log(change: dict[str, Any], has: int | None) -> None:
    version = _learned_from("id")
    stream = version.stream | change
    describe.refuse_other_stream(version, stream, {0: (0, 500)})
    assert describe.grown(version, stream) == (None if has is None else partitions(1, has))


@pytest.mark.parametrize(
    "change", [{"partitions": 0}, {"partitions": 3, "topic_id": "other"}, {"partitions": 3, "log_id": "M"}]
)
def test_fewer_partitions_or_another_topic_are_another_log(change: dict[str, Any]) -> None:
    version = _learned_from("id")
    with pytest.raises(describe.OtherLog, match="learned from"):
        describe.refuse_other_stream(version, version.stream | change, {0: (0, 500)})
