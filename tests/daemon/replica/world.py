"""A learner that publishes versions and steps, and what its replicas need; everything in memory."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from checkpoints import Ledger, VersionMeta, VersionStore
from checkpoints.manifest import Manifest
from checkpoints.store import BlobStore
from daemon.config.learners import OasisKeys
from daemon.config.schema import ServingConfig
from daemon.replica.replica import Replica
from daemon.replica.settings import FollowSettings, Hooks, VersionSource
from daemon.replica.view import ModelId, ModelSpace
from daemon.versions.algorithms import digest_of
from daemon.versions.contents import learner_arrays
from daemon.versions.forms import make_form
from learners import Oasis, OasisConfig, TripletBatch, as_block
from learners.block import Block, DenseBlock
from learners.psd import psd_tangent
from learners.steps import StepBatch, taken_steps
from streams.event import Column, DenseColumn, SparseColumn
from streams.log import database
from streams.open import MemorySink, MemorySource, memory_path
from streams.source import OutRecord
from streams.steps.codec import encode_segment
from streams.steps.segment import GENESIS, Base, Body, Break, ChainPosition, RankOneSteps
from tests.harness.memory_store import MemoryStore
from tests.harness.waiting import until

SPACE, MAP = "things", "m" * 64
QUICK = FollowSettings(look_every_s=0.02, refine_every_s=0.05, refine_share=1.0, drain_s=0.2)
_names = itertools.count()


class World:
    """One checkpoint folder, one step log, one learner; `W_at` has W after every number of records."""

    def __init__(
        self, dim: int = 12, kind: str = "dense", store: BlobStore | None = None, **learner: Any
    ) -> None:
        self.dim, self.kind = dim, kind
        self.versions = VersionStore(MemoryStore() if store is None else store)
        self.ledger = Ledger(self.versions.store)
        self.config = OasisKeys(**learner)
        self.serving = ServingConfig()
        self.topic = f"replica-{next(_names)}"
        database.ensure_topic(memory_path(self.topic), "steps", 1)
        self.sink = MemorySink(self.topic, "steps")
        self.learner = Oasis(dim, self._oasis())
        self.W_at = {0: self.learner.W.copy()}
        self.records, self.watermark, self.parent = 0, None, None
        self.epoch = self.versions.claim()
        self.place, self.chain = ChainPosition(0, 0, 0, self.epoch.writer), GENESIS
        self.publish(tell=False)
        self.restart_log(0)

    # what the learner does

    def learn(self, events: int = 20, tell: bool = True, later: int = 0) -> None:
        """Steps on random triplets, published as one segment. later: ms by which their event times are."""
        seed = self.records + 1
        triplets = TripletBatch(*(self.rows(seed * 3 + role, events) for role in range(3)))
        info = self.learner.learn_many(triplets)
        first, self.records = self.records, self.records + events
        self.watermark = 1_000_000 + self.records + later
        self.W_at[self.records] = self.learner.W.copy()
        times = np.arange(first, self.records) + 1_000_001 + later
        none = StepBatch(np.zeros(0, np.float32), self.rows(0, 0), self.rows(0, 0))
        parts = taken_steps(triplets, info) or [none]
        for number, part in enumerate(parts if tell else []):
            last = self.records if number == len(parts) - 1 else first
            columns = column_of(part.query), column_of(part.error)
            told = times if number == 0 else times[:0]
            self.send(
                RankOneSteps(first, last, self.watermark, told, part.tau, *columns, project=part.project)
            )

    def capture(self, digest: str | None = None, tell: bool = True, **changes: Any) -> Manifest:
        """A version of the state as it is: its cut in the log, then the version; `base` tells of it."""
        if tell:
            empty = DenseColumn(np.zeros((0, self.dim), np.float32))
            none = np.zeros(0, np.float32)
            at = self.records
            self.send(
                RankOneSteps(at, at, self.watermark, np.zeros(0, np.int64), none, empty, empty, cut=True)
            )
        self.cut = self.chain
        manifest = self.versions.publish(self.epoch, self.arrays(), self.meta(**changes))
        self.parent = manifest.number
        return manifest

    def base(self, manifest: Manifest, digest: str | None = None) -> None:
        """Tell the log that a version is durable."""
        own = digest or digest_of(manifest)
        self.send(Base(manifest.number, self.records, self.cut, own, manifest.writer))

    def publish(self, tell: bool = True, **changes: Any) -> Manifest:
        """A version, told of at once."""
        manifest = self.capture(tell=tell, **changes)
        if tell:
            self.base(manifest)
        return manifest

    def restart_log(self, number: int, epoch: int | None = None) -> None:
        """A writer of this epoch begins from a version."""
        at = self.epoch.number if epoch is None else epoch
        self.place = ChainPosition(at, 0, number, self.epoch.writer)
        self.chain = GENESIS
        manifest = self.versions.manifest(number)
        records = int(manifest.counters["records"])
        self.send(Base(number, records, GENESIS, digest_of(manifest), manifest.writer))

    def restart(self, number: int) -> None:
        """Another learner takes over and goes on from a version."""
        version = self.versions.load(number)
        self.epoch = self.versions.claim()
        self.learner = Oasis.from_state(learner_arrays(version.arrays), self._oasis())
        self.records, self.watermark = int(version.manifest.counters["records"]), version.manifest.watermark
        self.parent = number
        self.restart_log(number)

    def send(self, body: Body) -> None:
        """One segment on the chain."""
        encoded = encode_segment(self.place, body, self.chain, 1 << 20)
        self.sink.send([OutRecord(value) for value in encoded.records])
        self.chain = encoded.after
        self.place = replace(self.place, seq=self.place.seq + 1)

    def skip_a_segment(self) -> None:
        """A segment that never arrives."""
        self.chain = encode_segment(self.place, Break(self.records, "rate"), self.chain, 1 << 20).after
        self.place = replace(self.place, seq=self.place.seq + 1)

    def arrays(self) -> dict[str, np.ndarray]:
        """State as a version has it, with a map and a window that a replica has no use for."""
        extra = {"map.x.mean": np.zeros(3, np.float32), "dedupe.ids": np.zeros(50, np.uint64)}
        return {**{name: array.copy() for name, array in self.learner.state().items()}, **extra}

    def meta(self, **changes: Any) -> VersionMeta:
        """What a learner says of it."""
        settings = self.config.model_dump()
        name = settings.pop("algorithm")
        fields: dict[str, Any] = {
            "learner": {"name": name, "config": settings, "config_digest": "c" * 64},
            "space": SPACE,
            "map": {"id": MAP, "spec": {}},
            "parent": self.parent,
            "counters": {"records": self.records},
            "watermark": self.watermark,
        }
        return VersionMeta(**(fields | changes))

    # what replicas and tests need

    def rows(self, seed: int, count: int) -> Block:
        """Random rows of this world's kind."""
        values = np.random.default_rng(seed).standard_normal((count, self.dim)).astype(np.float32)
        if self.kind == "dense":
            return as_block(values)
        values[np.abs(values) < 0.8] = 0
        return as_block(sparse.csr_array(values))

    @property
    def shelf(self) -> VersionSource:
        """Where replicas find versions."""
        return VersionSource(
            self.versions, self.ledger, ModelSpace.of(self.versions.manifest(0), self.dim), self.serving
        )

    def replica(
        self,
        alias: str = "latest",
        steps: bool = True,
        hooks: Hooks = Hooks(),
        following: FollowSettings = QUICK,
    ) -> Replica:
        """A replica; not started."""
        source = (lambda: MemorySource(self.topic, "steps")) if steps else None
        return Replica(alias, self.shelf, following, hooks, source)

    def exact_form(self, total: int) -> Any:
        """The serving form of the state after so many records."""
        return make_form(self.W_at[total], 0 if total == 0 else 1, self.serving)

    def wanted_fold(self, queries: Block, total: int, formed: int) -> np.ndarray:
        """S q as a view must give it, in float64: the form at `formed`, carried to `total`."""
        eye = np.eye(self.dim, dtype=np.float32)
        form = self.exact_form(formed)
        S = form.fold(eye).astype(np.float64)
        change = self.W_at[total].astype(np.float64) - self.W_at[formed]
        change = (change + change.T) / 2
        if form.matrix is not None:
            P = psd_tangent(self.W_at[formed], self.serving.power).astype(np.float64)
            change = P @ change @ P
        return _dense(queries).astype(np.float64) @ (S + change)

    def _oasis(self) -> OasisConfig:
        return OasisConfig(self.config.C, self.config.symmetric, self.config.psd_every)


def serves(replica: Replica, text: str) -> ModelId:
    """Wait until the replica names this model."""
    return until(
        lambda: replica.status().model if str(replica.status().model) == text else None,
        f"{text}; it is {replica.status()}",
    )


def _dense(block: Block) -> np.ndarray:
    return block.values if isinstance(block, DenseBlock) else block.checked_csr().toarray()


def column_of(block: Block) -> Column:
    if isinstance(block, DenseBlock):
        return DenseColumn(block.values)
    return SparseColumn(*block.kernel_rows(), block.dim)
