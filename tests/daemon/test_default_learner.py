"""Which learner a configuration gets that names none, and that a folder keeps the one it was made with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daemon.checks import run_checks
from daemon.config.load import load_config
from daemon.exits import EX_OK, UserError
from daemon.versions.restore import learner_of
from learners import Oasis, OasisSoftmax
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from tests.daemon.learn.conftest import Site

DIM = 64


def algorithm(folder: Path, text: str) -> str:
    file = folder / "tripletd.toml"
    file.write_text(text)
    return load_config(file).learner.algorithm


def view(dim: int, name: str = "text", kind: str = "dense", more: str = "") -> str:
    return f'[space.views.{name}]\ndim = {dim}\nkind = "{kind}"\n{more}\n'


CASES = {
    "384": (view(384), "oasis-softmax"),
    "least": (view(64), "oasis-softmax"),
    "most": (view(1536), "oasis-softmax"),
    "sparse": (view(700, kind="sparse"), "oasis-softmax"),
    "few": (view(63), "oasis"),
    "wide": (view(1537), "oasis"),
    "wide-sparse": (view(10_000, kind="sparse"), "oasis"),
    "views": (view(384) + view(384, "image"), "oasis"),
    "lost": (view(384, more='map = "whiten"'), "oasis"),
    "other": (f'{view(384)}[space]\nsimilarity = "euclidean"\n', "oasis"),
    "keys": (f"{view(384)}[keys]\nslots = 3\n", "oasis"),
    "C": (f"{view(384)}[learner]\nC = 0.2\n", "oasis-softmax"),
    "of-oasis": (f"{view(384)}[learner]\npsd_every = 1000\n", "oasis"),
    "named": (f'{view(384)}[learner]\nalgorithm = "oasis"\n', "oasis"),
    "named-few": (f'{view(8)}[learner]\nalgorithm = "oasis-softmax"\n', "oasis-softmax"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_goes_by_the_space(tmp_path: Path, name: str) -> None:
    text, wanted = CASES[name]
    assert algorithm(tmp_path, text) == wanted


def test_a_key_of_another_learner_is_refused_by_whose_it_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"temperature.*oasis-softmax"):
        algorithm(tmp_path, f"{view(8)}[learner]\ntemperature = 1.0\n")


def site_of(folder: Path) -> Site:
    site = Site(folder, f"log:{folder}/clicks.log")
    del site.settings["space.views.x.map"]
    site.settings |= {"space.views.x.dim": DIM, "space.warmup_objects": 50}
    return site


def events(seed: int) -> list[bytes]:
    rows = np.random.default_rng(seed).standard_normal((60, 3, DIM)).astype(np.float32)
    return [
        encode_event(Event(f"e{seed}.{number}", 1000 + number, *(ObjectRef(x=x) for x in triplet)))
        for number, triplet in enumerate(rows)
    ]


def test_a_folder_keeps_the_learner_it_was_made_with(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    site.feed(events(0))
    assert site.learn(learner__algorithm="oasis") == EX_OK
    assert site.config().learner.algorithm == "oasis-softmax", "what a new folder would get"
    site.feed(events(1))
    assert site.learn() == EX_OK
    newest = site.newest()
    assert newest.counters["records"] == 120
    assert isinstance(learner_of(site.versions.load(newest.number)), Oasis)


def test_check_tells_the_learner_that_a_folder_goes_on_with(tmp_path: Path) -> None:
    site = site_of(tmp_path)

    def told() -> str:
        return next(one.text for one in run_checks(site.config()) if one.key == "learner")

    assert told().startswith("oasis-softmax, ")
    site.feed(events(0))
    assert site.learn(learner__algorithm="oasis") == EX_OK
    assert told().startswith("oasis, ")


def test_a_key_that_the_learner_of_a_folder_lacks_is_refused(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    site.feed(events(0))
    assert site.learn(learner__algorithm="oasis") == EX_OK
    with pytest.raises(UserError, match=r"learner\.temperature: .*were learned by oasis"):
        site.learn(learner__temperature=0.5)
    site.settings["learner.temperature"] = 0.5
    assert any(one.key == "learner" and one.grade == "error" for one in run_checks(site.config()))


def test_a_new_folder_gets_the_default(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    site.feed(events(0))
    assert site.learn() == EX_OK
    assert isinstance(learner_of(site.versions.load(site.newest().number)), OasisSoftmax)
