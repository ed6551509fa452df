"""Small states and the metadata that goes with them."""

from __future__ import annotations

import numpy as np

from checkpoints import Manifest, PartitionPosition, VersionMeta


def state(seed: int = 0, dim: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "W": rng.standard_normal((dim, dim)).astype(np.float32),
        "seen": np.array([1, 2, 3], np.int64),
        "flags": np.array([True, False]),
        "step": np.array(seed, np.uint64),
        "empty": np.zeros((0, 3), np.float16),
    }


def meta(parent: int | None = None, **changes: object) -> VersionMeta:
    fields: dict[str, object] = {
        "learner": {"name": "oasis", "config": {"C": 0.1}, "config_digest": "c" * 64},
        "space": "photos",
        "map": {"id": "identity", "spec": {}},
        "catalog_digest": "d" * 64,
        "seed": 7,
        "parent": parent,
        "positions": {0: PartitionPosition(10, "e" * 64), 11: PartitionPosition(0, None)},
        "stream": {"log_id": "l", "topic": "t", "topic_id": "i", "partitions": 12},
        "schedule": ((0, 0, 10), {"control": "resume", "at": 10}),
        "counters": {"updated": 9, "loss_sum": 1.5},
        "watermark": 1_700_000_000_000,
        "runtime": {"packages": {"numpy": "2"}, "cpu_level": "x86-64-v3"},
    }
    return VersionMeta(**(fields | changes))  # type: ignore[arg-type]


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(
        left[k].dtype == right[k].dtype
        and left[k].shape == right[k].shape
        and left[k].tobytes() == right[k].tobytes()
        for k in left
    )


def a_manifest(**changes: object) -> Manifest:
    base = meta()
    shared = {name: getattr(base, name) for name in VersionMeta.__dataclass_fields__}
    own = {"kind": "version", "number": 1, "epoch": 0, "writer": "w", "created": "2026-01-01T00:00:00+00:00"}
    return Manifest(**(shared | own | changes))  # type: ignore[arg-type]
