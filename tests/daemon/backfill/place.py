"""A folder with some days of clicks, objects and a configuration, and what a test does there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import VersionStore
from daemon.cli import main
from daemon.exits import EX_OK
from daemon.versions.storage import open_store

DIM, OBJECTS, SHOWN = 8, 120, 6
DAYS, LISTS = 4, 250


@dataclass(frozen=True)
class Place:
    """Where everything is."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "tripletd.toml"

    @property
    def days(self) -> str:
        return str(self.folder / "day*.jsonl")

    def versions(self, into: str = "checkpoints") -> VersionStore:
        return open_store(self.folder / into).versions

    def words(self, *options: str, into: str = "checkpoints") -> list[str]:
        path = f"checkpoints.path={self.folder / into}"
        return ["backfill", self.days, "--config", str(self.file), "--set", path, *options]

    def backfill(self, *options: str, into: str = "checkpoints") -> int:
        return main(self.words(*options, into=into))

    def hash(self, into: str = "checkpoints") -> str:
        found = self.versions(into).newest_manifest()
        assert found is not None
        return found.state_hash


def make_place(folder: Path) -> Place:
    """Users click what a hidden metric likes best of the objects shown."""
    rng = np.random.default_rng(5)
    objects = rng.standard_normal((OBJECTS, DIM)).astype(np.float32)
    lines = [json.dumps({"id": f"o{k}", "x": one.tolist()}) for k, one in enumerate(objects)]
    (folder / "objects.jsonl").write_text("\n".join(lines) + "\n")
    likes = np.linspace(3.0, 0.1, DIM)
    for day in range(DAYS):
        lists = [_list(day * LISTS + k, rng, objects, likes) for k in range(LISTS)]
        (folder / f"day{day}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lists))
    (folder / "tripletd.toml").write_text(
        f"""[stream]
address = "log:clicks.log"
[space]
similarity = "cosine"
[space.views.x]
kind = "dense"
dim = {DIM}
[catalog]
path = "objects.jsonl"
[learner]
algorithm = "oasis"
[feed]
holdout_share = 0.2
"""
    )
    return Place(folder)


def _list(number: int, rng: np.random.Generator, objects: np.ndarray, likes: np.ndarray) -> dict[str, Any]:
    query, shown = int(rng.integers(OBJECTS)), rng.choice(OBJECTS, SHOWN, replace=False)
    best = int(np.argmax((objects[shown] * likes) @ objects[query]))
    return {
        "id": f"list-{number}",
        "ts": 1_700_000_000_000 + 1_000 * number,
        "q": f"o{query}",
        "shown": [f"o{one}" for one in shown],
        "clicked": [best],
    }


def fed_and_learned(place: Place) -> str:
    """The hash of what `feed` and `learn` make of the same days."""
    path = f"checkpoints.path={place.folder / 'live'}"
    days = sorted(str(one) for one in place.folder.glob("day*.jsonl"))
    assert main(["feed", *days, "--config", str(place.file), "--set", path]) == EX_OK
    learn = ["learn", "--config", str(place.file), "--set", path, "--set", "http.learn_port=0"]
    assert main([*learn, "--start", "earliest", "--exit-when-caught-up"]) == EX_OK
    return place.hash("live")
