"""The held-out lists that versions are judged on: of history in files, as a backfill finds them, and of a
log's holdout topic, as `validate` does; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import msgpack
from xxhash import xxh3_128

from daemon.backfill.judging import newest_lists
from daemon.backfill.plan import HistoryProgress
from daemon.config.schema import Config
from daemon.validate.holdout import Holdout, read_whole
from daemon.validate.inputs import lists_per_held_out
from streams.catalog import Catalog
from streams.codec import decode_impression, encode_impression
from streams.event import Impression
from streams.open import open_source
from streams.queries import VectorMaps
from streams.source import Address


def lists_of_history(config: Config, catalog: Catalog | None, progress: HistoryProgress) -> list[Impression]:
    """The newest held-out lists of what a backfill reads: of its files, and of the holdout topics of its
    logs; by time, each once, at most `validate.window`."""
    found = {one.id: one for one in newest_lists(config, catalog, progress)}
    logs = dict.fromkeys(one.name.rpartition("#")[0] for one in progress.units if not one.paths)
    for name in logs:
        for one in lists_of_topic(config.stream.reached(name), config, catalog):
            found.setdefault(one.id, one)
    return sorted(found.values(), key=lambda one: (one.ts, one.id))[-config.validate.window :]


def lists_of_topic(
    address: Address, config: Config, catalog: Catalog | None, queries: VectorMaps | None = None
) -> list[Impression]:
    """The window that `validate` has of the stream at `address` now, oldest first. queries: what takes
    queries of other models to the space. Raises UserError where the log does not answer."""
    with closing(open_source(address.holdout)) as source:
        ends = {partition: stop for partition, (_, stop) in source.bounds().items()}
        held = Holdout(
            source,
            None,
            space=config.space_spec(),
            catalog=catalog,
            size=config.validate.window,
            spread=lists_per_held_out(config.feed),
            upto=ends,
        )
        held.queries = queries or {}
        return read_whole(held)


def encode_lists(lists: Sequence[Impression]) -> bytes:
    """Lists in one piece, as workers and files get them."""
    packed: bytes = msgpack.packb([encode_impression(one) for one in lists])
    return packed


def decode_lists(data: bytes) -> list[Impression]:
    """Inverse of `encode_lists`. Raises ValueError or Poison for anything else."""
    return [decode_impression(one) for one in msgpack.unpackb(data)]


def digest_of(data: bytes) -> str:
    """Of encoded lists: xxh3_128 (hex)."""
    return xxh3_128(data).hexdigest()
