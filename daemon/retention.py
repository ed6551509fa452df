"""Retention of the stream: too old or too large a past goes, but never what is still to be learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from checkpoints import CheckpointError, Manifest
from daemon.config.model import Config, StreamConfig
from daemon.exits import UserError
from daemon.versions.storage import open_for_reading
from streams.address import Address
from streams.errors import StreamError, TopicMissing
from streams.open import open_sink, retain

Warn = Callable[[str], None]


def retain_topics(
    address: Address, limits: StreamConfig, learned: Mapping[int, int], warn: Warn
) -> dict[str, int]:
    """Apply `stream.retention` and `stream.retention_bytes` to all three topics; records removed, by topic.

    `learned`: next offset per partition of the newest durable version. No training record from there on is
    removed, whatever the limits say. `retention_bytes` is for each topic. Never raises for a stream that
    cannot be reached: `warn` is told, and the next call makes up for it.
    """
    age, size = limits.retention_s, limits.retention_size
    removed: dict[str, int] = {}
    if age is None and size is None:
        return removed
    for topic in (address, address.holdout, address.dead):
        try:
            counts = retain(topic, age, size, before=learned if topic == address else None)
        except TopicMissing:  # no holdout, or no dead letter yet
            continue
        except StreamError as error:
            warn(f"retention of {topic.topic}: {error}")
            continue
        removed[topic.topic] = sum(counts.values())
    return removed


def retain_after_feed(config: Config, address: Address, warn: Warn) -> dict[str, int]:
    """`retain_topics` for a process that learns nothing: what is learned is told by the checkpoint folder.

    Without a version of this topic there, all training records stay, and `warn` is told.
    """
    limits = config.stream
    if limits.retention_s is None and limits.retention_size is None:
        return {}
    newest = _newest(config)
    learned: dict[int, int] = {}
    if newest is not None and _is_of(newest, address):
        learned = {partition: position.next_offset for partition, position in newest.positions.items()}
    else:
        warn(f"retention: no version in {config.checkpoints.path} is of this stream; training records stay")
    return retain_topics(address, limits, learned, warn)


def _is_of(manifest: Manifest, address: Address) -> bool:
    """Whether the version learned from this very topic, not from another one of the same name."""
    try:
        with closing(open_sink(address)) as sink:
            identity = sink.identity()
    except StreamError:
        return False
    learned_from = (manifest.stream.get("log_id"), manifest.stream.get("topic_id"))
    return learned_from == (identity.log_id, identity.topic_id)


def _newest(config: Config) -> Manifest | None:
    """The newest readable manifest in the checkpoint folder; None without one."""
    if not Path(config.checkpoints.path).is_dir():
        return None
    try:
        versions, _ = open_for_reading(config)
        return versions.newest_manifest()
    except (CheckpointError, UserError):
        return None
