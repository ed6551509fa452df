"""A small world: classes of objects, a catalog, an embedded log, a store, and click lists over them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

import numpy as np
import pytest

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.manifest import PartitionPosition, VersionMeta
from checkpoints.versions import VersionStore
from daemon.config import load_config
from daemon.telemetry import ValidateMetrics
from daemon.validate.inputs import open_inputs
from daemon.validate.validator import Validator
from daemon.versions.contents import pack
from learners.block import DenseBlock, TripletBatch
from learners.maps import SpaceMap, ViewConfig
from learners.oasis import Oasis, OasisConfig
from streams.catalog import Catalog
from streams.codec import encode_impression
from streams.event import DenseColumn, Impression, ObjectRef, SpaceSpec, ViewSpec
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.daemon.oasis_versions import OASIS
from tests.harness.catalog_files import save_catalog

CLASSES, PER_CLASS, DIM = 6, 20, 12


class World:
    """Objects of six classes, seen in three of twelve coordinates; the others are noise."""

    def __init__(self, path, partitions=1):
        self.random = np.random.default_rng(7)
        self.labels = np.repeat(np.arange(CLASSES), PER_CLASS)
        centres = self.random.standard_normal((CLASSES, 3))
        noise = self.random.standard_normal((len(self.labels), DIM)) * 1.2
        noise[:, :3] = centres[self.labels] * 1.5 + self.random.standard_normal((len(self.labels), 3)) * 0.3
        self.values = noise.astype(np.float32)
        self.ids = [f"o{row}" for row in range(len(self.labels))]
        self.space = SpaceSpec("toy", (ViewSpec("x", "dense", DIM),))
        self.catalog = Catalog(self.ids, {"x": DenseColumn(self.values)}, self.space)
        self.path = path
        save_catalog(self.catalog, path / "catalog.safetensors")
        (path / "labels.tsv").write_text(
            "".join(f"{i}\tclass{c}\n" for i, c in zip(self.ids, self.labels, strict=True))
        )
        self.address = parse_address(f"log:{path / 'clicks.log'}")
        self.partitions = partitions
        self.identity = ensure_topic(self.address, partitions)
        ensure_topic(self.address.holdout, partitions)
        self.store = LocalStore(path / "checkpoints")
        self.versions, self.ledger = VersionStore(self.store), Ledger(self.store)
        plan = SpaceMap({"x": ViewConfig("unit")})
        self.fitted = plan.fit({"x": DenseBlock(self.values)})
        self.mapped = self.fitted.transform({"x": DenseBlock(self.values)})
        self.epoch = None
        self.learner = Oasis(DIM, OasisConfig(C=0.1))
        self.serial = 0

    def config(self, **overrides):
        values = {
            "stream.address": str(self.address),
            "stream.partitions": self.partitions,
            "space.id": "toy",
            "space.views.x.kind": "dense",
            "space.views.x.dim": DIM,
            "space.views.x.map": "unit",
            "catalog.path": str(self.path / "catalog.safetensors"),
            "checkpoints.path": str(self.path / "checkpoints"),
            "validate.judgments": f"labels:{self.path / 'labels.tsv'}",
            "validate.min_impressions": 5,
            "http.validate_port": 0,
        }
        values |= {key.replace("__", "."): value for key, value in overrides.items()}
        return load_config(None, values, {})

    def learn(self, count):
        """Triplets by label: the learner gets better at classes with every one."""
        rows = self.random.integers(0, len(self.ids), count)
        same = (self.labels[rows] * PER_CLASS) + self.random.integers(0, PER_CLASS, count)
        other = self.random.integers(0, len(self.ids), count)
        self.learner.learn_many(
            TripletBatch(self.mapped.take(rows), self.mapped.take(same), self.mapped.take(other))
        )

    def publish(self, W=None, position=0, events=0, arms=None, **changes):
        """The learner's state (or another W) as the next version. arms: arrays of each by name, which begin
        from the user's own ranking."""
        if self.epoch is None:
            self.epoch = self.versions.claim()
        state = dict(self.learner.state())
        if W is not None:
            state["W"] = np.ascontiguousarray(W, np.float32)
        meta = {
            "learner": OASIS,
            "space": "toy",
            "catalog_digest": self.catalog.digest,
            "map": {"id": self.fitted.id, "spec": self.fitted.spec()},
            "positions": {p: PartitionPosition(position) for p in range(self.partitions)},
            "stream": asdict(self.identity),
            "counters": {"updated": events, "passive": 0, "rejected": 3},
        }
        arrays = pack(state, {}, self.fitted.arrays(), {})
        if arms is not None:
            listed = [
                {"name": one, "pairs": "all", "random": True, "C": 0.05, "geometry": "own"} for one in arms
            ]
            meta["learner"] = {**OASIS, "config": {**OASIS["config"], "arms": listed}}
            arrays |= {f"arms.{name}.{key}": one for name, of in arms.items() for key, one in of.items()}
        return self.versions.publish(self.epoch, arrays, VersionMeta(**(meta | changes))).number

    def impression(self, flipped=False, inline=False):
        """Three objects of the query's class and five random ones; clicks on its class, or on the others."""
        self.serial += 1
        query = int(self.random.integers(len(self.ids)))
        mates = np.flatnonzero(self.labels == self.labels[query])
        shown = np.r_[self.random.choice(mates, 3), self.random.choice(len(self.ids), 5)]
        shown = self.random.permutation(np.unique(shown[shown != query]))
        clicked = np.flatnonzero((self.labels[shown] == self.labels[query]) != flipped)
        return Impression(
            f"i{self.serial}",
            1000 * self.serial,
            self.ref(query, inline),
            tuple(self.ref(row, inline) for row in shown),
            tuple(clicked.tolist()),
        )

    def ref(self, row, inline=False):
        return ObjectRef(self.ids[row], x=self.values[row]) if inline else ObjectRef(self.ids[row])

    def feed(self, count, **how):
        """Write holdout impressions, spread over the partitions."""
        self.send([encode_impression(self.impression(**how)) for _ in range(count)])

    def send(self, values):
        sink = open_sink(self.address.holdout)
        sink.send([OutRecord(value, partition=i % self.partitions) for i, value in enumerate(values)])
        sink.close()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def make_world(tmp_path):
    """Worlds in folders of their own."""

    def made(name="world", **settings):
        path = tmp_path / name
        path.mkdir()
        return World(path, **settings)

    return made


@pytest.fixture
def start(world):
    """Open a validator on the world, as a fresh process would."""
    with ExitStack() as stack:

        def opened(on=world, **settings):
            config = on.config(**settings)
            inputs = open_inputs(stack, config, ValidateMetrics())
            return Validator(inputs), inputs

        yield opened
