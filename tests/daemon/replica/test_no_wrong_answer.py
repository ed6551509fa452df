"""Under readers and swaps at once every answer is that of the model it names, and memory stays flat."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from daemon.replica import replica as follower
from daemon.replica.settings import FollowSettings, Hooks
from daemon.versions.restore import settings_digest
from learners.block import Block, against
from learners.forms.quadratic import inverse_roots
from tests.harness.waiting import until

from .world import World, serves

K = 5


@dataclass(frozen=True)
class Answer:
    """What a reader saw inside one read: which model, the folded queries, norms, rows and scores."""

    version: int
    total: int
    formed: int
    folded: np.ndarray
    norms: np.ndarray
    rows: np.ndarray


class Readers:
    """Threads that ask without pause, each inside one read from fold to top k."""

    def __init__(self, world, replica, count=3):
        self.queries, self.items = world.rows(100, 3), world.rows(101, 60)
        self.answers, self.errors, self.done = [], [], threading.Event()
        self._replica = replica
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def prepare(self, view) -> np.ndarray:
        return inverse_roots(view.self_scores(self.items))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.done.set()
        for thread in self._threads:
            thread.join(20)

    def _ask(self):
        while not self.done.is_set():
            try:
                with self._replica.read() as view:
                    folded = view.fold(self.queries)
                    scores = against(folded, self.items) * view.prepared
                    rows = np.argsort(-scores, axis=1, kind="stable")[:, :K]
                    if len(self.answers) % 10 == 0:
                        time.sleep(0.03)  # longer than a swap takes
                    again = view.fold(
                        self.queries
                    )  # the numbers behind a view stay for as long as it is read
                    assert np.array_equal(folded, again)
                    model = view.model
                    self.answers.append(
                        Answer(model.version, model.total, view.formed, folded, view.prepared, rows)
                    )
            except Exception as error:
                self.errors.append(error)
            time.sleep(0.0005)  # or the interpreter's lock would be all that is tested


def check(world, answers, items: Block, queries: Block):
    """Recompute each answer from the states that it names."""
    wanted = {}
    for answer in answers:
        key = answer.total, answer.formed
        if key not in wanted:
            folded = world.wanted_fold(queries, *key)
            norms = inverse_roots(world.exact_form(answer.formed).self_scores(items))
            wanted[key] = folded, norms, against(folded.astype(np.float32), items) * norms
        folded, norms, scores = wanted[key]
        assert np.allclose(answer.folded, folded, rtol=1e-4, atol=1e-4 * np.abs(folded).max())
        assert np.allclose(answer.norms, norms, rtol=1e-4)
        best = -np.sort(-scores, axis=1)[:, :K]
        assert np.allclose(np.take_along_axis(scores, answer.rows, axis=1), best, atol=1e-4)
    return wanted


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_whole_versions_swapped_under_load(kind, monkeypatch):
    monkeypatch.setattr(follower, "TURN_S", 0.001)
    world = World(dim=24, kind=kind, C=0.02)
    for _ in range(5):
        world.learn(30)
        world.publish(tell=False)
    world.ledger.append({"kind": "PROMOTE", "version": 0, "alias": "stable"})
    asked = Readers(world, None)
    replica = world.replica("stable", steps=False, hooks=Hooks(prepare=asked.prepare))
    asked._replica = replica
    replica.start()
    try:
        serves(replica, "0")
        with asked:
            for swap in range(40):
                number = (swap * 2 + 1) % 6
                world.ledger.append({"kind": "ROLLBACK", "version": number, "alias": "stable"})
                serves(replica, str(number))
    finally:
        replica.close()
    assert not asked.errors
    assert replica.status().swaps["version"] >= 41
    records = {n: int(world.versions.manifest(n).counters["records"]) for n in range(6)}
    assert all(answer.total == answer.formed == records[answer.version] for answer in asked.answers)
    assert len(check(world, asked.answers, asked.items, asked.queries)) >= 3


@pytest.mark.parametrize(("kind", "psd"), [("dense", "auto"), ("sparse", "lanczos")])
def test_steps_refinements_and_bases_under_load(kind, psd):
    world = World(dim=24, kind=kind)
    world.serving = world.serving.model_copy(update={"psd": psd, "lanczos_pairs": 5})
    asked = Readers(world, None)
    replica = world.replica(hooks=Hooks(prepare=asked.prepare, sample=lambda n: asked.items))
    asked._replica = replica
    replica.start()
    try:
        serves(replica, "0")
        with asked:
            for turn in range(60):
                world.learn(7)
                if turn % 10 == 9:
                    world.publish()
                serves(replica, f"{world.parent}+{world.records - 70 * world.parent}".removesuffix("+0"))
            until(lambda: replica.status().swaps.get("refine", 0) > 2, "refinements")
            world.skip_a_segment()
            manifest = world.publish()
            serves(replica, str(manifest.number))
    finally:
        replica.close()
    assert not asked.errors
    states = check(world, asked.answers, asked.items, asked.queries)
    assert len(states) >= 20
    assert any(total > formed > 0 for total, formed in states), "carried over from a refined form"
    status = replica.status()
    assert status.carried is not None
    assert 0 <= status.carried.fold < 1
    assert status.swaps["version"] == 2


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_is_flat_over_200_swaps(monkeypatch):
    monkeypatch.setattr(follower, "TURN_S", 0.001)
    world = World(dim=256)
    for _ in range(2):
        world.learn(5)
        number = world.publish(tell=False).number
        world.versions.attach(number, "serving", world.exact_form(world.records).arrays(), _settings(world))
    world.ledger.append({"kind": "PROMOTE", "version": 1, "alias": "stable"})
    quick = FollowSettings(look_every_s=0.001)
    replica = world.replica("stable", steps=False, following=quick)
    replica.start()
    sizes = []
    try:
        for swap in range(200):
            number = 1 + swap % 2
            world.ledger.append({"kind": "ROLLBACK", "version": number, "alias": "stable"})
            serves(replica, str(number))
            if swap in (30, 199):
                gc.collect()
                sizes.append(resident())
    finally:
        replica.close()
    assert replica.status().swaps["version"] >= 199
    assert sizes[1] - sizes[0] < 8 << 20  # of the 512 KB of a version, 170 swaps would be 87 MB


def _settings(world):
    return {"settings_digest": settings_digest(world.serving)}
