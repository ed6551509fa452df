"""What feeding needs, once or for ever: the stream's topics, the catalog, and who decides about each list."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from daemon.catalogs import catalog_without_space, learner_catalog
from daemon.config import Config
from daemon.config.objects import is_object_address
from daemon.config.schema import BY_SPACE
from daemon.config.values import LIVE
from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, UserError
from daemon.versions.restore import queries_of
from daemon.versions.storage import open_store
from streams.catalog import Catalog
from streams.errors import AddressError, TopicMissing
from streams.feed.decide import Decider
from streams.feed.kinds import HeldOutKinds
from streams.feed.options import FeedSettings, ListProof
from streams.feed.position_weights import ExaminationCurve, PositionWeights
from streams.feed.triplets import CatalogCandidates, SeenCandidates
from streams.open import open_sink, prepare_topic
from streams.source import Address


def stream_address(config: Config) -> Address:
    """Where to feed to; UserError (64 where it was typed, 78 from the configuration) for a bad address."""
    try:
        return config.stream.to_address()
    except AddressError as error:
        typed = config.origin_of("stream.address") in ("cli", "env")
        raise UserError(str(error), code=EX_USAGE if typed else EX_CONFIG) from None


def catalog_of_feed(config: Config, tell: Callable[[str], None]) -> Catalog | None:
    """The catalog, checked against the space where views are configured."""
    if not config.catalog.path:
        return None
    elsewhere = config.catalog.path.startswith(LIVE) or is_object_address(config.catalog.path)
    if not elsewhere and not Path(config.catalog.path).exists():
        remedy = "correct --catalog or catalog.path"
        raise UserError(f"the catalog {config.catalog.path} does not exist", remedy, EX_CONFIG)
    opened = learner_catalog if config.space.views else catalog_without_space
    return opened(config, tell=tell)


def prepare_both(address: Address, config: Config) -> int:
    """The training and the holdout topic, those of an embedded log created where missing; the partitions."""
    partitions = _prepared(address, _partitions(address, config), address)
    _prepared(address.holdout, partitions, address)
    return partitions


def _prepared(topic: Address, partitions: int, stream: Address) -> int:
    try:
        return prepare_topic(topic, partitions, "write").partitions
    except TopicMissing as error:
        remedy = f"create it with `tripletd topics create --to {stream}`, or correct the address"
        raise UserError(f"{topic}: there is no such topic", remedy, EX_UNAVAILABLE) from error


def _partitions(address: Address, config: Config) -> int:
    """As configured; where that was left to the default, as many as the topic already has."""
    if config.origin_of("stream.partitions") == "default" and address.scheme != "kafka":
        with suppress(TopicMissing), closing(open_sink(address)) as sink:
            return sink.identity().partitions
    return config.stream.partitions


def is_prequential(config: Config) -> bool:
    """Whether lists that are learned from are written for versions to be judged by: where clicks decide, for
    one model, by lists that are held out."""
    by_clicks = config.validate.decided_by == "race" and not config.keys.slots
    return config.feed.prequential and by_clicks and config.feed.holdout_share > 0


def triplets_of(config: Config) -> dict[str, Any]:
    """Settings of what is fed that follow from other sections than [feed]."""
    return {"rule": rule_of(config), "for_arms": is_prequential(config) and config.has_arms}


def position_weights(config: Config) -> PositionWeights | None:
    """By the file of feed.position_weights; None without one. Raises UserError."""
    feed = config.feed
    if not feed.position_weights:
        return None
    place = f"feed.position_weights: {feed.position_weights}"
    remedy = "write it with `tripletd clicks bias SOURCE... --out FILE`"
    try:
        curve = ExaminationCurve.parse(Path(feed.position_weights).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{place}: {error.strerror or error}", remedy, EX_CONFIG) from None
    except ValueError as error:
        raise UserError(f"{place}: {error}", remedy, EX_CONFIG) from None
    return PositionWeights.of(curve, rule_of(config), feed.triplets_per_impression)


def rule_of(config: Config) -> str:
    """feed.rule; where it is not written and nobody learns pairs below the click, none are made."""
    by_default = config.origin_of("feed.rule") == "default"
    return "skip_above" if by_default and not config.learns_below else config.feed.rule


FALLS_FROM = 1_500
"""Events from which random negatives weigh less and less, where the space decides."""


def negative_falls_from(config: Config) -> int:
    """feed.negative_falls_from, or what the space needs where it does not say: with few clicks a drawn object
    is what keeps the rest of the catalog in its place, with many it is too often right for a query."""
    given = config.feed.negative_falls_from
    if given != BY_SPACE:
        return given
    by_oasis = len(config.space.views) > 1 and config.learner.algorithm == "oasis"
    # a new key has few clicks, however many the stream holds
    of_one_model = by_oasis and not config.keys.slots
    return FALLS_FROM if of_one_model and config.origin_of("feed.negative_weight") == "default" else 0


def decider_of(
    config: Config,
    catalog: Catalog | None,
    partitions: int,
    now_ms: int,
    *,
    fed: int = 0,
    endless: bool = False,
    keeps_learned: bool = True,
) -> Decider:
    """Who decides by [feed]. Raises UserError. keeps_learned: whether lists that are learned from are written
    as lists, too, where clicks decide.

    fed: how many events the stream holds already. Times past `now_ms` by more than stream.max_future are
    refused; of an endless log its reader does that.
    """
    space = config.space.id if config.space.views else None
    given = config.feed.model_dump(exclude={"follow"}) | triplets_of(config)
    given |= {"prequential": is_prequential(config) and keeps_learned}
    given |= {"position_weights": position_weights(config)}
    given["negative_falls_from"] = negative_falls_from(config)
    secret = config.interleaving.key.get_secret_value()
    earliest_ms = now_ms - round(1000 * config.interleaving.max_age)
    proof = ListProof(secret.encode(), earliest_ms) if secret else None
    latest_ms = None if endless else now_ms + round(1000 * config.stream.max_future)
    settings = FeedSettings(
        **given, partitions=partitions, space=space, latest_ms=latest_ms, proof=proof, untimed_ms=now_ms
    )
    spec = config.space_spec() if config.space.views else None
    queries = queries_of(open_store(config.checkpoints.path).versions)
    if catalog is None:
        if settings.holdout_kinds:
            raise UserError(
                "feed.holdout_kinds: kinds are found by the vectors of a catalog, and none is configured",
                "set catalog.path, or feed.holdout_kinds = 0",
                EX_CONFIG,
            )
        return Decider(settings, SeenCandidates(seed=settings.seed), None, spec, queries=queries, fed=fed)
    kinds = None
    if settings.holdout_kinds:
        kinds = HeldOutKinds(catalog, settings.holdout_kinds, settings.kind_share, settings.seed)
    known = CatalogCandidates(catalog.ids), frozenset(catalog.ids)
    return Decider(settings, *known, spec, kinds, queries=queries, fed=fed)
