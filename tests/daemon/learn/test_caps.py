"""Caps on what one source, query or item does to W: exact, told, and the same whatever happens in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_OK
from daemon.learn.replay.replay import replay
from daemon.learn.state import caps
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import open_source
from streams.poison import DeadLetter
from tests.daemon.learn.conftest import DIM, Site

CAPS: dict[str, Any] = {"caps__window": 50, "caps__source": 6.0, "caps__query": 2.0, "caps__item": 4.0}
OUTCOMES = ("updated", "passive", "degenerate", "rejected", "duplicate", "poison", "capped")


def crowded(count: int, seed: int = 0, objects: int = 9) -> list[bytes]:
    """Events over few objects and sources, some of them without a source, of several weights."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((objects, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    events = []
    for number in range(count):
        q, c, s = (ObjectRef(x=rows[one]) for one in rng.integers(0, objects, 3))
        source, weight = rng.choice(["web", "app", ""]), float(rng.choice([0.4, 1.0, 3.0]))
        events.append(encode_event(Event(f"e{seed}.{number}", number, q, c, s, weight, str(source) or None)))
    return events


def flood(count: int) -> list[bytes]:
    """Clicks of one item, each from a query and against an item of its own."""
    rng = np.random.default_rng(5)
    clicked = ObjectRef(x=np.eye(DIM, dtype=np.float32)[0])
    rows = rng.standard_normal((count, 2, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    return [
        encode_event(Event(f"f{n}", n, ObjectRef(x=q), clicked, ObjectRef(x=s)))
        for n, (q, s) in enumerate(rows)
    ]


def learned(site: Site, records: list[bytes], **changes: Any) -> None:
    site.feed(records)
    assert site.learn(**changes) == EX_OK


def equal_by_replay(site: Site, start: int = 0) -> bool:
    with closing(open_source(site.address)) as source:
        return replay(site.versions, source, None, start, site.newest().number).equal


def letters(site: Site) -> list[DeadLetter]:
    return sorted(site.dead(), key=lambda one: one.offset)


def test_how_records_are_polled_and_where_it_restarts_changes_nothing(new_site: Callable[..., Site]) -> None:
    events = crowded(240)
    whole, again = new_site(), new_site()
    learned(whole, events, **CAPS)
    for start in range(0, 240, 60):
        learned(again, events[start : start + 60], **CAPS, stream__poll_records=7)
    first, second = whole.newest(), again.newest()
    assert first.state_hash == second.state_hash
    assert first.counters == second.counters
    assert letters(whole) == letters(again)
    assert equal_by_replay(again)
    assert first.counters["capped"] > 20
    assert sum(first.counters.get(name, 0) for name in OUTCOMES) == 240


def test_what_a_cap_refuses_is_told_with_its_reason_and_bytes(site: Site) -> None:
    events = crowded(240)
    learned(site, events, **CAPS)
    told, counters = letters(site), site.newest().counters
    assert all(letter.value == events[letter.offset] for letter in told)
    reasons = Counter(letter.reason for letter in told)
    assert set(reasons) == {"cap_source", "cap_query", "cap_item"}
    assert {f"capped.{reason}": n for reason, n in reasons.items()} == {
        name: count for name, count in counters.items() if name.startswith("capped.")
    }
    assert counters["capped"] == len(told)
    assert counters["limited"] > 0


def test_a_flood_for_one_item_moves_w_by_its_cap_and_pauses_nobody(new_site: Callable[..., Site]) -> None:
    free, capped = new_site(), new_site()
    learned(free, flood(1500))
    learned(
        capped, flood(1500), caps__item=5, stream__pause_poison_share=0.5, stream__pause_poison_window=100
    )
    moved = [
        np.linalg.norm(site.versions.load(site.newest().number).arrays["W"] - np.eye(DIM))
        for site in (free, capped)
    ]
    assert moved[1] <= 2 * 0.1 * 5 < moved[0]  # ||tau V|| <= 2 C at unit length
    assert capped.newest().counters["records"] == 1500
    assert capped.newest().counters["capped"] > 1400


def test_caps_are_turned_on_while_somebody_is_at_it(site: Site) -> None:
    learned(site, flood(40))
    before = site.newest().number
    learned(site, crowded(100, seed=1), **CAPS)
    entries = [entry for entry in site.newest().schedule if isinstance(entry, dict)]
    then = {"window": 50, "source": 6.0, "query": 2.0, "item": 4.0}
    assert entries == [caps(then)]
    assert site.newest().learner["config"]["caps"] == then
    assert site.newest().counters["capped"] > 0
    learned(site, crowded(100, seed=2), **{**CAPS, "caps__item": 1.0})
    learned(site, crowded(30, seed=3))
    assert "caps" not in site.newest().learner["config"]
    assert not [name for name in site.versions.load(site.newest().number).arrays if name.startswith("caps.")]
    assert equal_by_replay(site)
    assert equal_by_replay(site, before)


def test_an_event_that_a_cap_refused_can_be_sent_again(site: Site) -> None:
    events = flood(30)
    learned(site, events, caps__item=1)
    capped = site.newest().counters["capped"]
    learned(site, events, caps__item=1)
    assert site.newest().counters["duplicate"] == 30 - capped
    assert site.newest().counters["capped"] == 2 * capped


def test_events_without_a_source_have_one_in_common(site: Site) -> None:
    learned(site, flood(60), caps__source=3)
    assert {letter.reason for letter in site.dead()} == {"cap_source"}


@pytest.mark.parametrize("algorithm", ["soml-da", "soml-tg", "lego", "dissim-oasis", "oasis-diagonal"])
def test_any_learner_can_be_capped(site: Site, algorithm: str) -> None:
    learned(site, crowded(120), **CAPS, learner__algorithm=algorithm, stream__poll_records=9)
    assert site.newest().counters["capped"] > 0
    assert equal_by_replay(site)
