"""The models of single keys as people see them: events, verdicts, measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from checkpoints import VersionStore
from checkpoints.encoding import fresh
from checkpoints.manifest import ArraySpec
from daemon.versions.algorithms import keys_of
from daemon.versions.key_verdicts import KeyVerdict
from learners.keyed import KEY_ARRAYS


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of a version: its events since it got its model, and what was judged of that; verdict "" where
    it was not.
    """

    key: str
    events: int
    verdict: str = ""
    impressions: int | None = None
    decision: float | None = None
    version_0: float | None = None
    why: str = ""


def key_rows(events: Mapping[str, int], verdicts: Mapping[str, KeyVerdict] | None) -> list[KeyRow]:
    """The keys that have a model, those with most events first, then those that were judged and have none."""
    judged = verdicts or {}
    ordered = sorted(events, key=lambda key: (-events[key], key))
    strangers = sorted(key for key in judged if key not in events)
    return [_row(key, events.get(key, 0), judged.get(key)) for key in (*ordered, *strangers)]


def read_events(versions: VersionStore, number: int) -> dict[str, int] | None:
    """How many events each key of a version had; None where there is one model for all. The whole version is
    verified, and nothing of the models is kept. Raises Damaged.
    """
    if not keys_of(versions.manifest(number)).slots:
        return None
    arrays = versions.load(number, _names_alone).arrays
    names = [row.tobytes().rstrip(b"\0").decode() for row in arrays["key_name"]]
    events = arrays["key_events"].tolist()
    return {name: count for name, count in zip(names, events, strict=True) if name}


def _names_alone(spec: ArraySpec) -> np.ndarray | None:
    return fresh(spec) if spec.name in KEY_ARRAYS else None


def _row(key: str, events: int, verdict: KeyVerdict | None) -> KeyRow:
    if verdict is None:
        return KeyRow(key, events)
    return KeyRow(
        key,
        events,
        verdict.verdict,
        verdict.impressions,
        verdict.decision,
        verdict.version_0,
        verdict.why,
    )
