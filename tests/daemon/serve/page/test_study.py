"""How a study is made: which objects it asks about, what it finds for them, and which settings it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daemon.config import load_config
from daemon.exits import EX_CONFIG, EX_DATAERR, UserError
from daemon.ratings.kept import RatingsFile
from daemon.ratings.study import LIST, Study, StudySettings
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.page.answers import CannotAnswer
from daemon.serve.page.objects import seeded_ids
from daemon.serve.page.study import StudyMaker, rating_sources, read_ids
from daemon.serve.query import QueryError
from tests.daemon.serve.retrieve.makers import Items

COUNT = 30


def catalog(order: Sequence[int] = range(COUNT), parts: int = 1) -> IndexSnapshot:
    items = Items("dense", 2)
    for some in np.array_split(np.array(order), parts):
        items.put([f"o{n}" for n in some], np.ones((len(some), 2), np.float32), [()] * len(some))
    items.put(["gone"], np.ones((1, 2), np.float32), [()])
    items.remove(["gone"])
    return items.snapshot()


class Finder:
    """Finds the objects after the one asked about; nothing for those it does not know."""

    def lists(self, side: str, ids: Sequence[str], k: int, key: str | None) -> Any:
        assert key == "de"
        found = [self._of(one, k) for one in ids]
        return SimpleNamespace(model={"stable": "7+12"}.get(side, side), results=found)

    def _of(self, one: str, k: int) -> Any:
        if one == "unknown":
            return QueryError("unknown_object", "no such object")
        return [SimpleNamespace(id=f"o{(int(one[1:]) + n) % COUNT}") for n in range(1, k + 1)]


def made(
    systems: tuple[str, str] = ("stable", "random"), ids: Sequence[str] = (), why: str | None = None
) -> Study:
    live: Any = SimpleNamespace(
        not_ready=lambda: why, opened=SimpleNamespace(catalog=SimpleNamespace(current=catalog()))
    )
    finder: Any = Finder()
    return StudyMaker(live, finder, "autumn", StudySettings(systems, 5, 3, "de"), ids).make()


def test_the_same_objects_are_drawn_by_a_seed_in_whatever_order_they_lie() -> None:
    drawn = seeded_ids(catalog(), 5, 3)
    assert len(set(drawn)) == 5
    assert drawn == seeded_ids(catalog(range(COUNT - 1, -1, -1), 3), 5, 3)
    assert drawn != seeded_ids(catalog(), 5, 4)
    everything = seeded_ids(catalog(), 100, 3)
    assert sorted(everything) == sorted(f"o{n}" for n in range(COUNT)), "and none that is gone"
    assert everything[:5] == drawn, "a larger study asks about these as well"


def test_each_seed_draws_each_object_as_likely() -> None:
    drawn = [one for seed in range(200) for one in seeded_ids(catalog(), 3, seed)]
    counts = [drawn.count(f"o{n}") for n in range(COUNT)]
    assert min(counts) > 20 - 5 * 4.3, "five standard deviations"
    assert max(counts) < 20 + 5 * 4.3


def test_a_study_has_both_lists_of_each_query_and_which_model_found_them() -> None:
    study = made()
    assert [(one.name, one.model) for one in study.systems] == [("stable", "7+12"), ("random", "")]
    assert [one.query for one in study.queries] == seeded_ids(catalog(), 5, 3)
    for one in study.queries:
        near, chance = one.lists
        assert near[0] == f"o{(int(one.query[1:]) + 1) % COUNT}"
        assert len(near) == len(set(chance)) == LIST
        assert one.query not in chance
    assert len({one.lists[1] for one in study.queries}) == 5
    assert made().queries == study.queries, "by the seed"


def test_a_file_says_what_is_asked_about_and_unknown_ids_are_left_out() -> None:
    study = made(("stable", "0"), ["o4", "unknown", "o9"])
    assert [one.query for one in study.queries] == ["o4", "o9"]
    assert study.queries[0].lists[0] == study.queries[0].lists[1]


@pytest.mark.parametrize(
    ("ids", "why", "code"), [(["unknown"], None, "no_objects"), ([], "items: being read", "not_serving")]
)
def test_a_study_of_nothing_does_not_begin(ids: list[str], why: str | None, code: str) -> None:
    with pytest.raises(CannotAnswer) as problem:
        made(ids=ids, why=why)
    assert problem.value.code == code


def test_ids_come_one_per_line_each_once(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("o1\n\n o2 \no1\n")
    ids, digest = read_ids(file)
    assert ids == ("o1", "o2")
    file.write_text("o1\n")
    assert read_ids(file)[1] != digest


@pytest.mark.parametrize("body", [b"", b"\xff", b"".join(b"o%d\n" % n for n in range(201))])
def test_a_file_of_ids_that_is_no_use_is_told(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "ids.txt").write_bytes(body)
    with pytest.raises(UserError, match=r"ids\.txt") as problem:
        read_ids(tmp_path / "ids.txt")
    assert problem.value.code == EX_DATAERR


def settings(folder: Path, **ratings: Any) -> Any:
    given = {
        "checkpoints": {"path": str(folder)},
        "serve": {"ratings": {"enabled": True, **ratings}},
        "space": {"views": {"x": {"dim": 2}}},
    }
    return load_config(None, given, {})


def test_a_study_goes_on_by_the_settings_it_was_begun_with_alone(tmp_path: Path) -> None:
    live: Any = None
    sources = rating_sources(settings(tmp_path, queries=5), live, live)
    assert sources is not None
    assert sources.systems == ("stable", "0")
    asked = StudySettings(("stable", "0"), 5, 0)
    begun = Study("first", asked, made().systems, made().queries, 1)
    RatingsFile(tmp_path / "ratings.jsonl", 1 << 20).begin(begun)
    rating_sources(settings(tmp_path, queries=5), live, live)
    for other in ({"queries": 6}, {"queries": 5, "seed": 1}, {"queries": 5, "systems": ["stable", "1"]}):
        with pytest.raises(UserError, match="'first' was begun with other settings") as problem:
            rating_sources(settings(tmp_path, **other), live, live)
        assert problem.value.code == EX_CONFIG
        rating_sources(settings(tmp_path, study="second", **other), live, live)
    assert rating_sources(settings(tmp_path, enabled=False), live, live) is None


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"systems": ["stable"]}, "expected two different ones"),
        ({"systems": ["0", "0"]}, "expected two different ones"),
        ({"systems": ["stable", "Best!"]}, "'Best!' is neither a name nor the number"),
        ({"systems": ["stable", "best"]}, r"serve\.ratings\.systems: 'best' is not in serve\.aliases"),
        ({"study": "a b"}, "expected letters, digits"),
        ({"queries": 201}, "200"),
    ],
)
def test_settings_that_make_no_study_are_refused(tmp_path: Path, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told) as problem:
        settings(tmp_path, **wrong)
    assert problem.value.code == EX_CONFIG
