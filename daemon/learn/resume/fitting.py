"""Fits the frozen maps once, before anything is learned: on the catalog, or on the stream's first objects.

The sample is a function of the catalog, or of the events' order: where polls end leaves no trace in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import structlog

from daemon.catalogs import as_block, as_blocks
from daemon.config.learners import GAIN_BY_ORDER, ORDERED_FROM, ViewKeys
from daemon.config.schema import Config
from daemon.exits import EX_DATAERR, EX_TEMPFAIL, UserError
from daemon.learn.reader import Inputs
from daemon.runtime.watchdog import Pulse
from daemon.versions.algorithms import ALGORITHMS, unit_blocks
from learners.block import Block, DenseBlock, SparseBlock, concatenate
from learners.maps import FittedSpaceMap, SpaceMap
from learners.maps import ViewConfig as MapConfig
from streams.catalog import Catalog, RoleColumns
from streams.decode import BatchDecoder, DecodedBatch
from streams.errors import OffsetExpired, StreamUnavailable
from streams.source import Source

MOST_CATALOG_ROWS = 100_000  # more change the fitted moments by less than their float32 rounding
MENTIONS_PER_OBJECT = 10  # a stream of few objects must not be waited for until it shows more
POLL_RECORDS = 500
POLL_SECONDS = 0.2


def catalog_sample(catalog: Catalog) -> Mapping[str, Block]:
    """All objects of the catalog, or `MOST_CATALOG_ROWS` of them at equal distances."""
    return _spread(as_blocks(catalog.views), MOST_CATALOG_ROWS)


def _spread(blocks: Mapping[str, Block], most: int) -> Mapping[str, Block]:
    """At most so many rows at equal distances, of each view the same ones."""
    if (count := len(next(iter(blocks.values())))) <= most:
        return blocks
    rows = np.linspace(0, count - 1, most).astype(np.int64)
    return {name: block.take(rows) for name, block in blocks.items()}


class Sample:
    """Distinct objects in order of first mention (query, clicked, skipped of one event after another).

    Full with `wanted` distinct objects, or after `MENTIONS_PER_OBJECT * wanted` mentions. Objects with values
    the learner would refuse (not finite, indices out of range or order) are left out.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._mentions = 0
        self._seen: set[bytes] = set()
        self._rows: list[dict[str, Block]] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        """Whether more would not change it."""
        return len(self._rows) >= self._wanted or self._mentions >= MENTIONS_PER_OBJECT * self._wanted

    def add(self, decoded: DecodedBatch) -> None:
        """Add the objects of a batch that came with features of their own."""
        for row in range(len(decoded.offsets)):
            for role in (decoded.query, decoded.clicked, decoded.skipped):
                if not self.full:
                    self._mention(role, row)

    def blocks(self) -> dict[str, Block]:
        """The sample, one block per view."""
        names = self._rows[0].keys() if self._rows else ()
        return {name: concatenate([row[name] for row in self._rows]) for name in names}

    def _mention(self, role: RoleColumns, row: int) -> None:
        self._mentions += 1
        if role.inline is None or role.rows[row] >= 0:
            return
        views = {name: as_block(column).take([row]) for name, column in role.inline.items()}
        key = _key(views)
        if key not in self._seen and all(usable(block) for block in views.values()):
            self._seen.add(key)
            self._rows.append(views)


def stream_sample(
    source: Source,
    positions: Mapping[int, int],
    decoder: BatchDecoder,
    wanted: int,
    *,
    to_the_end: bool,
    go_on: Callable[[Sample, StreamUnavailable | None], bool],
) -> Sample:
    """Read the sample from `positions` on. Poison is passed over here; learning deals with it.

    `to_the_end`: be content with what the stream has now. `go_on(sample, why the stream does not answer)` is
    asked after every poll; False ends it with what there is.
    """
    sample = Sample(wanted)
    source.assign(dict(positions))
    while not sample.full:
        trouble = None
        try:
            batch = source.poll(POLL_RECORDS, POLL_SECONDS)
            if batch is not None:
                sample.add(decoder.decode(batch))
            elif to_the_end:
                reached, bounds = source.reached(), source.bounds()  # a broker may leave a poll empty before
                if all(reached[partition] >= end for partition, (_, end) in bounds.items()):
                    break
        except StreamUnavailable as error:
            trouble = error
        if not go_on(sample, trouble):
            break
    return sample


def usable(row: Block) -> bool:
    """Whether one row could be learned from: finite values, sparse indices in range and increasing."""
    if not np.isfinite(row.values).all():
        return False
    if isinstance(row, DenseBlock) or not len(row.indices):
        return True
    rising = bool(np.all(np.diff(row.indices) > 0))
    return rising and int(row.indices[0]) >= 0 and int(row.indices[-1]) < row.dim


def _key(views: Mapping[str, Block]) -> bytes:
    digest = blake2b(digest_size=16)
    for name in sorted(views):
        block = views[name]
        digest.update(name.encode())
        if isinstance(block, SparseBlock):
            digest.update(block.indices.tobytes())
        digest.update(block.values.tobytes())
    return digest.digest()


log = structlog.get_logger("tripletd.learn")


LEARNER_SAMPLE = 5_000
"""Most mapped objects that a learner sees before its first event: mean distances need no more."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The map of a new store. sample: mapped objects of the warm-up, None unless the learner wants them."""

    space: FittedSpaceMap
    sample: Block | None = None


