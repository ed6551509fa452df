"""One model per key in the daemon: exact wherever it is cut or restarted, bounded, its refusals told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_CONFIG, EX_OK, UserError
from daemon.learn.replay.replay import replay
from daemon.versions.restore import learner_of
from learners.keyed import Keyed
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import open_source
from tests.daemon.learn.conftest import DIM, MARK, Site, with_nan

ALGORITHMS = (
    "soml-da",
    "soml-tg",
    "oasis",
    "oasis-averaged",
    "oasis-diagonal",
    "dissim-oasis",
    "loreta",
    "lego",
    "omks-maps",
)
KEYS: dict[str, Any] = {"keys__slots": 3, "keys__when_full": "evict", "keys__evict_after": 4}


def clicks(keys: list[str | None], seed: int = 0) -> list[bytes]:
    """An event per key, in order; every 13th holds a NaN."""
    rng = np.random.default_rng(seed)
    events = []
    for number, key in enumerate(keys):
        q, c, s = rng.standard_normal((3, DIM)).astype(np.float32)
        c[0] = MARK
        objects = ObjectRef(x=q), ObjectRef(x=c), ObjectRef(x=s)
        event = encode_event(Event(f"e{seed}.{number}", 1000 + number, *objects, key=key))
        events.append(with_nan(event) if number % 13 == 5 else event)
    return events


def drawn(count: int, names: str = "aabbcdefg-") -> list[str | None]:
    """Keys of a few tenants, now and then none ("-")."""
    rng = np.random.default_rng(count)
    return [None if name == "-" else str(name) for name in rng.choice(list(names), count)]


def keyed(site: Site) -> Keyed:
    """The models of the newest version."""
    learner = learner_of(site.versions.load(site.newest().number))
    assert isinstance(learner, Keyed)
    return learner


def arrays_of(site: Site) -> dict[str, bytes]:
    loaded = site.versions.load(site.newest().number)
    return {name: array.tobytes() for name, array in loaded.arrays.items()}


def equal_by_replay(site: Site) -> bool:
    with closing(open_source(site.address)) as source:
        return replay(site.versions, source, None, 0, site.newest().number).equal


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_how_records_are_polled_and_where_it_restarts_changes_nothing(
    algorithm: str, new_site: Callable[..., Site]
) -> None:
    whole, again = new_site(), new_site()
    for site in (whole, again):
        site.settings["learner.algorithm"] = algorithm
    events = clicks(drawn(120))
    whole.feed(events)
    assert whole.learn(**KEYS) == EX_OK
    for start in range(0, 120, 40):
        again.feed(events[start : start + 40])
        assert again.learn(**KEYS, stream__poll_records=7) == EX_OK
    assert arrays_of(whole) == arrays_of(again)
    assert whole.newest().counters == again.newest().counters
    assert equal_by_replay(again)
    told = Counter(letter.reason for letter in whole.dead())
    assert whole.newest().counters["evicted"] > 0
    assert min(told["key_missing"], told["key_refused"], told["not_finite"]) > 0
    assert {f"rejected.{reason}": n for reason, n in told.items()} == {
        name: n for name, n in whole.newest().counters.items() if name.startswith("rejected.")
    }


def test_each_key_learns_its_own_events_alone(new_site: Callable[..., Site]) -> None:
    """A key's model is what a learner of its events alone would be."""
    together, alone = new_site(), new_site()
    keys = drawn(150, "abc")
    events = clicks(keys)
    for site in (together, alone):
        site.settings["learner.algorithm"] = "soml-da"
    together.feed(events)
    assert together.learn(keys__slots=3) == EX_OK
    alone.feed([event for event, key in zip(events, keys, strict=True) if key == "b"])
    assert alone.learn() == EX_OK
    found = keyed(together)
    assert sorted(found.names()) == ["a", "b", "c"]
    model, own = found.learner_of("b"), learner_of(alone.versions.load(alone.newest().number))
    assert model is not None
    assert {name: array.tobytes() for name, array in model.state().items()} == {
        name: array.tobytes() for name, array in own.state().items()
    }
    assert found.events()["b"] == sum(key == "b" for n, key in enumerate(keys) if n % 13 != 5)


