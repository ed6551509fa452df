"""Which settings a grid has, in which order, and what no grid may hold."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.exits import EX_USAGE, UserError
from daemon.sweep.grid import (
    Setting,
    check_keys,
    grid_of_options,
    grid_of_table,
    settings_of,
    split_values,
    toml_of,
    varied,
)
from daemon.sweep.settings import _trial


def names(settings: Sequence[Setting]) -> list[str]:
    return [one.name for one in settings]


def test_a_grid_is_the_product_of_its_values_the_last_key_first() -> None:
    grid = grid_of_options(["learner.C=0.1,1", "serving.power=1,1.5"])
    assert names(settings_of([grid])) == [
        "learner.C=0.1 serving.power=1.0",
        "learner.C=0.1 serving.power=1.5",
        "learner.C=1.0 serving.power=1.0",
        "learner.C=1.0 serving.power=1.5",
    ]


def test_several_grids_are_tried_one_after_the_other_and_no_setting_twice() -> None:
    oasis = grid_of_table(tomllib.loads('[learner]\nalgorithm = "oasis"\nC = [0.1, 1]'), "a.toml")
    soml = grid_of_table(tomllib.loads('[learner]\nalgorithm = ["soml_da"]\ngamma = [0.5, 2]'), "b.toml")
    settings = settings_of([oasis, soml, oasis])
    assert names(settings) == [
        "learner.algorithm=oasis learner.C=0.1",
        "learner.algorithm=oasis learner.C=1",
        "learner.algorithm=soml_da learner.gamma=0.5",
        "learner.algorithm=soml_da learner.gamma=2",
    ]
    assert varied(settings) == ["learner.algorithm", "learner.C", "learner.gamma"]


def test_a_sample_is_drawn_by_its_seed_and_holds_no_setting_twice() -> None:
    grids = [grid_of_options(["learner.C=0.1,0.2,0.3,0.4", "serving.power=1,2,3"])]
    drawn = settings_of(grids, 5, seed=1)
    assert len(set(names(drawn))) == 5
    assert names(drawn) == names(settings_of(grids, 5, seed=1))
    assert names(drawn) != names(settings_of(grids, 5, seed=2))
    assert names(settings_of(grids, 99)) == names(settings_of(grids))


def test_a_grid_too_large_asks_for_a_sample_of_it() -> None:
    many = [grid_of_options([f"{key}=" + ",".join(map(str, range(1, 102))) for key in ("a.b", "a.c")])]
    with pytest.raises(UserError, match="10,201 settings") as refused:
        settings_of(many)
    assert "--random" in refused.value.remedy
    assert len(settings_of(many, 10)) == 10


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2", ["1", "2"]),
        (" a , 'b,c' ,[1,2],{a = 1, b = 2}", ["a", "b,c", "[1,2]", "{a = 1, b = 2}"]),
        ("one", ["one"]),
    ],
)
def test_commas_within_quotes_and_brackets_separate_nothing(text: str, values: list[str]) -> None:
    assert list(split_values(text)) == values


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("learner.C", "section.key=value"),
        ("learner.C=", "section.key=value"),
        ("C=1,2", "section.key=value"),
        ("learner.C=1,1.0", "twice"),
        ("catalog.secret=1,2", "can be read by everybody"),
    ],
)
def test_what_is_no_grid_is_refused(option: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        grid_of_options([option])
    assert refused.value.code == EX_USAGE
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("http.serve_port", "changes nothing that is learned"),
        ("checkpoints.path", "changes nothing that is learned"),
        ("feed.seed", "the same held-out lists"),
        ("feed.holdout_share", "the same held-out lists"),
        ("space.id", "what the objects are"),
        ("space.views.x.dim", "what the objects are"),
    ],
)
def test_keys_that_no_sweep_can_compare_are_refused(key: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_keys({key: (1, 2)})


def test_the_lines_for_a_setting_are_toml_of_it() -> None:
    values = {
        "learner.algorithm": "oasis",
        "learner.C": 0.1,
        "space.views.x.map": ["unit", "whiten"],
        "space.views.x.kernels": [{"kind": "rbf", "gamma": 2}],
        "serving.power": 1.5,
    }
    read = tomllib.loads("\n".join(toml_of(Setting(tuple(values.items())))))
    assert read["learner"] == {"algorithm": "oasis", "C": 0.1}
    assert read["space"]["views"]["x"] == {
        "map": ["unit", "whiten"],
        "kernels": [{"kind": "rbf", "gamma": 2}],
    }
    assert read["serving"]["power"] == 1.5


@pytest.mark.parametrize("change", [{"learner.race.arms": "none"}, {"learner.pairs": "all"}])
def test_settings_with_other_triplets_are_not_read_together(tmp_path: Path, change: dict[str, str]) -> None:
    """Whether pairs below a click are made, and events for arms alone, other sections say than [feed]."""
    given = {"space.views.x.kind": "dense", "space.views.x.dim": 4, "space.views.x.map": "unit"}
    alone = given | {"learner.race.arms": "none"} if "learner.pairs" in change else given
    one, other = (
        _trial(load_config(None, each, {}), Setting(()), tmp_path) for each in (alone, alone | change)
    )
    assert one.reading != other.reading
