"""The configuration: one frozen model per TOML section, every key typed, bounded and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from daemon.config.learners import CapsKeys, KeysConfig, LearnerConfig, OasisKeys
from daemon.config.serve import HttpConfig, ServeConfig, StepsConfig
from daemon.config.space import ViewKeys
from daemon.config.stream import StreamConfig
from daemon.config.values import Judgments, Seconds, Section
from daemon.exits import UserError
from streams.limits import MAX_MAP_ENTRIES, MAX_TEXT_BYTES

Origin = Literal["default", "file", "env", "cli"]


class SpaceConfig(Section):
    """[space]: the feature space shared by events, catalog and learner."""

    id: str = Field("default", min_length=1, max_length=200, description="name of the feature space")
    warmup_objects: int = Field(5000, ge=1, description="distinct objects used to fit the maps")
    views: dict[str, ViewKeys] = Field(default_factory=dict, description="the object's feature vectors")

    @model_validator(mode="after")
    def _views_fit_the_format(self) -> SpaceConfig:
        if len(self.views) > MAX_MAP_ENTRIES:
            raise ValueError(f"{len(self.views)} views; an event carries at most {MAX_MAP_ENTRIES}")
        for name in self.views:
            if not 0 < len(name.encode()) <= MAX_TEXT_BYTES:
                raise ValueError(f"view name {name[:20]!r}: expected 1 to {MAX_TEXT_BYTES} bytes of UTF-8")
        return self


class CatalogConfig(Section):
    """[catalog]: object id -> features."""

    path: str = Field("", description="catalog file (.safetensors or .jsonl); empty: events carry features")


class CheckpointsConfig(Section):
    """[checkpoints]: where versions are written and how often."""

    path: str = Field("checkpoints", min_length=1, description="folder of the versions and the ledger")
    every: Seconds = Field(30.0, description="time between versions; 0s by every_events alone")
    every_events: int = Field(0, ge=0, description="also after this many events; 0 by time alone")
    keep: int = Field(20, ge=2, description="newest versions kept; aliases and version 0 stay in addition")

    @model_validator(mode="after")
    def _written_at_some_time(self) -> CheckpointsConfig:
        if not self.every and not self.every_events:
            raise ValueError('every = "0s" without every_events writes no version; set one of the two')
        return self


class FeedConfig(Section):
    """[feed]: impressions -> triplets."""

    rule: Literal["skip_above", "last_click", "skip_next", "all_skipped", "clicked_vs_random"] = Field(
        "skip_above", description="how clicks become triplets"
    )
    triplets_per_impression: int = Field(
        5,
        ge=0,
        description="most shown-list pairs kept per impression, drawn with the seed; random negatives come on"
        " top; 0 no cap",
    )
    random_negatives: int = Field(1, ge=0, le=100, description="random catalog objects per click as skipped")
    holdout_share: float = Field(0.1, ge=0, lt=1, description="share of queries kept for validation only")
    query_cap: int = Field(1000, ge=0, description="most impressions kept per query and stream; 0 no cap")
    dedupe_window: int = Field(100_000, ge=0, description="impression ids remembered; 0 keeps duplicates")
    seed: int = Field(
        0, ge=0, lt=2**63, description="seed of the holdout split, the pairs kept and the negatives"
    )


class ServingConfig(Section):
    """[serving]: the form in which a version is judged and served."""

    score: Literal["normalised", "raw"] = Field("normalised", description="normalised is the learned cosine")
    psd: Literal["auto", "full", "lanczos", "off"] = Field("auto", description="negative eigenvalues removed")
    power: float = Field(
        1.5, ge=0.5, le=3, allow_inf_nan=False, description="of the eigenvalues; raw, lanczos, off: always 1"
    )
    full_max_dim: int = Field(4096, ge=1, description="auto: full eigendecomposition up to this dimension")
    lanczos_pairs: int = Field(50, ge=1, description="most negative eigenpairs removed by lanczos")


class ValidateConfig(Section):
    """[validate]: judging versions and early stopping."""

    window: int = Field(2000, ge=1, description="newest holdout impressions kept")
    min_impressions: int = Field(
        0,
        ge=0,
        description="no verdict on fewer usable impressions; 0: 50, and without judgments no promotion"
        " on fewer than 500",
    )
    judgments: Judgments = Field("", description="qrels:PATH or labels:PATH")
    max_queries: int = Field(1000, ge=1, description="judged queries per version")
    patience: int = Field(8, ge=1, description="stop after this many versions without a new best")
    min_delta: float = Field(0.002, ge=0, allow_inf_nan=False, description="lead a new best needs")
    min_versions: int = Field(3, ge=1, description="never stop before this many judged versions")
    on_stop: Literal["park", "exit"] = Field("park", description="what learn does on STOP")
    drift: Literal["adwin", "page_hinkley", "off"] = Field("adwin", description="detector on holdout loss")

    @property
    def least_impressions(self) -> int:
        """Usable impressions from which on there are verdicts."""
        return self.min_impressions or 50


class LogConfig(Section):
    """[log]: messages on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severity shown")
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: json unless a terminal")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration: one attribute per section of the file."""

    stream: StreamConfig
    space: SpaceConfig
    catalog: CatalogConfig
    learner: LearnerConfig
    keys: KeysConfig
    caps: CapsKeys
    checkpoints: CheckpointsConfig
    steps: StepsConfig
    feed: FeedConfig
    serving: ServingConfig
    validate: ValidateConfig
    serve: ServeConfig
    http: HttpConfig
    log: LogConfig
    file: Path | None
    origins: Mapping[str, Origin]
    notes: tuple[str, ...] = ()
    """What was accepted and should be written otherwise, a sentence each."""

    def values(self) -> dict[str, dict[str, Any]]:
        """The effective configuration as nested plain data, written as in the file; secrets are stars."""
        return {name: getattr(self, name).model_dump(mode="json") for name in SECTIONS}

    def origin_of(self, key: str) -> Origin:
        """Where the value of "section.key" came from."""
        return self.origins.get(key, "default")

    def space_spec(self) -> dict[str, Any]:
        """{"id", "views": [{"name", "kind", "dim"}]} in the file's order; UserError when there is no view."""
        if not self.space.views:
            raise UserError(
                f"{self.file or 'configuration'}: no view is configured",
                "add a table such as [space.views.x] with kind and dim (a plain `x` in events is view x)",
            )
        views = [{"name": n, "kind": view.kind, "dim": view.dim} for n, view in self.space.views.items()]
        return {"id": self.space.id, "views": views}


SECTIONS: dict[str, type[Section]] = {
    "stream": StreamConfig,
    "space": SpaceConfig,
    "catalog": CatalogConfig,
    "learner": OasisKeys,  # of the default algorithm; another one has its own, see `keys_of`
    "keys": KeysConfig,
    "caps": CapsKeys,
    "checkpoints": CheckpointsConfig,
    "steps": StepsConfig,
    "feed": FeedConfig,
    "serving": ServingConfig,
    "validate": ValidateConfig,
    "serve": ServeConfig,
    "http": HttpConfig,
    "log": LogConfig,
}
