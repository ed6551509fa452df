"""A small installation for tests of the page: versions with a branch, verdicts, live numbers, objects."""

from __future__ import annotations

import io
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette

from checkpoints import Ledger, LocalStore, VersionMeta, VersionStore
from daemon.look.live import STATUS, RoleStatus
from daemon.look.series import Series
from daemon.models.diff import Diff, DirectionChange, FeatureChange, MovedQuery, Queries
from daemon.replica.view import ModelId, ReplicaStatus
from daemon.serve.page.answers import CannotAnswer
from daemon.serve.page.objects import ShownObject
from daemon.serve.page.routes import page_routes
from daemon.serve.page.sources import NearestObjects, PageSources
from learners.spectrum import Spectrum

OBJECTS = 40
MARKUP = "<img src=x onerror=\"document.title='attacked'\"><script>document.title='attacked'</script>"
"""The text of one object: whoever feeds a stream chose it."""


def picture(colour: tuple[int, int, int]) -> bytes:
    """A JPEG of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (60, 80), colour).save(out, "JPEG")
    return out.getvalue()


class Lists:
    """An explorer whose lists depend on the side: neighbours by number, farther ones for newer versions."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []

    def neighbours(self, side: str, query: str, k: int, key: str | None) -> NearestObjects:
        self.keys.append(key)
        if side not in ("0", "1", "latest"):
            raise CannotAnswer("unknown_version", f"there is no version {side}")
        if not query.startswith("object-"):
            raise CannotAnswer("unknown_object", f"{query} is not served")
        at, step = int(query.removeprefix("object-")), {"0": 1, "1": 2, "latest": 3}[side]
        hits = [(f"object-{(at + step * n) % OBJECTS}", 1 - n / 100) for n in range(1, k + 1)]
        views = [
            {"views": ["colour"], "contribution": 0.7},
            {"views": ["colour", "shape"], "contribution": -0.01},
        ]
        zero = {"score": 0.5, "rank": 17}
        why = {hit: {"views": views, "rest": 0.0, "version_0": zero} for hit, _ in hits}
        return NearestObjects({"latest": "5+340"}.get(side, side), tuple(hits), why)


class Things:
    """Objects with a text each; one in two has a picture."""

    def __init__(self, count: int = OBJECTS, pictures: bool = True) -> None:
        self._count, self._pictures = count, pictures

    def count(self) -> int:
        return self._count

    def some(self, text: str, most: int) -> Sequence[ShownObject]:
        ids = [f"object-{n}" for n in range(self._count)]
        if not text:
            return self.shown(random.Random(1).sample(ids, min(most, len(ids))))
        return [one for one in self.shown(ids) if text.lower() in f"{one.id} {one.text}".lower()][:most]

    def shown(self, ids: Sequence[str]) -> Sequence[ShownObject]:
        return [self._one(one) for one in ids]

    def image(self, object_id: str) -> bytes | None:
        number = int(object_id.removeprefix("object-")) if object_id.startswith("object-") else 1
        return picture((number * 6, 90, 140)) if self._has(number) else None

    def _one(self, object_id: str) -> ShownObject:
        if not object_id.startswith("object-"):
            return ShownObject(object_id)
        number = int(object_id.removeprefix("object-"))
        text = MARKUP if number == 3 else f"coat number {number}"
        return ShownObject(object_id, text, self._has(number), ("coat",))

    def _has(self, number: int) -> bool:
        return self._pictures and number % 2 == 0


