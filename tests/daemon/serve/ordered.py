"""A checkpoint folder with versions that have arms, what each of them must answer, and what serves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry

from checkpoints import Ledger, LocalStore, VersionMeta, VersionStore
from daemon.config import load_config
from daemon.serve.http.app import create_app
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.openapi import document
from daemon.serve.http.parts import Parts
from daemon.serve.http.server import serve
from daemon.serve.indexed import IndexSearch
from daemon.serve.interleave import ListMaker
from daemon.serve.live import FreshnessWatcher, Live
from daemon.serve.store import StoreActions
from daemon.telemetry.metrics import add_build_info
from daemon.telemetry.server import Health
from daemon.versions.contents import pack
from daemon.versions.forms import make_form
from learners.block import DenseBlock
from learners.maps import FittedSpaceMap, SpaceMap
from learners.maps.space import ViewConfig
from learners.pending import PendingSteps
from tests.daemon.oasis_versions import OASIS, state_of
from tests.daemon.serve.http.contract import Contract
from tests.daemon.serve.http.toy import HOST, Served, ToySearcher, ToyStore, Watched
from tests.harness.waiting import until

DIM, ITEMS, TOP, SHARE = 8, 120, 40, 3.0
ALIASES = ("stable", "latest", "own")
ARM = {"name": "all", "pairs": "all", "random": True, "C": 0.05, "geometry": "own"}
ORDER: dict[str, Any] = {"arm": "all", "own_share": SHARE, "top": TOP}


class OrderedVersions:
    """Versions whose objects are mapped by a preconditioner, so that the user's own geometry is another one
    than that of the main learner. Arms have steps that wait to be added."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "checkpoints"
        self.objects = np.random.default_rng(2).standard_normal((ITEMS, DIM)).astype(np.float32)
        self.objects *= np.linspace(0.3, 3, DIM, dtype=np.float32)
        self.ids = [f"o{number}" for number in range(ITEMS)]
        space = SpaceMap({"x": ViewConfig("precondition")}, similarity="cosine")
        self.space: FittedSpaceMap = space.fit({"x": DenseBlock(self.objects)})
        assert self.space.own is not None
        self.mapped = self.space.transform({"x": DenseBlock(self.objects)})
        lines = [
            json.dumps({"id": one, "x": row.tolist()})
            for one, row in zip(self.ids, self.objects, strict=True)
        ]
        self.catalog = root / "catalog.jsonl"
        self.catalog.write_text("\n".join(lines))
        self.W: dict[int, np.ndarray] = {}
        self.arms: dict[int, np.ndarray] = {}
        self._epoch = self.versions.claim()
        self.add()

    @property
    def versions(self) -> VersionStore:
        return VersionStore(LocalStore(self.folder))

    @property
    def ledger(self) -> Ledger:
        return Ledger(LocalStore(self.folder))

    def add(self, arms: tuple[str, ...] = ("all",), **arrays: np.ndarray) -> int:
        """The next version."""
        number = self._epoch.next_number
        draw = np.random.default_rng(number)
        W = np.eye(DIM) + (0.6 * draw.standard_normal((DIM, DIM)) if number else 0)
        self.W[number] = W.astype(np.float32)
        extra: dict[str, np.ndarray] = {}
        for name in arms:
            A = (np.eye(DIM) + 0.8 * draw.standard_normal((DIM, DIM))).astype(np.float32)
            waiting = PendingSteps.none(DIM, 4)
            waiting.tau[0], waiting.pairs[0, :DIM] = 0.5, draw.standard_normal(DIM)
            waiting.pairs[1, :DIM] = draw.standard_normal(DIM)
            self.arms[number] = waiting.with_them(A)
            extra |= {f"arms.{name}.{key}": array for key, array in {"W": A, **waiting.arrays}.items()}
        arrays = pack(state_of(self.W[number]), {}, self.space.arrays(), {}) | extra | arrays
        settings = [ARM | {"name": name} for name in arms]
        learner = {**OASIS, "config": OASIS["config"] | ({"arms": settings} if arms else {})}
        about = {"id": self.space.id, "spec": self.space.spec()}
        meta = VersionMeta(map=about, learner=learner, counters={"records": 10 * number})
        return self.versions.publish(self._epoch, arrays, meta).number

    def judged(self, version: int, *, reach: bool, order: Any = ORDER, kind: str = "PROMOTE") -> None:
        """A judgment, by which the version becomes best where it is a PROMOTE."""
        measures = {"order": order, "reach": reach}
        alias = "best" if kind == "PROMOTE" else None
        self.ledger.append({"kind": kind, "version": version, "alias": alias, "measures": measures})

    # what must be answered, in float64 from the given vectors

    def own(self, row: int) -> np.ndarray:
        """The user's own scores of all objects."""
        units = self.objects.astype(np.float64)
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        return np.asarray(units @ units[row])

    def order(self, number: int, row: int, share: float = SHARE) -> np.ndarray:
        """The order of a version: its arm works on vectors whose inner product is the user's own score."""
        assert self.space.own is not None
        rows = self.mapped.values.astype(np.float64) * np.sqrt(self.space.own.metric.astype(np.float64))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(
            rows @ (self.arms[number].T.astype(np.float64) @ rows[row]) + share * (rows @ rows[row])
        )

    def form(self, number: int, row: int) -> np.ndarray:
        """The serving form."""
        config = load_config(None, {"space.views.x.dim": DIM}, {})
        form = make_form(self.W[number], number, config.serving)
        return np.asarray(form.scores(self.mapped.slice(row, row + 1), self.mapped)[0], np.float64)

    def reranked(self, number: int, row: int, top: int = TOP, allowed: set[str] | None = None) -> list[str]:
        """The answer of a version that orders and does not search: all ids but that of the query."""
        own, order = self.own(row), self.order(number, row)
        ranked = [at for at in np.argsort(-own, kind="stable") if at != row]
        ranked = [at for at in ranked if allowed is None or self.ids[at] in allowed]
        first = sorted(ranked[:top], key=lambda at: -order[at])
        return [self.ids[at] for at in [*first, *ranked[top:]]]


