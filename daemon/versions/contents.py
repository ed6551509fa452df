"""What a version holds, by name: its arrays, its counters, and the control entry of an average.

The learner's arrays are under their own names, the others have a prefix: `map.` is the frozen map, `dedupe.`
the window of known event ids, `caps.` the window of steps by name, `arms.` the learners beside the main one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import numpy.typing as npt
from xxhash import xxh3_128

from checkpoints.manifest import ArraySpec, Manifest, VersionMeta

Arrays = dict[str, npt.NDArray[Any]]

MAP_PREFIX = "map."
WINDOW_PREFIX = "dedupe."
CAPS_PREFIX = "caps."
ARMS_PREFIX = "arms."
"""Followed by the name of an arm and that of its array, as in `arms.all.W`."""
NOT_LEARNED = (MAP_PREFIX, WINDOW_PREFIX, CAPS_PREFIX)
OTHERS = (*NOT_LEARNED, ARMS_PREFIX)


def pack(
    learned: Mapping[str, npt.NDArray[Any]],
    window: Mapping[str, npt.NDArray[Any]],
    fitted: Mapping[str, npt.NDArray[Any]],
    caps: Mapping[str, npt.NDArray[Any]],
) -> Arrays:
    """The arrays of a version, without copying; learned: as `learned_arrays`."""
    return {
        **learned,
        **{WINDOW_PREFIX + name: array for name, array in window.items()},
        **{MAP_PREFIX + name: array for name, array in fitted.items()},
        **{CAPS_PREFIX + name: array for name, array in caps.items()},
    }


def learner_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The learner's part of a version's arrays."""
    return {name: array for name, array in arrays.items() if not name.startswith(OTHERS)}


def learned_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """What a version has learned: the learner's arrays, and under their prefix those of the arms."""
    return {name: array for name, array in arrays.items() if not name.startswith(NOT_LEARNED)}


def learner_specs(manifest: Manifest) -> tuple[ArraySpec, ...]:
    """The learner's part of what a manifest says of arrays."""
    return tuple(spec for spec in manifest.arrays if not spec.name.startswith(OTHERS))


def one_digest(digests: Mapping[str, str]) -> str:
    """One digest for several arrays, by name: the digest itself where there is one, else the xxh3_128 (hex)
    of the lines "name digest" in the order of the names.
    """
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return xxh3_128(lines.encode()).hexdigest()


def map_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The map's part of a version's arrays."""
    return _part(arrays, MAP_PREFIX)


def arms_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The part of the arms, by `<arm>.<array>`; empty where a version has none."""
    return _part(arrays, ARMS_PREFIX)


def with_arms(learner: Mapping[str, npt.NDArray[Any]], arms: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The inverse of `learner_arrays` and `arms_arrays`: as `learned_arrays` has them."""
    return {**learner, **{ARMS_PREFIX + name: array for name, array in arms.items()}}


def caps_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The part of the window of steps by name; empty where a version has no caps."""
    return _part(arrays, CAPS_PREFIX)


def window_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The part of the window of known event ids; empty where a version has none."""
    return _part(arrays, WINDOW_PREFIX)


def _part(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


RECORDS = "records"
"""Records passed since version 0, poison included: the position that the step log and every curve share."""
LOSS_SUM = "loss_sum"
"""Hinge losses of the applied events, added up."""
UPDATED = "updated"
"""Events that changed the state."""
APPLIED = (UPDATED, "passive", "degenerate")
"""Outcomes of the events that the step could take."""
LEARNED = APPLIED[:2]
"""Outcomes of the events that are known by their ids from then on: what comes again is a repetition."""
REJECTED = "rejected"
"""Events that the step refused: a dead letter each, as those counted by POISON."""
POISON = "poison"
"""Records that could not be decoded."""
DUPLICATE = "duplicate"
"""Events that were known already and changed nothing."""
ASIDE = "aside"
"""Events that the main learner does not learn by `learner.pairs`: arms learn them, where any takes them."""

CAPPED = "capped"
"""Events that a cap refused: a dead letter each."""
EVICTED = "evicted"
"""Keys whose model was given up for another key's."""
EXPIRED = "expired"
"""Offsets that the log had dropped before version 0 was written: nothing was learned from those."""
LIMITED = "limited"
"""Events that caps let in with less than their weight."""


def counted(counters: Mapping[str, int | float], *names: str) -> int:
    """The sum of these counters; one that is not there counts 0."""
    return int(sum(counters.get(name, 0) for name in names))


def records_of(manifest: Manifest) -> int:
    """Records passed up to a version."""
    return counted(manifest.counters, RECORDS)


MAX_FUTURE = "max_future_ms"
"""The setting, recorded with a learner's: how far an event's time may lie past its record's arrival, ms.
Versions that do not have it took any time."""


def max_future_of(manifest: Manifest) -> int | None:
    """The bound on event times that a version was learned under; None where any time was taken."""
    found: int | None = manifest.learner.get("config", {}).get(MAX_FUTURE)
    return found


KNOWN = "known_ids"
"""The setting, recorded with a learner's: which events are known by their ids. Versions that do not have it
knew those that the step or a cap refused, too."""
ONLY_LEARNED = "learned"


def refused_known(manifest: Manifest) -> bool:
    """Whether a version knew the ids of events that were refused."""
    return KNOWN not in manifest.learner.get("config", {})


def known_in(manifest: Manifest) -> tuple[str, ...]:
    """Counters of the events by whose ids a version's window grew."""
    return (*APPLIED, ASIDE, REJECTED, CAPPED) if refused_known(manifest) else (*LEARNED, ASIDE)


def meta_like(manifest: Manifest, **changes: Any) -> VersionMeta:
    """What a version says of itself, but for these fields, for another one that is made of it."""
    return VersionMeta(**({one.name: getattr(manifest, one.name) for one in fields(VersionMeta)} | changes))


def written_ms(manifest: Manifest) -> int | None:
    """When a version was written, ms since the epoch; None where it does not say."""
    try:
        return int(datetime.fromisoformat(manifest.created).timestamp() * 1000)
    except ValueError:
        return None


MOST_AHEAD_MS = 86_400_000
"""A watermark further past its version's own time was set by an event with a wrong time."""


def watermark_of(manifest: Manifest) -> int | None:
    """The newest event time of a version, ms; where a wrong one had set it, when the version was written.

    Depends on the manifest alone.
    """
    mark, written = manifest.watermark, written_ms(manifest)
    if mark is None or written is None or mark <= written + MOST_AHEAD_MS:
        return mark
    return written


PAIRS = "pairs"
"""The setting, recorded with a learner's: what it learns of lists. Versions that do not have it learned every
pair."""
DROPPED = "dropped_arms"
"""Recorded with a learner's settings, and named by a judgment: arms that were dropped, and are not begun
again as long as they are configured alike."""

QUERIES = "queries"
"""The control entry of a map for queries of another model."""
AVERAGE = "average"


def average_entry(sources: Sequence[Manifest], weights: Sequence[float]) -> dict[str, Any]:
    """{"control": "average", "of": [{number, state_hash, weight}]}: what a schedule says instead of runs."""
    return {
        "control": AVERAGE,
        "of": [
            {"number": one.number, "state_hash": one.state_hash, "weight": float(weight)}
            for one, weight in zip(sources, weights, strict=True)
        ],
    }