def test_an_id_is_known_for_its_key_alone(site: Site) -> None:
    """Two tenants count their clicks from 1; what was fed without its key is fed again with it."""
    named = {name: clicks([name] * 5) for name in ("a", "b")}
    site.feed(clicks([None] * 5) + named["a"] + named["b"] + named["a"])
    assert site.learn(keys__slots=2, stream__poll_records=3) == EX_OK
    assert keyed(site).events() == {"a": 5, "b": 5}
    told = site.newest().counters
    assert (told["duplicate"], told["rejected.key_missing"]) == (5, 5)
    assert equal_by_replay(site)


def test_keys_without_room_are_dead_letters_and_pause_nobody(site: Site) -> None:
    events = clicks([f"tenant {n}" for n in range(300)])
    site.feed(events)
    assert site.learn(keys__slots=2, stream__pause_poison_share=0.5, stream__pause_poison_window=100) == EX_OK
    assert keyed(site).names() == ["tenant 0", "tenant 1"]
    assert site.newest().counters["rejected.key_refused"] == 300 - 2 - 23
    letter = next(one for one in site.dead() if one.reason == "key_refused")
    assert letter.value == events[letter.offset]
    assert "no slot of [keys] is free" in letter.detail


def test_a_stream_without_keys_pauses_rather_than_be_lost(site: Site) -> None:
    site.feed(clicks([None] * 200))
    with pytest.raises(UserError, match="paused, the position is kept"):
        site.learn(keys__slots=2, stream__pause_poison_share=0.5, stream__pause_poison_window=100)
    assert {letter.reason for letter in site.dead()} == {"key_missing", "not_finite"}


def test_without_slots_a_key_changes_nothing(new_site: Callable[..., Site]) -> None:
    plain, named = new_site(), new_site()
    plain.feed(clicks([None] * 60))
    named.feed(clicks(drawn(60)))
    for site in (plain, named):
        assert site.learn() == EX_OK
    assert arrays_of(plain)["W"] == arrays_of(named)["W"]
    assert "keys" not in named.newest().learner["config"]


def test_other_slots_are_refused_and_the_old_ones_go_on(site: Site) -> None:
    site.feed(clicks(drawn(40)))
    assert site.learn(**KEYS) == EX_OK
    for changes in ({}, {**KEYS, "keys__slots": 4}, {**KEYS, "keys__when_full": "refuse"}):
        with pytest.raises(UserError, match="keys") as refused:
            site.learn(**changes)
        assert refused.value.code == EX_CONFIG
    site.feed(clicks(drawn(41), seed=1))
    assert site.learn(**KEYS) == EX_OK


def test_caps_and_keys_go_together(new_site: Callable[..., Site]) -> None:
    whole, again = new_site(), new_site()
    events = clicks(drawn(100))
    caps: dict[str, Any] = {"caps__window": 20, "caps__source": 0.5}
    whole.feed(events)
    assert whole.learn(**KEYS, **caps) == EX_OK
    for start in range(0, 100, 25):
        again.feed(events[start : start + 25])
        assert again.learn(**KEYS, **caps, stream__poll_records=3) == EX_OK
    assert arrays_of(whole) == arrays_of(again)
    assert whole.newest().counters["capped"] > 0
    assert equal_by_replay(again)


def test_one_keys_events_use_up_no_other_keys_cap(new_site: Callable[..., Site]) -> None:
    together, alone = new_site(), new_site()
    caps: dict[str, Any] = {"keys__slots": 2, "caps__window": 500, "caps__source": 2.0}
    small = clicks(["small"] * 10)
    together.feed(clicks(["flood"] * 100, seed=1) + small)
    alone.feed(small)
    for site in (together, alone):
        assert site.learn(**caps) == EX_OK
    assert together.newest().counters["capped"] > 50
    found, own = keyed(together).learner_of("small"), keyed(alone).learner_of("small")
    assert found is not None
    assert own is not None
    assert {name: array.tobytes() for name, array in found.state().items()} == {
        name: array.tobytes() for name, array in own.state().items()
    }