class Compared:
    """A comparer with one answer, which is there when it is asked for the second time."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def difference(self, before: int, after: int) -> Diff | None:
        self.asked.append((before, after))
        if self.asked.count((before, after)) < 2:
            return None
        spectra = tuple(
            Spectrum(6, (top, 1.0), (low, 1.0), 2.5, 3.0, True, negatives, share, 5.5)
            for top, low, negatives, share in ((1.0, 1.0, 0, 0.0), (2.5, -0.5, 1, 0.1))
        )
        moved = MovedQuery("object-3", 8, ("object-4", "object-12"), ("object-5", "object-6"))
        queries = Queries(20, 0, 10, 0.95, 12, (moved,))
        steps = (
            FeatureChange("colour[2]", f"shape[{MARKUP}]", 0.0, 1.5),
            FeatureChange("colour[1]", "colour[1]", 1.0, 0.2),
        )
        turns = (DirectionChange(1.5, (("colour[2]", 0.7), ("shape[1]", -0.7))),)
        return Diff(
            before, after, 6, 0.5, 0.4, steps, turns, (spectra[0], spectra[1]), queries, ("one thing",)
        )


@dataclass
class Scene:
    """The parts of one page; `roles` are the numbers of which learn, validate and serve speak."""

    folder: Path
    objects: Things = field(default_factory=Things)
    roles: dict[str, dict[str, Any] | None] = field(
        default_factory=lambda: dict.fromkeys(("learn", "validate"))
    )
    served: list[ReplicaStatus] = field(default_factory=list)
    compared: Compared = field(default_factory=Compared)

    def __post_init__(self) -> None:
        store = LocalStore(self.folder / "checkpoints")
        self.versions, self.ledger = VersionStore(store), Ledger(store)
        self.roles.setdefault("serve", {})
        self.series = Series({role: partial(self.status_of, role) for role in self.roles})

    def status_of(self, role: str) -> RoleStatus | None:
        """What a role says; None while it does not answer."""
        numbers, who = self.roles[role], {"version": "1", "checkpoints": None, "began": 0, "not_ready": None}
        return None if numbers is None else STATUS.validate_python({"role": role, **who, **numbers})

    @property
    def sources(self) -> PageSources:
        """What the page is told from."""
        return PageSources(
            versions=self.versions,
            ledger=self.ledger,
            series=self.series,
            statuses=lambda: self.served,
            explorer=Lists(),
            comparer=self.compared,
            objects=self.objects,
            aliases=["latest"],
        )

    def learn(self) -> None:
        """Six judged versions; the fourth goes on from version 1, so that 2 and 3 are left behind."""
        epoch = self.versions.claim()
        chain = [(None, 0), (0, 1000), (1, 2000), (2, 3000), (1, 1800), (4, 2800)]
        for number, (parent, events) in enumerate(chain):
            branch = {"control": "branch", "from_version": 1, "start": "checkpoint"}
            self.versions.publish(
                epoch,
                {"W": np.zeros(4, np.float32)},
                VersionMeta(
                    parent=parent,
                    counters={"updated": events, "records": events, "loss_sum": events * 0.5 + number},
                    schedule=((branch,) if number == 4 else ()),
                ),
            )
            self._judge(number, events)
        self.ledger.append(
            {"kind": "PROMOTE", "version": 5, "alias": "best", "by": "test", "reason": "ahead"}
        )
        self.ledger.append(
            {"kind": "ROLLBACK", "version": 1, "alias": "stable", "by": "anna", "reason": "odd"}
        )

    def run(self, samples: int = 60) -> None:
        """All roles answer, for two minutes until now."""
        now = time.time()
        for turn in range(samples):
            self.roles = self.roles | _pages(turn)
            self.series.sample(now - 2.0 * (samples - turn))
        moment = int(now * 1000)
        self.served = [ReplicaStatus("latest", ModelId(5, 340, moment - 300, 3140), now - 4.0, "", "steps")]

    @contextmanager
    def page(self, sources: PageSources | None = None) -> Iterator[str]:
        """The page on a port of its own; its address."""
        app = Starlette(routes=page_routes(sources or self.sources))
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            listening.close()

    def _judge(self, number: int, events: int) -> None:
        value, window = 0.2 + events / 10_000, {"map_full": 0.2, "map_shown": 0.5, "decision": 0.2}
        measures = {"events": events, "map_full": value, "map_shown": 0.6, "shown_order_map": 0.55}
        self.ledger.append(
            {
                "kind": "KEEP",
                "version": number,
                "reason": f"map_full {value:.4f}, version 0 0.2000",
                "measures": {**measures, "decision": value, "version_0": window},
            }
        )


def _pages(turn: int) -> dict[str, dict[str, Any]]:
    """What each role says of itself at its `turn`-th reading."""
    fresh = {"edges": [0.25, 0.5], "counts": [400.0 * turn * share for share in (0.5, 0.99, 1.0)]}
    lag = {"lag_events": 12, "lag_seconds": 0.2, "dead_letters": {"unknown_object": 7}}
    loss = {"loss_sum": 160.0 * turn, "loss_count": 400 * turn}
    return {
        "learn": {"events": {"updated": 400 * turn}, **lag, **loss},
        "validate": {"holdout_loss": 0.4, "drifts": 1, "judged": 6},
        "serve": {"aliases": {"latest": {"freshness": fresh}}},
    }