def space_map(config: Config) -> SpaceMap:
    """The configured maps. Where they keep the user's own ranking, the space knows it; else vectors are
    brought to unit length (each block of theirs, where the algorithm learns by blocks), unless no view is to
    be changed at all.
    """
    views, ordered = config.space.views, ordered_views(config)
    if similarity := config.space.own_similarity:
        return SpaceMap(
            {name: _map_config(view, name in ordered, similarity) for name, view in views.items()},
            by_block=unit_blocks(config.learner),
            similarity=similarity,
            weights={name: view.weight for name, view in views.items()},
        )
    unit = any(view.scalings != ["identity"] or view.kernels for view in views.values())
    by_block = unit and unit_blocks(config.learner)
    effective = unit and not by_block and config.space.weighs_views_by_dimension
    maps = {name: _map_config(view, name in ordered) for name, view in views.items()}
    return SpaceMap(maps, unit, by_block, effective)


def ordered_views(config: Config) -> set[str]:
    """The sparse views whose columns are put in the order of their counts: those that say so; and by
    themselves those where it pays. That is of a catalog: its objects are there to be counted, and are mapped
    once, while vectors that come with their events are put in order again and again."""
    pays = bool(config.catalog.path) and config.learner.algorithm in GAIN_BY_ORDER
    return {
        name
        for name, view in config.space.views.items()
        if view.column_order == "frequency"
        or (
            pays
            and view.column_order == "auto"
            and view.kind == "sparse"
            and not view.kernels
            and view.dim >= ORDERED_FROM
        )
    }


def fit_map(
    config: Config,
    inputs: Inputs,
    offsets: Mapping[int, int],
    take_what_there_is: bool,
    go_on: Callable[[str, bool], bool],
    *,
    pulse: Pulse,
) -> Fitted | None:
    """The fitted space of a new store, and what its learner wants to see of it. None when `go_on(what it
    waits for, whether in vain)` said to stop.

    `pulse` is this thread's: fitting takes as long as it takes.
    `take_what_there_is`: fit on fewer objects once the stream is read to its end instead of waiting.
    """
    plan, for_learner = space_map(config), ALGORITHMS[config.learner.algorithm].needs_sample
    if not (for_learner or config.space.needs_sample or ordered_views(config)):
        return Fitted(plan.fit({name: _no_rows(view) for name, view in config.space.views.items()}))
    if inputs.catalog is not None:
        log.info("fitting the maps on the catalog", objects=len(inputs.catalog))
        with pulse.patient("fitting the maps"):
            return _fitted(plan, catalog_sample(inputs.catalog), for_learner)
    stopped, wanted = False, config.space.warmup_objects

    def keep_reading(sample: Sample, trouble: StreamUnavailable | None) -> bool:
        nonlocal stopped
        waiting = f"warming up: {len(sample)}/{wanted} objects to fit the maps on"
        stopped = not go_on(waiting if trouble is None else f"{waiting}; {trouble}", trouble is not None)
        return not stopped

    try:
        sample = stream_sample(
            inputs.control, offsets, inputs.decoder, wanted, to_the_end=take_what_there_is, go_on=keep_reading
        )
    except OffsetExpired as error:
        raise UserError(
            f"{inputs.address}: {error}, while the maps were still waiting for objects",
            "start again: learning begins at the oldest record there is; lengthen stream.retention",
            EX_TEMPFAIL,
        ) from error
    if stopped:
        return None
    if not len(sample):
        raise UserError(
            f"{inputs.address}: no usable object to fit the maps on",
            "feed events first, configure catalog.path, or use maps that need no fitting (identity, unit)",
            EX_DATAERR,
        )
    log.info("fitting the maps on the stream's first objects", objects=len(sample))
    with pulse.patient("fitting the maps"):
        return _fitted(plan, sample.blocks(), for_learner)


def _fitted(plan: SpaceMap, sample: Mapping[str, Block], for_learner: bool) -> Fitted:
    """The plan fitted on a sample; of the same objects, at equal distances, what the learner is to see."""
    space = plan.fit(sample)
    return Fitted(space, space.transform(_spread(sample, LEARNER_SAMPLE)) if for_learner else None)


def _map_config(view: ViewKeys, ordered: bool, similarity: str = "") -> MapConfig:
    """The scalings and kernels of a view; where an own cosine is kept, the scalings of its unit vectors, so
    that views weigh as they say."""
    names: Sequence[str] = view.scalings
    if similarity:
        names = [name for name in names if name != "identity"] or ["identity"]
    if similarity == "cosine" and names[0] != "unit":
        names = ["unit", *(name for name in names if name != "identity")]
    maps = [*([MapConfig("by_count")] if ordered else []), *(_scaling(view, name) for name in names)]
    kernels = [MapConfig(one.map, one.options()) for one in view.kernels]
    if kernels:
        maps.append(kernels[0] if len(kernels) == 1 else MapConfig("kernels", {"maps": kernels}))
    return maps[0] if len(maps) == 1 else MapConfig("chain", {"maps": maps})


def _scaling(view: ViewKeys, name: str) -> MapConfig:
    options: dict[str, dict[str, Any]] = {
        "whiten": {"components": view.components},
        "pca": {"components": view.components},
        "tfidf": {} if view.idf == "smooth" else {"idf": view.idf},
        "precondition": {"epsilon": view.epsilon},
    }
    return MapConfig(name, options.get(name, {}))


def _no_rows(view: ViewKeys) -> Block:
    if view.kind == "dense":
        return DenseBlock(np.zeros((0, view.dim), np.float32))
    return SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), view.dim)
