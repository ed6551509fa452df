"""This run in the terms of a manifest: settings with their digest, map, catalog, stream, packages."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from checkpoints.manifest import Manifest, VersionMeta
from daemon.config.schema import Config
from daemon.learn.state import Snapshot
from daemon.versions.algorithms import CAPS, KEYS, keys_of
from learners.kernels.cpu import CPU_LEVEL
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.decode import BatchDecoder
from streams.event import SpaceSpec, ViewSpec
from streams.source import TopicIdentity

PACKAGES = ("tripletd", "numpy", "scipy", "numba", "llvmlite", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Expected:
    """What this run is configured with, in the terms of a manifest."""

    learner: str
    learner_config: Mapping[str, Any]
    space: str
    catalog_digest: str | None
    stream: Mapping[str, Any]


def learner_settings(config: Config) -> dict[str, Any]:
    """Every setting that W depends on; a version learned with others is refused."""
    settings = config.learner.model_dump()
    settings.pop("algorithm")
    settings["max_record_bytes"] = config.stream.max_record_bytes  # decides which records are poison
    if config.caps.as_learned.any:
        settings[CAPS] = asdict(config.caps.as_learned)
    if config.keys.slots:
        settings[KEYS] = config.keys.model_dump()
    settings["views"] = {name: _view(view.model_dump()) for name, view in config.space.views.items()}
    return settings


def _view(settings: dict[str, Any]) -> dict[str, Any]:
    """A view's settings; one without kernels is told as before there were any."""
    return {name: value for name, value in settings.items() if name != "kernels" or value}


def decoder_of(manifest: Manifest, catalog: Catalog | None) -> BatchDecoder:
    """A decoder that refuses what the version's own learner refused."""
    recorded = manifest.learner["config"]
    views = tuple(ViewSpec(name, view["kind"], view["dim"]) for name, view in recorded["views"].items())
    space = SpaceSpec(manifest.space, views)
    topic, largest = manifest.stream["topic"], recorded["max_record_bytes"]
    return BatchDecoder(space, catalog, topic, largest, keyed=keys_of(manifest).slots > 0)


def digest_of(settings: Mapping[str, Any]) -> str:
    """sha256 of the settings as canonical JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def expected(config: Config, catalog_digest: str | None, identity: TopicIdentity) -> Expected:
    """What a version must have been learned with for this run to continue from it."""
    return Expected(
        config.learner.algorithm, learner_settings(config), config.space.id, catalog_digest, asdict(identity)
    )


def runtime() -> dict[str, Any]:
    """Package versions, Python and the processor level the kernels were compiled for."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a source tree that was never installed
            continue
    return {"packages": packages, "python": platform.python_version(), "cpu_level": CPU_LEVEL}


class Description:
    """Fills the part of a manifest that is the same for every version of a run."""

    def __init__(self, run: Expected, fitted: FittedSpaceMap) -> None:
        settings = dict(run.learner_config)
        self._learner = {"name": run.learner, "config": settings, "config_digest": digest_of(settings)}
        self._run = run
        self._map = {"id": fitted.id, "spec": fitted.spec()}
        self._runtime = runtime()

    def __call__(self, snapshot: Snapshot, parent: int | None) -> VersionMeta:
        """The meta of a version for this snapshot."""
        return VersionMeta(
            learner=self._learner,
            space=self._run.space,
            map=self._map,
            catalog_digest=self._run.catalog_digest,
            seed=0,  # OASIS draws nothing
            parent=parent,
            positions=snapshot.positions,
            stream=dict(self._run.stream),
            schedule=snapshot.entries,
            counters=snapshot.counters,
            watermark=snapshot.watermark,
            runtime=self._runtime,
        )