@contextmanager
def opened(shop: OrderedVersions, **settings: Any) -> Iterator[Live]:
    """What serves this folder; the first alias answers, and all objects are there."""
    config = load_config(
        None,
        {
            "stream.address": f"log:{shop.folder.parent}/clicks.log",
            "space.views.x.dim": DIM,
            "catalog.path": str(shop.catalog),
            "checkpoints.path": str(shop.folder),
            "serve.aliases": list(ALIASES),
            "serve.look_every": "20ms",
            "steps.enabled": False,
        }
        | settings,
        {},
    )
    watcher = FreshnessWatcher(ALIASES, lambda *told: None, 60.0)
    live = Live(config, shop.versions, shop.ledger, watcher, lambda guarded: None)
    with closing(live):
        live.open_when_there()
        until(lambda: live.not_ready() is None and len(live.snapshot() or ()) == ITEMS)
        until(lambda: all(one.model is not None for one in live.statuses()))
        yield live


@contextmanager
def over_http(
    shop: OrderedVersions,
    live: Live,
    index: IndexSearch | None = None,
    lists: ListMaker | None = None,
    embedding: Any = None,
) -> Iterator[Served]:
    """The same over HTTP, on a free port."""
    health, registry, watched = Health(), CollectorRegistry(), Watched()
    add_build_info(registry, "serve")
    store = StoreActions(shop.versions, shop.ledger, 20, live.statuses)
    find = None if index is None else index.find
    about = {"lists": lists, "index": find, "embedding": embedding, "current": live.current}
    parts = Parts(live, live, watched.answered, store, ALIASES, health, registry, **about)
    server = serve(create_app(parts), HOST, 0, None)
    try:
        contract = Contract(document(HttpLimits()))
        yield Served(server, ToySearcher(), ToyStore(), watched, health, registry, contract)
    finally:
        server.close()


def answers(live: Live, alias: str, version: int, *, reach: bool, order: bool = True) -> None:
    """Wait until a name answers so."""

    def there() -> bool:
        (one,) = [one for one in live.statuses() if one.alias == alias]
        told = one.answers
        return str(one.model) == str(version) and (told.reach, told.order is not None) == (reach, order)

    until(there)
