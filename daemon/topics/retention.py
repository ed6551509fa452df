"""Retention of the embedded log: what is too old or too large goes, but never what is still to be learned.

On Kafka the broker removes records, as its topics are set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from checkpoints import CheckpointError, Manifest, VersionStore
from daemon.config.schema import Config, StepsConfig
from daemon.config.services import StreamConfig
from daemon.exits import UserError
from daemon.versions.storage import open_for_reading
from streams.errors import StreamError, TopicMissing
from streams.open import open_sink, retain
from streams.source import Address

Warn = Callable[[str], None]


def retain_topics(
    address: Address, limits: StreamConfig, learned: Mapping[int, int], warn: Warn
) -> dict[str, int]:
    """Apply `stream.retention` and `stream.retention_bytes` to all three topics; records removed, by topic.

    `learned`: next offset per partition, see `learned_twice`. No training record from there on is removed,
    whatever the limits say. `retention_bytes` is for each topic. Never raises for a stream that
    cannot be reached: `warn` is called, and the next call makes up for it.
    """
    topics = (address, address.holdout, address.dead)
    removed = {one.topic: _retain(one, limits, learned if one == address else None, warn) for one in topics}
    return {topic: count for topic, count in removed.items() if count is not None}


def retain_steps(address: Address, limits: StepsConfig, floor: int, warn: Warn) -> int:
    """Apply `steps.retention` and `steps.retention_bytes` to the step log of `address`; segments removed.

    None from offset `floor` on goes, whatever the limits say. Never raises, as `retain_topics`.
    """
    return _retain(address.steps, limits, {0: floor}, warn) or 0


def _retain(
    topic: Address, limits: StreamConfig | StepsConfig, before: Mapping[int, int] | None, warn: Warn
) -> int | None:
    """What was removed of one topic; None where nothing is to be, there is no such topic, or it fails."""
    if _keeps_all(topic, limits):
        return None
    try:
        return sum(retain(topic, limits.retention, limits.retention_bytes, before=before).values())
    except TopicMissing:  # no holdout, or no dead letter yet
        return None
    except StreamError as error:
        warn(f"retention of {topic.topic}: {error}")
        return None


def _keeps_all(topic: Address, limits: StreamConfig | StepsConfig) -> bool:
    return (limits.retention is None and limits.retention_bytes is None) or topic.scheme == "kafka"


def learned_twice(versions: VersionStore, newest: Manifest) -> dict[int, int]:
    """Next offset per partition that the newest version and its parent (pruned: the newest older one) have
    both passed. Empty where there is none: every record stays.

    Should the newest be damaged later, learning continues from the parent, and finds its records.
    """
    before = _before(versions, newest)
    if before is None:
        return {}
    return {
        p: min(at.next_offset, before.positions[p].next_offset)
        for p, at in newest.positions.items()
        if p in before.positions and before.stream == newest.stream
    }


def _before(versions: VersionStore, newest: Manifest) -> Manifest | None:
    """The parent; where that cannot be read, the newest older version that can."""
    if newest.parent is not None:
        with suppress(CheckpointError):
            return versions.manifest(newest.parent)
    older = (found for number, found in versions.listing.newest_first() if number < newest.number)
    return next((found for found in older if isinstance(found, Manifest)), None)


def retain_after_feed(config: Config, address: Address, warn: Warn) -> dict[str, int]:
    """`retain_topics` for a process that does not learn: the checkpoint folder says what is learned.

    Without a version of this topic there, all training records stay, and `warn` is called.
    """
    if _keeps_all(address, config.stream):
        return {}
    learned = _learned(config, address)
    if learned is None:
        warn(f"retention: no version in {config.checkpoints.path} is of this stream; training records stay")
    return retain_topics(address, config.stream, learned or {}, warn)


def _is_of(manifest: Manifest, address: Address) -> bool:
    try:
        with closing(open_sink(address)) as sink:
            identity = sink.identity()
    except StreamError:
        return False
    learned_from = (manifest.stream.get("log_id"), manifest.stream.get("topic_id"))
    return learned_from == (identity.log_id, identity.topic_id)


def _learned(config: Config, address: Address) -> dict[int, int] | None:
    """What the versions in the checkpoint folder have learned of this topic; None without one of it."""
    try:
        versions, _ = open_for_reading(config)
        newest = versions.newest_manifest()
        if newest is None or not _is_of(newest, address):
            return None
        return learned_twice(versions, newest)
    except (CheckpointError, UserError):
        return None
