"""Arms beside the learner: which there are, what versions hold of them, and that they follow from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from daemon.config import load_config
from daemon.config.learners import LEARNERS, NEVER_ARMS, ArmKeys
from daemon.config.load import parse_setting
from daemon.exits import EX_OK, UserError
from daemon.learn.replay.replay import replay
from daemon.memory.needs import RoleName, need_of
from daemon.versions.algorithms import map_of
from daemon.versions.contents import arms_arrays, learner_arrays
from daemon.versions.order import arm_form
from daemon.versions.race import DEFAULT_ARMS, arms_of, race_of
from learners.arm_kinds import ARM_KINDS
from learners.arms import ArmConfig
from learners.oasis import Oasis
from streams.codec import decode_event, encode_event
from streams.event import ONLY_ARMS, PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM, PAIR_UNKNOWN
from streams.open import open_source
from tests.daemon.learn.altered import alter_manifest
from tests.daemon.learn.conftest import DIM, Site, make_events, with_nan
from tests.daemon.learn.test_shards import feed
from tests.harness.kill.shards import merged_end, replays, sharded_site
from tests.harness.kill.site import DENSE, embedded

KINDS = (PAIR_UNKNOWN, PAIR_ABOVE, PAIR_BELOW, PAIR_BELOW, PAIR_RANDOM)
BY_COSINE = {"space.views.x.map": "unit"}
NO_ARMS = "learner.race.arms=none"
NONE, ONE = "none", [{"name": "one", "C": 0.2, "pairs": "all", "random": False}]
SOFT = [{"name": "soft", "kind": "adapter", "settings": {"batch": 8}}]
SEEN = [{"name": "seen", "kind": "memory", "pairs": "above", "queries": 8}]


def with_pairs(count: int, seed: int = 0, kinds: Sequence[int] = KINDS) -> list[bytes]:
    """Events whose kinds of pairs take turns."""
    events = (decode_event(value) for value in make_events(count, seed))
    return [encode_event(replace(one, pair=kinds[n % len(kinds)])) for n, one in enumerate(events)]


@pytest.fixture
def raced(new_site: Callable[..., Site]) -> Site:
    """A site whose own ranking is the cosine, on a log that can be read again."""
    site = new_site(log=True)
    site.settings |= BY_COSINE
    return site


def verified(site: Site, to: int | None = None) -> bool:
    with closing(open_source(site.address)) as source:
        found = replay(site.versions, source, None, 0, site.newest().number if to is None else to)
    return found.equal and found.difference is None


def arms_in(site: Site) -> set[str]:
    return {name.partition(".")[0] for name in arms_arrays(site.versions.load(site.newest().number).arrays)}


def arrays(site: Site) -> dict[str, bytes]:
    loaded = site.versions.load(site.newest().number).arrays
    return {name: one.tobytes() for name, one in loaded.items()}


def test_versions_hold_the_arms_and_the_main_learner_leaves_pairs_below_the_click_to_them(
    raced: Site,
) -> None:
    raced.feed(with_pairs(50))
    assert raced.learn() == EX_OK
    newest = raced.newest()
    assert race_of(newest) == ("above", DEFAULT_ARMS)
    assert newest.counters["aside"] == 20
    assert sum(newest.counters[name] for name in ("updated", "passive", "degenerate")) == 30
    assert newest.counters["records"] == 50
    arms = arms_arrays(raced.versions.load(newest.number).arrays)
    assert (int(arms["all.events"]), int(arms["above.events"])) == (40, 30)  # `all` no drawn pairs
    assert verified(raced)


def test_without_arms_the_main_learner_has_the_same_bits(new_site: Callable[..., Site]) -> None:
    sites = [new_site(), new_site()]
    for site, arms in zip(sites, ("auto", NONE), strict=True):
        site.settings |= BY_COSINE | {"learner.race.arms": arms}
        site.feed(with_pairs(40))
        site.learn()
    both = [site.versions.load(site.newest().number).arrays for site in sites]
    assert not arms_arrays(both[1])
    assert all(np.array_equal(one, both[1][name]) for name, one in learner_arrays(both[0]).items())
    assert np.array_equal(both[0]["dedupe.ids"], both[1]["dedupe.ids"])


def test_arms_are_the_same_however_often_the_learner_starts_again(new_site: Callable[..., Site]) -> None:
    once, often = new_site(), new_site()
    for site in (once, often):
        site.settings |= BY_COSINE
    events = with_pairs(60)
    once.feed(events)
    once.learn()
    for start in range(0, 60, 7):
        often.feed(events[start : start + 7])
        often.learn()
    assert arrays(once) == arrays(often)


def test_a_memory_of_clicks_is_an_arm_like_any_other(new_site: Callable[..., Site]) -> None:
    once, often = new_site(log=True), new_site(log=True)
    for site in (once, often):
        site.settings |= BY_COSINE | {"learner.race.arms": SEEN}
    events = with_pairs(60)
    once.feed(events)
    once.learn()
    for start in range(0, 60, 7):
        often.feed(events[start : start + 7])
        often.learn()
    assert arrays(once) == arrays(often)
    newest = once.newest()
    (recorded,) = newest.learner["config"]["arms"]
    assert recorded == {"name": "seen", "kind": "memory", "pairs": "above", "random": True, "queries": 8}
    assert race_of(newest)[1] == (ArmConfig("seen", "above", kind="memory", queries=8),)
    arms = arms_arrays(once.versions.load(newest.number).arrays)
    assert int(arms["seen.events"]) == 36
    assert sorted(arms["seen.stamps"].tolist()) == [*range(29, 37)]
    assert verified(once)
    assert verified(often)
    once.settings["learner.race.arms"] = [SEEN[0] | {"queries": 9}]
    once.feed(with_pairs(10, seed=1))
    once.learn()
    assert len(arms_arrays(once.versions.load(once.newest().number).arrays)["seen.stamps"]) == 9
    assert verified(once)


@pytest.mark.parametrize("kind", sorted(set(ARM_KINDS) - {"oasis", "memory"}))
def test_a_learner_of_any_kind_is_an_arm_like_any_other(new_site: Callable[..., Site], kind: str) -> None:
    once, often = new_site(log=True), new_site(log=True)
    more = {"adapter": {"batch": 8}, "oasis-softmax": {"memory": 128}}.get(kind, {})
    for site in (once, often):
        site.settings |= BY_COSINE | {"learner.race.arms": [{"name": "one", "kind": kind, "settings": more}]}
        if not ARM_KINDS[kind].others:
            del site.settings["learner.race.arms"][0]["settings"]
    events = with_pairs(60)
    once.feed(events)
    once.learn()
    for start in range(0, 60, 7):
        often.feed(events[start : start + 7])
        often.learn()
    assert arrays(once) == arrays(often)
    (recorded,) = once.newest().learner["config"]["arms"]
    assert recorded["kind"] == kind
    assert set(recorded.get("settings", {})) == set(ARM_KINDS[kind].others)
    version = once.versions.load(once.newest().number)
    own = map_of(version).own
    assert own is not None
    assert arm_form(version, own, "one", 1.0).dim == DIM
    assert verified(once)
    assert verified(often)


def test_kinds_of_arms_are_those_of_the_table() -> None:
    """Each algorithm of [learner] can be an arm, or it is said why not."""
    named = get_args(ArmKeys.model_fields["kind"].annotation)
    assert sorted(named) == sorted(ARM_KINDS)
    assert set(LEARNERS) | {"adapter", "memory"} == set(ARM_KINDS) | set(NEVER_ARMS)


def test_of_a_held_out_list_arms_alone_learn(raced: Site) -> None:
    learned, seen = with_pairs(20, kinds=(PAIR_ABOVE,)), with_pairs(30, 1, (PAIR_ABOVE | ONLY_ARMS,))
    raced.feed(learned)
    raced.learn()
    before = arrays(raced)
    raced.feed(seen)
    raced.learn()
    newest, after = raced.newest(), arrays(raced)
    assert (newest.counters["aside"], newest.counters["updated"]) == (30, 20)
    changed = {name for name in after if after[name] != before[name]}
    changed = {name.partition(".")[0] for name in after if after[name] != before[name]}
    assert changed == {"arms", "dedupe"}
    assert verified(raced)


def test_an_event_that_only_arms_learn_is_known_when_it_comes_again(raced: Site) -> None:
    events = with_pairs(20, kinds=(PAIR_BELOW,))
    raced.feed(events)
    raced.learn()
    before = arrays(raced)
    raced.feed(events)
    raced.learn()
    assert raced.newest().counters["duplicate"] == 20
    assert arrays(raced) == before


@pytest.mark.parametrize("kind", [PAIR_ABOVE, PAIR_BELOW])
def test_a_malformed_event_is_a_dead_letter_whoever_learns_it_and_its_time_is_not_believed(
    raced: Site, kind: int
) -> None:
    events = with_pairs(10, kinds=(kind,))
    events[9] = with_nan(events[9])
    raced.settings |= {"space.views.x.map": "precondition", "space.warmup_objects": 20}
    raced.feed(events)
    raced.learn()
    newest = raced.newest()
    counters = newest.counters
    assert (counters.get("aside", 0), counters["rejected"]) == (9 * (kind == PAIR_BELOW), 1)
    assert counters["rejected.not_finite"] == 1
    assert [letter.offset for letter in raced.dead()] == [9]
    assert newest.watermark == 1008
    assert verified(raced)


def test_caps_bound_what_arms_learn_of_the_main_learners_events(raced: Site) -> None:
    raced.settings |= {"caps.source": 3.0, "caps.window": 1000}
    raced.feed(with_pairs(40, kinds=(PAIR_ABOVE,)))
    raced.learn()
    newest = raced.newest()
    capped = newest.counters["capped"]
    assert capped > 0
    assert int(raced.versions.load(newest.number).arrays["arms.all.events"]) == 40 - capped


def test_a_folder_from_before_there_were_arms_goes_on_with_untrained_ones(raced: Site) -> None:
    raced.settings |= {"learner.race.arms": NONE, "learner.pairs": "all"}
    raced.feed(with_pairs(20))
    raced.learn()
    for number in raced.versions.versions():
        learner = dict(raced.versions.manifest(number).learner)
        learner["config"] = {k: v for k, v in learner["config"].items() if k not in {"pairs", "arms"}}
        alter_manifest(raced, number, learner=learner)
    del raced.settings["learner.race.arms"], raced.settings["learner.pairs"]
    raced.feed(with_pairs(20, seed=1))
    assert raced.learn() == EX_OK
    newest = raced.newest()
    entry = newest.schedule[0]
    assert (entry["control"], entry["pairs"], [one["name"] for one in entry["arms"]]) == (
        "race",
        "above",
        ["all", "above"],
    )
    assert (newest.counters["aside"], newest.counters["records"]) == (8, 40)
    assert int(raced.versions.load(newest.number).arrays["arms.all.events"]) == 16
    assert verified(raced)
    assert raced.learn() == EX_OK
    assert raced.newest().number == newest.number  # nothing has changed since


def test_arms_change_with_the_configuration(raced: Site) -> None:
    raced.feed(with_pairs(20))
    raced.learn()
    above = raced.versions.load(raced.newest().number).arrays["arms.above.W"].tobytes()
    raced.settings["learner.race.arms"] = [{"name": "above", "pairs": "above"}, *ONE]
    raced.feed(with_pairs(20, seed=1, kinds=(PAIR_BELOW,)))
    raced.learn()
    assert arms_in(raced) == {"above", "one"}
    loaded = raced.versions.load(raced.newest().number).arrays
    assert loaded["arms.above.W"].tobytes() == above
    assert int(loaded["arms.one.events"]) == 20
    assert verified(raced)


def judged(site: Site, version: int, dropped: Any) -> None:
    measures = {"dropped_arms": dropped}
    site.ledger.append({"kind": "KEEP", "version": version, "by": "validate", "measures": measures})


def test_an_arm_that_a_judgment_gives_up_is_dropped_and_stays_so(raced: Site) -> None:
    raced.feed(with_pairs(20))
    raced.learn()
    judged(raced, raced.newest().number + 2, ["above", "unheard of"])  # the next run's first
    raced.feed(with_pairs(20, seed=1))
    raced.learn()
    newest = raced.newest()
    config = newest.learner["config"]
    assert arms_in(raced) == {"all"}
    assert [one["name"] for one in config["arms"]] == ["all"]
    assert [one["name"] for one in config["dropped_arms"]] == ["above"]
    assert verified(raced)
    raced.feed(with_pairs(20, seed=2))
    raced.learn()
    assert arms_in(raced) == {"all"}
    assert all(isinstance(entry, tuple) for entry in raced.newest().schedule)  # nothing has changed
    raced.settings["learner.race.arms"] = [{"name": "all"}, {"name": "above", "pairs": "above", "C": 0.2}]
    raced.feed(with_pairs(20, seed=3))
    raced.learn()
    assert arms_in(raced) == {"all", "above"}
    assert verified(raced)


@pytest.mark.parametrize("dropped", [["above"], "above", None, 5])
def test_what_was_said_of_versions_before_this_run_or_says_nothing_drops_no_arm(
    raced: Site, dropped: Any
) -> None:
    raced.feed(with_pairs(20))
    raced.learn()
    judged(raced, raced.newest().number + 9 * (dropped != ["above"]), dropped)
    raced.feed(with_pairs(20, seed=1))
    raced.learn()
    assert arms_in(raced) == {"all", "above"}


def test_arms_of_shards_are_merged_and_recomputed(tmp_path: Path) -> None:
    view = DENSE.view.replace("standardise", "unit")
    case = replace(DENSE, learner=f'pairs = "all"\n{DENSE.learner}', view=view)
    site = sharded_site(tmp_path, embedded(tmp_path), case, 2, 3)
    written = feed(site, 60)
    merged = merged_end(site, 2)
    arms = arms_arrays(site.versions.load(merged.number).arrays)
    learned = sum(merged.counters.get(name, 0) for name in ("updated", "passive", "degenerate"))
    assert 0 < learned <= written
    assert int(arms["all.events"]) == int(arms["above.events"]) == learned
    W = Oasis.from_state({k[4:]: v for k, v in arms.items() if k.startswith("all.")}).W
    assert not np.array_equal(W, np.eye(len(W)))
    assert set(replays(site, 2, merged=True).values()) == {True}
    arm = "\n[[learner.race.arms]]\n"
    tables = f'{arm}name = "all"\nrandom = false\n{arm}name = "new"\nC = 0.2\n'
    tables += f'{arm}name = "seen"\nkind = "memory"\nqueries = 50\n'
    tables += f'{arm}name = "soft"\nkind = "adapter"\nsettings = {{ batch = 8 }}\n'
    site.config.write_text(site.config.read_text(encoding="utf-8") + tables, encoding="utf-8")
    feed(site, 120, written)
    later = arms_arrays(site.versions.load(merged_end(site, 2).number).arrays)
    assert {name.partition(".")[0] for name in later} == {"all", "new", "seen", "soft"}
    assert int(later["soft.events"]) == int(later["new.events"])
    assert int(later["seen.events"]) == int(later["new.events"])
    assert int(later["soft.steps"]) > 0
    assert np.count_nonzero(later["seen.stamps"]) == 50
    assert int(later["all.events"]) == learned + int(later["new.events"]) > learned
    assert set(replays(site, 2, merged=True).values()) == {True}


def config(**settings: Any) -> Any:
    views = {"space.views.x.kind": "dense", "space.views.x.dim": DIM}
    return load_config(None, views | {key.replace("__", "."): one for key, one in settings.items()}, {})


@pytest.mark.parametrize(
    ("settings", "arms"),
    [
        ({}, DEFAULT_ARMS),
        ({"space__views__x__dim": 1024}, DEFAULT_ARMS),
        ({"space__views__y__dim": 20}, DEFAULT_ARMS),
        ({"space__views__x__dim": 1025}, ()),
        ({"space__views__x__kind": "sparse"}, ()),
        ({"space__views__x__map": "whiten"}, ()),
        ({"space__similarity": "euclidean", "space__views__x__map": "identity"}, ()),
        ({"keys__slots": 5}, ()),
        ({"learner__race__arms": "none"}, ()),
        ({"learner__race__arms": ONE}, (ArmConfig("one", "all", random=False, C=0.2),)),
        ({"learner__race__arms": SEEN}, (ArmConfig("seen", "above", kind="memory", queries=8),)),
        (
            {"learner__race__arms": SOFT},
            (
                ArmConfig(
                    "soft", kind="adapter", settings=(("temperature", 0.2), ("rate", 0.001), ("batch", 8))
                ),
            ),
        ),
    ],
)
def test_there_are_arms_where_one_model_of_dense_vectors_begins_with_a_cosine(
    settings: dict[str, Any], arms: tuple[ArmConfig, ...]
) -> None:
    assert arms_of(config(**settings)) == arms


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"space__views__x__kind": "sparse"}, "arms learn dense vectors, and a view is sparse"),
        ({"keys__slots": 5}, "one model for all events, and [keys] has slots"),
        ({"space__views__x__map": "pca"}, "arms begin with your own cosine: the map pca of view x"),
    ],
)
def test_arms_that_cannot_be_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as refused:
        arms_of(config(**settings, learner__race__arms=ONE))
    assert str(refused.value).startswith("learner.race.arms: ")
    assert why in str(refused.value)
    assert 'set it to "auto" or "none"' in refused.value.remedy


@pytest.mark.parametrize(
    ("arms", "why"),
    [
        ("some", 'found "some"; expected "auto", "none", or at most 7 tables'),
        ([{"name": "a"}, {"name": "a"}], "each with a name of its own"),
        ([{"name": f"a{n}"} for n in range(8)], "at most 7 tables"),
        ([{"name": "A"}], "expected a text that matches"),
        ([{"name": "a", "C": 0}], "expected above 0"),
        ([{"name": "a", "pairs": "below"}], 'allowed: "all" or "above"'),
        ([{"name": "a", "colour": 1}], "unknown key; allowed: name, kind, pairs"),
        ([{"name": "a", "kind": "clicks"}], 'allowed: "oasis", "oasis-averaged"'),
        ([{"name": "a", "queries": 9}], "queries: not of arms of kind oasis; leave it out"),
        ([SEEN[0] | {"C": 1, "geometry": "own"}], "C, geometry: not of arms of kind memory; leave it out"),
        ([SEEN[0] | {"queries": 0}], "expected at least 1"),
        (
            [{"name": "a", "kind": "lego"}],
            "lego learns a distance; an arm scores q^T W p of dense vectors",
        ),
        ([{"name": "a", "kind": "omks"}], "omks begins with a sample of objects; an arm"),
        ([{"name": "a", "kind": "soml-tg", "C": 1}], "C: not of arms of kind soml-tg; leave it out"),
        (
            [{"name": "a", "settings": {"psd_every": 5}}],
            "settings: arms of kind oasis have none, no psd_every",
        ),
        (
            [SOFT[0] | {"settings": {"every": 8}}],
            "arms of kind adapter have temperature, rate, batch, no every",
        ),
        ([SOFT[0] | {"settings": {"rate": -1}}], "rate must be a finite number above 0, not -1"),
        ([SOFT[0] | {"settings": {"batch": "x"}}], "batch must be a whole number, not 'x'"),
        ([SOFT[0] | {"settings": 5}], "expected a table"),
        (5, "expected"),
        ([5], "expected a table"),
    ],
)
def test_a_table_of_arms_that_is_wrong_is_refused_in_one_line(arms: Any, why: str) -> None:
    with pytest.raises(UserError) as refused:
        config(learner__race__arms=arms)
    assert why in str(refused.value)
    assert len(str(refused.value).splitlines()) == 2  # and the remedy
    assert "learner.race.arms" in str(refused.value)


def test_arms_are_left_out_by_a_word_in_the_environment_or_on_the_command_line() -> None:
    views = {"space.views.x.dim": DIM}
    by_word = load_config(None, views, {"TRIPLETD_LEARNER__RACE__ARMS": "none"})
    assert arms_of(by_word) == arms_of(load_config(None, views | dict([parse_setting(NO_ARMS)]), {})) == ()
    assert arms_of(load_config(None, views, {"TRIPLETD_LEARNER__RACE__ARMS": "auto"})) == DEFAULT_ARMS
    assert load_config(None, views, {}).values()["learner"]["race"] == {"arms": "auto"}
    assert by_word.values()["learner"]["race"] == {"arms": []}


def test_what_is_shown_of_an_adapter_is_read_again() -> None:
    shown = config(learner__race__arms=SOFT).values()["learner"]["race"]["arms"]
    rest = {"pairs": "all", "random": True, "geometry": "own"}
    assert shown == [SOFT[0] | rest]
    assert arms_of(config(learner__race__arms=shown)) == arms_of(config(learner__race__arms=SOFT))


def test_what_is_shown_of_a_memory_is_read_again() -> None:
    shown = config(learner__race__arms=SEEN).values()["learner"]["race"]["arms"]
    assert shown == [{"name": "seen", "kind": "memory", "pairs": "above", "random": True, "queries": 8}]
    assert arms_of(config(learner__race__arms=shown)) == arms_of(config(learner__race__arms=SEEN))


@pytest.mark.parametrize("role", ["learn", "merge", "validate", "backfill", "serve"])
def test_what_a_memory_of_clicks_keeps_is_counted(role: RoleName) -> None:
    few, many = (
        need_of(config(learner__race__arms=[SEEN[0] | {"queries": n}], shards__count=2), role).nbytes
        for n in (10, 4_010)
    )
    assert many - few >= 2 * 4 * DIM * 4_000


@pytest.mark.parametrize("role", ["learn", "merge", "validate", "backfill"])
def test_memory_is_counted_with_the_arms(role: RoleName) -> None:
    settings = {"space__views__x__dim": 600, "shards__count": 2}
    with_arms = need_of(config(**settings), role).nbytes
    without = need_of(config(**settings, learner__race__arms="none"), role).nbytes
    assert with_arms - without >= 2 * 4 * 600**2
