"""Mostly poison: learning pauses with its position kept, over restarts too, and goes on when told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from structlog.testing import capture_logs

from checkpoints import LedgerEntry, pause_in_force
from checkpoints.ledger import Ledger
from checkpoints.store import WriteFailed
from daemon.cli import main
from daemon.exits import EX_DATAERR, EX_OK, UserError
from daemon.learn.loop import LOOK_EVERY_S, Halts, PoisonGate
from daemon.learn.observe import halt_reason
from daemon.learn.resume.origin import LearnOptions
from streams.open import open_source
from tests.daemon.learn.conftest import Site, make_events
from tests.harness.topics import delete_topic

POISON = b"\xc1 not an event"
SMALL = {"stream__pause_poison_window": 100, "stream__poll_records": 10, "checkpoints__every_events": 10}


def test_only_a_full_window_tells_and_it_forgets() -> None:
    gate = PoisonGate(0.5, 100)
    gate.count(99, 99)
    assert gate.too_much() is None
    gate.count(1, 1)
    assert gate.too_much() == "100 of the last 100 records are dead letters"
    for kept in (0.9, 0.8, 0.7, 0.6, 0.5):
        gate.count(10, 0)
        assert gate.share == pytest.approx(kept, abs=0.01)
    assert gate.too_much() is None
    for _ in range(5):
        gate.count(10, 0)
    assert gate.share == 0


def test_the_share_itself_is_not_too_much() -> None:
    gate = PoisonGate(0.5, 100)
    for _ in range(10):
        gate.count(10, 5)
    assert gate.too_much() is None
    gate.count(10, 6)
    assert gate.too_much() is not None


def test_what_was_forgiven_does_not_count() -> None:
    gate = PoisonGate(0.5, 10)
    gate.forgive({0: 50, 1: 7})
    gate.passed(0, 40, 10, 10)
    gate.passed(1, 0, 10, 10)
    assert gate.too_much() is None
    gate.passed(0, 50, 10, 10)
    assert gate.too_much() is not None


def paused(site: Site, **changes: Any) -> None:
    with pytest.raises(UserError, match="paused, the position is kept") as told:
        site.learn(**SMALL, **changes)
    assert told.value.code == EX_DATAERR
    assert "tripletd resume" in told.value.remedy


def test_a_pause_says_what_ends_it() -> None:
    halt = LedgerEntry(n=1, kind="STOP", reason="60 of 100", measures={"pause": "poison"})
    assert halt_reason(halt) == "paused: 60 of 100; `tripletd resume` continues now"


def resume(site: Site) -> None:
    assert main(["resume", "--set", f"checkpoints.path={site.folder / 'checkpoints'}"]) == EX_OK


def test_it_pauses_keeps_the_position_and_goes_on_when_told(new_site: Callable[..., Site]) -> None:
    site, spared = new_site(), new_site()
    records = [*make_events(80), *[POISON] * 90, *make_events(60, seed=1)]
    site.feed(records)
    paused(site)
    stands = site.newest()
    assert stands.counters["records"] == stands.positions[0].next_offset == 140  # 60 of the last 100
    assert [letter.offset for letter in site.dead()] == list(range(80, 140))
    entry = pause_in_force(site.ledger.entries())
    assert entry is not None
    with closing(open_source(site.address)) as source:
        topic_id = source.identity().topic_id
    assert entry.measures == {"pause": "poison", "positions": {"0": 140}, "topic_id": topic_id}
    paused(site)  # a restart walks on through nothing
    site.ledger.append({"kind": "RESUME", "by": "test"})  # which ends an early stop, and there is none
    paused(site)
    assert site.newest() == stands
    resume(site)
    assert site.learn(**SMALL) == EX_OK  # and does not pause for the same ones, nor for 30 more
    spared.feed(records)
    spared.learn(stream__pause_poison_share=1)
    assert site.newest().state_hash == spared.newest().state_hash
    assert site.newest().counters == spared.newest().counters
    assert len(site.dead()) == 90


def test_a_restart_in_the_middle_of_poison_forgets_none_of_it(site: Site) -> None:
    """Each run alone sees too little to tell."""
    site.feed(make_events(80))
    site.learn(**SMALL)
    site.feed([POISON] * 30)
    site.learn(**SMALL)
    site.feed([POISON] * 30)
    paused(site)
    assert site.newest().counters["records"] == 140


def test_a_pause_that_was_not_written_any_more_is_found_again(site: Site) -> None:
    """The process died between the last version and the ledger."""
    for records in (make_events(80), [POISON] * 60):
        site.feed(records)
        site.learn(**SMALL, stream__pause_poison_share=1)
    before = site.versions.versions()
    site.feed(make_events(50, seed=1))
    paused(site)
    assert site.versions.versions() == before


def test_after_the_pause_new_poison_pauses_again(site: Site) -> None:
    site.feed([*make_events(80), *[POISON] * 60])
    paused(site)
    resume(site)
    site.feed([POISON] * 200)
    paused(site)
    assert site.newest().counters["records"] == 240
    assert len(site.ledger.entries()) == 3


def test_an_older_version_walks_through_what_was_forgiven(site: Site) -> None:
    site.feed([*make_events(80), *[POISON] * 60])
    paused(site)
    resume(site)
    newest = site.versions.versions()[-1]
    for part in sorted((site.folder / "checkpoints" / "versions").glob(f"*{newest}/*")):
        part.unlink()
        part.write_bytes(b"")
    assert site.learn(**SMALL) == EX_OK
    assert site.newest().counters["records"] == 140


def test_nothing_of_another_log_was_forgiven(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed([*make_events(80), *[POISON] * 60])
    paused(site)
    resume(site)
    assert site.learn(**SMALL) == EX_OK
    delete_topic(site.address)
    site.feed([*make_events(10, seed=1), *[POISON] * 120])
    with pytest.raises(UserError, match="paused, the position is kept"):
        site.learn(LearnOptions(True, start="earliest", accept_log=True), **SMALL)
    assert 100 <= site.newest().positions[0].next_offset < 130


def test_poison_of_another_log_does_not_count_in_this_one(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed([*make_events(80), *[POISON] * 60])
    paused(site)
    resume(site)
    delete_topic(site.address)
    site.feed(make_events(40, seed=1))
    assert site.learn(LearnOptions(True, start="earliest", accept_log=True), **SMALL) == EX_OK
    assert site.learn(**SMALL) == EX_OK
    assert site.newest().positions[0].next_offset == 40


def test_a_full_disk_pauses_all_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    gate = PoisonGate(0.5, 10)
    halts = Halts(site.ledger, gate, lambda: {0: 10}, lambda: now[0], "one")

    def refuse(ledger: Ledger, entry: dict[str, Any]) -> LedgerEntry:
        raise WriteFailed("ledger", "no space left on device")

    gate.count(10, 10)
    with monkeypatch.context() as full, capture_logs() as lines:
        full.setattr(Ledger, "append", refuse)
        for _ in range(3):
            halt = halts.in_force()
            assert halt is not None
            assert halt.measures["pause"] == "poison"
            now[0] += 2 * LOOK_EVERY_S
    assert [line["log_level"] for line in lines] == ["error"]
    assert halts.in_force() == pause_in_force(site.ledger.entries())
    assert len(site.ledger.entries()) == 1
