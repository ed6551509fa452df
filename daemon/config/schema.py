"""The configuration: one frozen model per TOML section, every key typed, bounded and described."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from daemon.config.learners import CapsKeys, KeysConfig, LearnerConfig, OasisKeys, ViewKeys
from daemon.config.services import EmbeddingsConfig, IndexConfig, RegistryConfig, StreamConfig
from daemon.config.values import (
    Bytes,
    FolderSetting,
    IdsSetting,
    JudgmentsSetting,
    MappingSetting,
    Names,
    ObjectsSetting,
    OptionalBytes,
    OptionalSeconds,
    PathSetting,
    Port,
    PositiveSeconds,
    Seconds,
    Section,
    SourcesSetting,
    table,
)
from daemon.exits import UserError
from streams.limits import MAX_MAP_ENTRIES, MAX_TEXT_BYTES

if TYPE_CHECKING:
    from streams.event import SpaceSpec

ROLE_PORTS = ("learn_port", "validate_port", "serve_port", "up_port", "feed_port", "merge_port")
"""The key of each process' port, in the order in which they are listed."""
UP_PORT = 9104
FEED_PORT = 9105
MERGE_PORT = 9106
LAST_PORT = 65_535
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
LEAST_TOKEN = 16
"""Characters of the shortest token that is taken: a shorter one can be guessed."""
LEAST_KEY = 32
"""Characters of the shortest key that signs: 128 bits where each is a hexadecimal digit, since who has seen a
signature can try keys at home."""


def _token(secret: SecretStr) -> SecretStr:
    """A token that cannot be guessed and fits a header, or none. Raises ValueError."""
    token = secret.get_secret_value()
    plain = token.isascii() and token.isprintable() and " " not in token
    if token and (len(token) < LEAST_TOKEN or not plain):
        raise ValueError(f"expected at least {LEAST_TOKEN} printable ASCII characters without a space")
    return secret


def _host_names(names: list[str]) -> list[str]:
    plain = [name.lower().removesuffix(".") for name in names]
    if not all(name == "*" or _HOST_NAME.fullmatch(name) for name in plain):
        raise ValueError(
            'expected names such as "shop.example.org" or "*.example.org", or "*", without a port'
        )
    return plain


_Token = Annotated[SecretStr, AfterValidator(_token)]

UNPROTECTED = "whoever reaches the port may ask"
"""What has to be said where a port is open to a network."""


class HttpConfig(Section):
    """[http]: metrics and health of every role, and the answers of serve; one port per process."""

    host: str = Field("127.0.0.1", min_length=1, description="address to bind")
    learn_port: Port = Field(9101, description="port of learn; 0 any free port, printed")
    validate_port: Port = Field(9102, description="port of validate; 0 any free port, printed")
    serve_port: Port = Field(9103, description="port of serve; 0 any free port, printed")
    up_port: Port = Field(UP_PORT, description="port of up itself; 0 any free port, printed")
    feed_port: Port = Field(FEED_PORT, description="port of feed --follow; 0 any free port, printed")
    merge_port: Port = Field(MERGE_PORT, description="port of merge; 0 any free port, printed")
    shard_ports: Port = Field(
        9110, description="port of shard 0 under `up`, the next ones follow; 0 any free ports, printed"
    )
    process_ports: Port = Field(
        9120,
        description="with serve.processes, port of process 0 alone, the next ones follow; 0 any free ports,"
        " printed",
    )
    hosts: Annotated[Names, AfterValidator(_host_names)] = Field(
        [], description="host names that serve answers to, besides addresses and localhost"
    )
    token: _Token = Field(
        SecretStr(""),
        description="bearer token of what changes the served version; with http.tokens it opens everything",
    )
    tokens: PathSetting = Field(
        "", description="file of `tripletd tokens`; empty: who reaches the port may ask and read metrics"
    )
    tls_certificate: PathSetting = Field(
        "", description="PEM file of our certificate, with its chain; empty: no encryption"
    )
    tls_key: PathSetting = Field("", description="PEM file of its key; empty: the same file")
    tls_client_ca: PathSetting = Field(
        "", description="PEM file of authorities: every client needs a certificate of one; empty: none"
    )
    unprotected: Literal["", "whoever reaches the port may ask"] = Field(
        "", description="said in words, a host other than loopback is taken without TLS and tokens"
    )

    def learning_ports(self, shards: int) -> list[int]:
        """The port of each learner under `up`: of `learn`, or of so many shards; 0 is any free one. Raises
        UserError where shards need more ports than there are."""
        if not shards:
            return [self.learn_port]
        first = self.shard_ports
        if first and first + shards - 1 > LAST_PORT:
            message = f"http.shard_ports: {first} and {shards} shards go beyond port {LAST_PORT}"
            raise UserError(message, "set http.shard_ports lower, or to 0 for free ones")
        return [first + number if first else 0 for number in range(shards)]

    @model_validator(mode="before")
    @classmethod
    def _room_for_younger_ones(cls, given: Any) -> Any:
        """Configurations from before `up`, `feed` and `merge` had ports may have given the usual ones to a
        role."""
        if not isinstance(given, dict):
            return given
        usual = {"up_port": UP_PORT, "feed_port": FEED_PORT, "merge_port": MERGE_PORT}
        return {name: 0 for name, port in usual.items() if port in given.values()} | given

    @model_validator(mode="after")
    def _goes_together(self) -> HttpConfig:
        for one, other in combinations(ROLE_PORTS, 2):
            port: int = getattr(self, one)
            if port == getattr(self, other) != 0:
                raise ValueError(f"{one} and {other} are both {port}; give each its own, or 0 for a free one")
        if not self.tls_certificate and (self.tls_key or self.tls_client_ca):
            raise ValueError("tls_key and tls_client_ca need tls_certificate")
        return self


SHORTEST_CADENCE_S, LONGEST_CADENCE_S = 0.01, 10.0
_ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class StepsConfig(Section):
    """[steps]: the applied steps that the learner publishes, from which a replica follows it."""

    enabled: bool = Field(True, description="publish applied steps; false: replicas see whole versions alone")
    every: PositiveSeconds = Field(0.1, description="time between two segments, 10ms to 10s")
    max_rate: Bytes = Field(32 << 20, description="most bytes per second; more is left out, as a break")
    retention: OptionalSeconds = Field(3600.0, description="drop segments older than this; empty keeps all")
    retention_bytes: OptionalBytes = Field(
        1 << 30, description="drop the oldest segments above this size; most bytes between two versions"
    )

    @field_validator("every")
    @classmethod
    def _a_cadence(cls, seconds: float) -> float:
        if not SHORTEST_CADENCE_S <= seconds <= LONGEST_CADENCE_S:
            raise ValueError("expected a duration from 10ms to 10s")
        return seconds


_VERSION = re.compile(r"\d{1,18}", re.ASCII)
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?")


class WritesConfig(Section):
    """[serve.writes]: impressions and clicks over HTTP, kept for `feed` to join."""

    enabled: bool = Field(False, description="whether POST /v1/impressions and /v1/clicks are taken")
    token: _Token = Field(
        SecretStr(""),
        description="bearer token of writes alone, which may stand in a page; empty: none needed",
    )
    origins: Names = Field(
        [], description='origins whose pages may write, such as "https://shop.example.org"; "*": all'
    )
    folder: PathSetting = Field(
        "", description="where they are kept; empty: LOG.raw next to the log, on Kafka the topic TOPIC.raw"
    )
    size: Bytes = Field(1 << 30, description="most bytes in the folder; beyond it requests get 503")
    keep: OptionalSeconds = Field(
        30 * 86400.0, description="files of the folder older than this are removed, fed or not; empty: never"
    )
    batch_max: int = Field(1000, ge=1, le=10_000, description="most records of a request")
    queue: int = Field(
        20_000,
        ge=1,
        le=1_000_000,
        description="most records waiting for the disk; beyond it requests get 503",
    )

    @field_validator("origins")
    @classmethod
    def _plain_origins(cls, given: list[str]) -> list[str]:
        plain = [one.lower().removesuffix("/") for one in given]
        if not all(one == "*" or _ORIGIN.fullmatch(one) for one in plain):
            raise ValueError('expected origins such as "https://shop.example.org", without a path')
        return plain

    @model_validator(mode="after")
    def _a_request_fits(self) -> WritesConfig:
        if self.batch_max > self.queue:
            raise ValueError("batch_max is more than queue: such a request would never be taken")
        return self


_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RANDOM = "random"
"""A system of a study that lists objects at random."""


class RatingsConfig(Section):
    """[serve.ratings]: people mark what is relevant in the mixed lists of two rankings, at /rate."""

    enabled: bool = Field(False, description="whether /rate and its report are served")
    study: str = Field("first", description="name under which ratings are kept; another starts over")
    systems: Names = Field(
        [],
        description="the two rankings: names in serve.aliases, numbers of versions, or random; empty: the"
        " first of serve.aliases and version 0",
    )
    question: str = Field(
        "Which of these are relevant to it?", max_length=300, description="what raters are asked"
    )
    queries: int = Field(25, ge=1, le=200, description="objects that are asked about, drawn from the catalog")
    seed: int = Field(0, ge=0, lt=1 << 32, description="what they are drawn by")
    ids: PathSetting = Field(
        "", description="file of ids to ask about, one per line, instead of drawing; empty: none"
    )
    key: str = Field("", max_length=64, description="[keys]: whose model is asked; empty: no key")
    file: PathSetting = Field(
        "", description="where ratings are kept; empty: ratings.jsonl in the folder of checkpoints"
    )
    size: Bytes = Field(64 << 20, description="most bytes of that file; beyond it requests get 503")

    @field_validator("study")
    @classmethod
    def _a_study(cls, name: str) -> str:
        if not _STUDY.fullmatch(name):
            raise ValueError("expected letters, digits, dots, dashes, underscores, at most 64")
        return name

    @field_validator("systems")
    @classmethod
    def _two_systems(cls, names: list[str]) -> list[str]:
        if names and (len(names) != 2 or names[0] == names[1]):
            raise ValueError('expected two different ones, such as ["stable", "0"]')
        unknown = [one for one in names if not _ALIAS.fullmatch(one) and not _VERSION.fullmatch(one)]
        if unknown:
            raise ValueError(f"{unknown[0][:80]!r} is neither a name nor the number of a version")
        return names


class ServeConfig(Section):
    """[serve]: which versions are served, of which objects, and within which limits."""

    aliases: Names = Field(
        ["stable"], description="names of versions to follow; the first answers where none is named"
    )
    look_every: PositiveSeconds = Field(0.25, description="how often versions and verdicts are looked at")
    refine_every: PositiveSeconds = Field(
        1.0, description="how often the form of a followed version is recomputed"
    )
    refine_share: float = Field(0.25, gt=0, le=1, description="most of one core that computing it may take")
    catalog: ObjectsSetting = Field(
        "", description="objects at the start, as catalog.path; empty: catalog.path"
    )
    display: PathSetting = Field(
        "", description="what people see of an object (.jsonl: id, text, image); empty: none"
    )
    ann: Literal["auto", "off", "on"] = Field(
        "auto",
        description='approximate search over graphs of dense objects; auto: where "tripletd[ann]" is'
        " installed; on: refuse to start without it",
    )
    ann_recall: float = Field(
        0.97,
        gt=0,
        le=1,
        description="least share of the exact top 10 to find, measured for every model; below it search is"
        " exact",
    )
    ann_from: int = Field(
        20_000, ge=1, description="fewer objects are searched exactly, which is as quick there"
    )
    processes: int = Field(
        1, ge=1, le=64, description="processes that answer on http.serve_port, each with its own replica"
    )
    drain: OptionalSeconds = Field(
        None,
        description="after SIGTERM, how long questions are still answered, not ready; empty: open ones alone",
    )
    behind_wait: PositiveSeconds = Field(
        0.5, description="how long a question waits for the state that its X-Tripletd-At-Least names"
    )
    shortlist: int = Field(
        1000, ge=1, le=1_000_000, description="oks, omks: objects scored per query, the nearest by cosine"
    )
    key_models: int = Field(
        64, ge=1, le=100_000, description="[keys]: most models ready to answer; others are made when asked"
    )
    k_max: int = Field(1000, ge=1, le=100_000, description="most results per query")
    batch_max: int = Field(256, ge=1, le=10_000, description="most queries per request")
    queue: int = Field(512, ge=1, le=100_000, description="most queries waiting; beyond it requests get 503")
    queue_wait: PositiveSeconds = Field(
        2.0, description="longest time for which queries may wait, by the pace of those before; then 503"
    )
    connections: int = Field(
        512, ge=1, le=100_000, description="most connections at work at once; idle ones give way"
    )
    body: Bytes = Field(4 << 20, description="largest body of a request")
    request_timeout: PositiveSeconds = Field(10.0, description="longest time for a request's header and body")
    writes: WritesConfig = table(WritesConfig, "impressions and clicks over HTTP")
    ratings: RatingsConfig = table(RatingsConfig, "ratings by people at /rate")

    @field_validator("aliases")
    @classmethod
    def _names(cls, names: list[str]) -> list[str]:
        if not names or len(set(names)) != len(names) or not all(_ALIAS.fullmatch(name) for name in names):
            raise ValueError('expected different names such as ["stable", "latest"]')
        if len(names) > 4:
            raise ValueError("expected at most 4 names: each takes two buffers of the size of W")
        return names

    @model_validator(mode="after")
    def _rated_is_served(self) -> ServeConfig:
        known = (*self.aliases, RANDOM)
        lacking = [one for one in self.rated if one not in known and not one.isdecimal()]
        if lacking:
            raise ValueError(f"serve.ratings.systems: {lacking[0]!r} is not in serve.aliases; add it there")
        return self

    @property
    def rated(self) -> tuple[str, str]:
        """The two systems that people compare."""
        given = self.ratings.systems
        return (given[0], given[1]) if given else (self.aliases[0], "0")


ValueOrigin = Literal["default", "file", "env", "cli"]


MOST_PRECONDITIONED = 2048
"""Dense columns up to which all are kept by default: a matrix of them has 16 MiB, and is decomposed in
seconds."""

_OTHER_RANKING = frozenset(("map", "components", "kernels"))
LOST = {
    "whiten": "drops directions and moves the origin",
    "pca": "drops directions and moves the origin",
    "standardise": "moves the origin and reweights columns",
    "shares": "makes shares of what it is given",
    "sqrt": "takes roots",
    "tfidf": "weighs terms, and changes the lengths of vectors",
}
"""Maps that lose something of what a user's index computes, and what; tfidf where lengths matter."""


def _dim(view: dict[str, Any]) -> int:
    try:
        return int(view.get("dim", 0))
    except (TypeError, ValueError):
        return 0  # the view itself reports it


class SpaceConfig(Section):
    """[space]: the feature space shared by events, catalog and learner."""

    id: str = Field("default", min_length=1, max_length=200, description="name of the feature space")
    warmup_objects: int = Field(5000, ge=1, description="distinct objects used to fit the maps")
    views: dict[str, ViewKeys] = Field(default_factory=dict, description="the object's feature vectors")
    similarity: Literal["auto", "cosine", "inner_product", "euclidean"] = Field(
        "auto",
        description="what your own index computes of the given vectors, of several views the weighted sum:"
        " version 0 answers with exactly that; auto: cosine where every view is precondition or unit, else"
        " the cosine after the maps",
    )
    view_weights: Literal["auto", "equal", "effective"] = Field(
        "auto",
        description="several views weigh alike (equal) or, whitened, by their effective dimension; auto:"
        " effective where every view is whitened and has no kernels. Models of one matrix per view learn"
        " the weights and start from equal ones",
    )

    @model_validator(mode="before")
    @classmethod
    def _maps_by_default(cls, data: Any) -> Any:
        """A view that names no map loses nothing of the user's own ranking. Dense ones get another geometry
        for steps, where that is within reach and no other view asks for another ranking: by a map, components
        or kernels."""
        views = data.get("views") if isinstance(data, dict) else None
        if not isinstance(views, dict) or not all(isinstance(view, dict) for view in views.values()):
            return data
        named, weights = data.get("similarity", "auto") != "auto", data.get("view_weights", "auto")
        if not named and weights == "effective":
            return data  # whose views are whitened: only these have an effective dimension
        other = any(_OTHER_RANKING & view.keys() for view in views.values()) or weights != "auto"
        dense = [name for name, view in views.items() if view.get("kind", "dense") == "dense"]
        wide = sum(_dim(views[name]) for name in dense) > MOST_PRECONDITIONED
        plain = wide or (other and not named)
        kept = "unit" if data.get("similarity", "auto") in ("auto", "cosine") else "identity"
        filled = {
            name: view
            if _OTHER_RANKING & view.keys()
            else {"map": kept if plain or name not in dense else "precondition", **view}
            for name, view in views.items()
        }
        return {**data, "views": filled}

    @property
    def own_similarity(self) -> Literal["cosine", "inner_product", "euclidean", ""]:
        """What version 0 computes of the vectors as they were given; "" where a map loses something of it."""
        if self.loses:
            return ""
        if self.similarity != "auto":
            return self.similarity
        known = all(view.scalings in (["unit"], ["precondition"]) for view in self.views.values())
        return "cosine" if self.views and known else ""

    @property
    def loses(self) -> str:
        """Which map of which view loses something of the user's own ranking, for people; "" where none does.
        Without a similarity that is named, the cosine."""
        cosine, several = self.similarity in ("auto", "cosine"), len(self.views) > 1
        for name, view in self.views.items():
            if view.kernels:
                return f"the kernels of view {name} stand for another similarity"
            for scaling in view.scalings:
                if scaling in LOST and scaling != "tfidf":
                    return f"the map {scaling} of view {name} {LOST[scaling]}"
                if (scaling == "unit" and not cosine) or (scaling == "tfidf" and (several or not cosine)):
                    return f"the map {scaling} of view {name} changes the lengths of vectors"
            fitted = [place for place, one in enumerate(view.scalings) if one in {"precondition", "tfidf"}]
            if len(fitted) > 1 or (fitted and several and "unit" in view.scalings[fitted[0] :]):
                return f"the maps of view {name} weigh columns and lengths more than once"
        return ""

    @property
    def needs_sample(self) -> bool:
        """Whether the maps are fitted to objects: also where rows keep their lengths, which are brought to
        scale."""
        by_length = self.own_similarity in ("inner_product", "euclidean")
        return by_length or any(view.needs_sample for view in self.views.values())

    @property
    def weighs_views_by_dimension(self) -> bool:
        """Whether a view keeps the length that its map gives it; one view alone has nothing to be weighed
        against."""
        whitened = all(view.scalings[-1] == "whiten" and not view.kernels for view in self.views.values())
        wanted = self.view_weights == "effective" or (self.view_weights == "auto" and whitened)
        return wanted and len(self.views) > 1

    @model_validator(mode="after")
    def _views_fit_the_format(self) -> SpaceConfig:
        if len(self.views) > MAX_MAP_ENTRIES:
            raise ValueError(f"{len(self.views)} views; an event carries at most {MAX_MAP_ENTRIES}")
        for name in self.views:
            if not 0 < len(name.encode()) <= MAX_TEXT_BYTES:
                raise ValueError(f"view name {name[:20]!r}: expected 1 to {MAX_TEXT_BYTES} bytes of UTF-8")
        return self


VectorSetting = str | list[str] | dict[str, str]
"""One column, or a pattern with *; columns of a coordinate each; {indices, values} of a sparse vector."""


class CatalogColumns(Section):
    """[catalog.columns]: which column is what; without the table, columns are found by their names."""

    id: str = Field("", description="of the ids; empty: id")
    x: VectorSetting = Field(
        "",
        description="of the vector, where there is one view: a column of lists or of texts such as"
        ' "[0.1, 0.2]"; a list of columns of a number each, or a pattern such as "dim_*"; two columns of'
        ' lists as { indices = "...", values = "..." } where it is sparse; empty: the only column of vectors',
    )
    views: dict[str, VectorSetting] = Field(
        default_factory=dict, description="the same by view: views.NAME; empty: the columns of their names"
    )
    title: str = Field("", description="of what people see of an object")
    text: str = Field("", description="the same")
    image: str = Field("", description="the same: a path or a URL")
    tags: Names = Field(
        [], description="by which people filter; several columns, and lists, are taken together"
    )

    @field_validator("x", "views")
    @classmethod
    def _sparse_in_two(cls, given: Any, field: ValidationInfo) -> Any:
        for one in given.values() if field.field_name == "views" else (given,):
            if isinstance(one, dict) and one.keys() != {"indices", "values"}:
                raise ValueError('a sparse vector is { indices = "COLUMN", values = "COLUMN" }')
        return given


class CatalogConfig(Section):
    """[catalog]: object id -> features."""

    path: ObjectsSetting = Field(
        "",
        description="objects: .parquet, .arrow, .feather, .csv, .tsv (also .gz), a folder of these, .jsonl,"
        " .npy, .npz or .safetensors; postgresql://USER@HOST/DATABASE#TABLE;"
        " kafka://HOST:PORT/TOPIC, log:PATH#TOPIC; empty: events carry features",
    )
    secret: SecretStr = Field(
        SecretStr(""), description="password of the database in path; empty: as PGPASSFILE or ~/.pgpass says"
    )
    ids: IdsSetting = Field(
        "",
        description="ids of .npy, .npz, .safetensors: a line per row, or .npy; empty: NAME.ids.txt, ids.txt"
        " or .npy of these names next to it",
    )
    columns: CatalogColumns = table(CatalogColumns, "which column is what")


class CheckpointsConfig(Section):
    """[checkpoints]: where versions are written and how often."""

    path: FolderSetting = Field(
        "checkpoints",
        min_length=1,
        description="folder of the versions and the ledger; or s3://BUCKET/PREFIX, gs://..., az://...",
    )
    every: Seconds = Field(30.0, description="time between versions; 0s by every_events alone")
    every_events: int = Field(
        -1,
        ge=-1,
        description="also after this many events, exactly; learning waits for the disk then; -1: after 4,000,"
        " 8,000, 16,000 ..., so that a log that is learned in one go is judged on the way; 0: off",
    )
    keep: int = Field(20, ge=2, description="newest versions kept; aliases and version 0 stay in addition")
    endpoint: str = Field(
        "",
        description="URL of an object store that is not the cloud's own; empty: AWS_ENDPOINT_URL, or theirs",
    )
    region: str = Field("", description="region of the bucket; empty: AWS_REGION, else us-east-1")
    timeout: PositiveSeconds = Field(
        30.0, description="longest wait for one answer of an object store; it is asked for twice as long"
    )
    cache: PathSetting = Field(
        "", description="folder of states from an object store; empty: tripletd/states in the user's cache"
    )
    cache_size: Bytes = Field(8 << 30, description="most bytes in it; what was used longest ago goes first")

    @model_validator(mode="after")
    def _goes_together(self) -> CheckpointsConfig:
        if not self.every and self.every_events <= 0:
            raise ValueError('every = "0s" without every_events writes no version; set one of the two')
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint: expected http://HOST:PORT or https://HOST")
        if "@" in self.endpoint:
            raise ValueError("endpoint: an address holds no password; credentials come from the environment")
        return self


MOST_SHARDS = 1_000


class ShardsConfig(Section):
    """[shards]: several learners over one topic, whose versions are merged."""

    count: int = Field(
        0, ge=0, le=MOST_SHARDS, description="learners over one topic; 0: one, without shards and merges"
    )
    merge_every: PositiveSeconds = Field(10.0, description="least time between two merged versions")
    merge_by: Literal["auto", "sum", "updates"] = Field(
        "auto", description="sum: all steps; updates: their mean by updates; auto: the sum of short periods"
    )


class FollowConfig(Section):
    """[feed.follow]: click logs that never end, read by `feed --follow`."""

    sources: SourcesSetting = Field(
        [],
        description="what is followed: files (paths and patterns such as logs/*.jsonl), topics of raw records"
        " (log:PATH#TOPIC, kafka://HOST:PORT/TOPIC); with any, up starts feed too",
    )
    mapping: MappingSetting = Field(
        "", description="what rows mean, as feed --mapping; empty: records of our own shapes"
    )
    window: PositiveSeconds = Field(
        120.0, description="how long a list waits for its clicks; later ones become corrections"
    )
    within: PositiveSeconds = Field(
        1800.0, description="how long after a list its clicks may come where they do not name it"
    )
    lateness: Seconds = Field(30.0, description="how much out of order, in event time, records may come")
    max_open: int = Field(
        50_000, ge=1, description="most lists that wait; beyond it the oldest is closed early"
    )
    remembered: int = Field(50_000, ge=1, description="closed lists in which late clicks find their place")
    bucket: Seconds = Field(
        10.0, description="clicks of a session on one object for one query within this time are one"
    )
    bot_clicks: int = Field(
        30,
        ge=1,
        description="a session with more clicks a minute is reported as a machine's; none is dropped",
    )
    shuffled: Names = Field(
        [], description="lists of these `src` had a random order: they tell how likely each rank is examined"
    )
    path: PathSetting = Field("", description='folder of its checkpoints; empty: "feed" in checkpoints.path')
    registry: RegistryConfig = table(RegistryConfig, "where records of topics name their schemas")


WIDEST_ARMS = 1_024
"""Dimensions up to which there are arms by default: a step costs their square."""
BY_SPACE = -1
"""Of `feed.negative_falls_from`: see its description."""


class FeedConfig(Section):
    """[feed]: impressions -> triplets."""

    rule: Literal["skip_above", "last_click", "skip_next", "all_skipped", "clicked_vs_random"] = Field(
        "all_skipped",
        description="how clicks become triplets; those with an object below the click say so. By default"
        " skip_above where nobody learns those",
    )
    triplets_per_impression: int = Field(
        5,
        ge=0,
        description="most pairs above the clicks kept per impression, and twice as many of both sides, drawn"
        " with the seed; random negatives come on top; 0 no cap",
    )
    random_negatives: int = Field(1, ge=0, le=100, description="random catalog objects per click as skipped")
    negative_weight: float = Field(
        1.0,
        gt=0,
        le=1,
        description="weight of a random negative; less where many objects are right for a query",
    )
    negative_falls_from: int = Field(
        BY_SPACE,
        ge=BY_SPACE,
        description="from so many events of the stream on random negatives weigh less and less, down to 0.15"
        " of negative_weight; 0 never; -1 as the space needs it: 1,500 for several views that oasis learns"
        " as one model, where negative_weight is not set, else never",
    )
    position_weights: PathSetting = Field(
        "",
        description="file of clicks bias --out: pairs weigh by how likely users examine their ranks; empty:"
        " all alike",
    )
    holdout_share: float = Field(
        0.25,
        ge=0,
        lt=1,
        description="share of queries kept for validation, a tenth from all that learns, the rest from all"
        " but arms, which order given lists; a tenth is enough where judgments decide",
    )
    holdout_by: Literal["query", "list"] = Field(
        "query", description="what is kept as a whole: a query with all its lists, or single lists"
    )
    holdout_kinds: int = Field(
        0,
        ge=0,
        le=100,
        description="kinds of queries of which nothing is learned, so that versions are judged on such kinds"
        " too; needs the vectors of a catalog; 0 none",
    )
    kind_share: float = Field(
        0.05, gt=0, lt=1, description="size of such a kind: a share of the catalog, nearest to one object"
    )
    prequential: bool = Field(
        True,
        description="where clicks decide, lists that are learned from judge versions, too: those before them"
        " (test then train); the holdout topic then holds them as well",
    )
    query_cap: int = Field(1000, ge=0, description="most impressions kept per query and stream; 0 no cap")
    dedupe_window: int = Field(100_000, ge=0, description="impression ids remembered; 0 keeps duplicates")
    seed: int = Field(
        0, ge=0, lt=2**63, description="seed of the holdout split, the pairs kept and the negatives"
    )
    follow: FollowConfig = table(FollowConfig, "click logs that never end")


class InterleavingConfig(Section):
    """[interleaving]: lists made of two models by chance, signed by serve and checked by feed."""

    key: SecretStr = Field(
        SecretStr(""), description="key that list ids are signed with; empty: no such lists are made"
    )
    max_age: PositiveSeconds = Field(
        7 * 86400.0, description="a list that is fed later than this after it was made decides nothing"
    )
    explore: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the lists of /v1/similar with a random object, where a request names no number",
    )

    @field_validator("key")
    @classmethod
    def _a_key_worth_it(cls, secret: SecretStr) -> SecretStr:
        if secret.get_secret_value() and len(secret.get_secret_value()) < LEAST_KEY:
            raise ValueError(
                f"expected at least {LEAST_KEY} characters, such as `openssl rand -hex 32` gives"
            )
        return secret

    @model_validator(mode="after")
    def _signed_where_explored(self) -> InterleavingConfig:
        if self.explore and not self.key.get_secret_value():
            raise ValueError("explore needs a key to sign lists with; set interleaving.key")
        return self


class ServingConfig(Section):
    """[serving]: the form in which a version is judged and served."""

    score: Literal["auto", "normalised", "raw"] = Field(
        "auto",
        description="of what was learned: normalised is the learned cosine; auto: raw where space.similarity"
        " is inner_product or euclidean",
    )
    psd: Literal["auto", "full", "lanczos", "off"] = Field("auto", description="negative eigenvalues removed")
    form: Literal["judged", "fixed", "as_learned"] = Field(
        "judged",
        description="judged: one that gives way to your own ranking for queries unlike those that were"
        " clicked, or what judgments choose; fixed: by power and own_share, the default where one is written;"
        " as_learned: the scores of the learner's paper, such as q^T W p, with nothing done to them",
    )
    power: float = Field(1.5, ge=0.5, le=3, description="of the eigenvalues; raw, lanczos, off: always 1")
    own_share: float = Field(
        0.0, ge=0, le=10, description="share of your own ranking added to what was learned"
    )
    full_max_dim: int = Field(4096, ge=1, description="auto: full eigendecomposition up to this dimension")
    lanczos_pairs: int = Field(50, ge=1, description="most negative eigenpairs removed by lanczos")

    @model_validator(mode="before")
    @classmethod
    def _fixed_where_written(cls, given: Any) -> Any:
        """Who names power or own_share, and no form, means them."""
        named = isinstance(given, dict) and {"power", "own_share"} & given.keys()
        return {"form": "fixed", **given} if named else given

    @model_validator(mode="after")
    def _as_learned_alone(self) -> ServingConfig:
        if self.form != "as_learned":
            return self
        changed = {"score": self.score == "normalised", "psd": self.psd in {"full", "lanczos"}}
        changed |= {name: name in self.model_fields_set for name in ("power", "own_share")}
        if any(changed.values()):
            names = " and ".join(name for name, is_changed in changed.items() if is_changed)
            raise ValueError(
                f'form "as_learned" serves scores that nothing is done to: leave {names} out, or write form '
                '= "fixed"'
            )
        return self


class ValidateConfig(Section):
    """[validate]: judging versions and early stopping."""

    window: int = Field(2000, ge=1, description="newest holdout impressions kept")
    min_impressions: int = Field(0, ge=0, description="no verdict on fewer usable impressions; 0: 50")
    judgments: JudgmentsSetting = Field("", description="qrels:PATH or labels:PATH")
    decide: Literal["auto", "race", "map_shown", "map_clicks", "map_full"] = Field(
        "auto",
        description="what makes a version best, and stops learning; auto: map_full with judgments, else race",
    )
    judge: Literal["every", "newest"] = Field(
        "every",
        description="versions judged: every one, in order; newest: what is there when validate is free",
    )
    alpha: float = Field(
        0.05,
        gt=0,
        lt=0.5,
        description="by clicks: probability of a promotion while no version is better, over all looks",
    )
    max_queries: int = Field(1000, ge=1, description="judged queries per version")
    patience_events: int = Field(
        20_000,
        ge=1,
        description="stop after this many events without a gain, or as many as the last gain took if more",
    )
    min_delta: float = Field(0.002, ge=0, description="lead a new best needs")
    min_versions: int = Field(3, ge=1, description="never stop before this many judged versions")
    on_stop: Literal["park", "exit"] = Field("park", description="what learn does on STOP")
    drift: Literal["adwin", "page_hinkley", "off"] = Field("adwin", description="detector on holdout loss")

    @model_validator(mode="after")
    def _goes_together(self) -> ValidateConfig:
        if self.decide == "map_full" and not self.judgments:
            raise ValueError('decide = "map_full" needs judgments; set them, or decide by clicks: "race"')
        return self

    @property
    def decided_by(self) -> Literal["race", "map_shown", "map_clicks", "map_full"]:
        """What decides, `auto` resolved."""
        if self.decide == "auto":
            return "map_full" if self.judgments else "race"
        return self.decide

    @property
    def least_impressions(self) -> int:
        """Usable impressions from which on there are verdicts."""
        return self.min_impressions or 50


class LogConfig(Section):
    """[log]: messages on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severity shown")
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: json unless a terminal")


@dataclass(frozen=True, slots=True)
class ExposedFile:
    """A file with the secrets `keys` ("section.key") whose mode lets every user of the host read it."""

    path: Path
    keys: tuple[str, ...]
    mode: int

    @property
    def text(self) -> str:
        """The problem in words."""
        held = " and ".join(self.keys)
        return f"{self.path} holds {held}, and every user of this host can read it (mode {self.mode:04o})"

    @property
    def remedy(self) -> str:
        """What to do: the owner and the group keep what they may."""
        return f"chmod o-rwx {self.path}"


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
    shards: ShardsConfig
    steps: StepsConfig
    feed: FeedConfig
    serving: ServingConfig
    validate: ValidateConfig
    serve: ServeConfig
    index: IndexConfig
    interleaving: InterleavingConfig
    embeddings: EmbeddingsConfig
    http: HttpConfig
    log: LogConfig
    file: Path | None
    origins: Mapping[str, ValueOrigin]
    notes: tuple[str, ...] = ()
    """What was accepted and should be written otherwise, a sentence each."""
    exposed: tuple[ExposedFile, ...] = ()
    """Files with secrets that every user of the host can read."""

    def values(self) -> dict[str, dict[str, Any]]:
        """The effective configuration as nested plain data, written as in the file; secrets are stars."""
        return {name: getattr(self, name).model_dump(mode="json") for name in SECTIONS}

    def origin_of(self, key: str) -> ValueOrigin:
        """Where the value of "section.key" came from."""
        return self.origins.get(key, "default")

    @property
    def arms_fault(self) -> str:
        """Why no arm of the race can learn here; empty where arms can."""
        if self.keys.slots:
            return "arms learn one model for all events, and [keys] has slots"
        if any(view.kind == "sparse" for view in self.space.views.values()):
            return "arms learn dense vectors, and a view is sparse"
        if self.space.own_similarity != "cosine":
            return f"arms begin with your own cosine: {self.space.loses or 'space.similarity is another one'}"
        return ""

    @property
    def has_default_arms(self) -> bool:
        """Whether there are arms where none are named."""
        wide = sum(sum(view.widths()) for view in self.space.views.values()) > WIDEST_ARMS
        return not self.arms_fault and not wide

    @property
    def has_arms(self) -> bool:
        """Whether there are arms, named or by default."""
        named = self.learner.race.arms
        return self.has_default_arms if named is None else bool(named)

    @property
    def learns_below(self) -> bool:
        """Whether anybody learns pairs whose skipped object stood below the click; where no space is named,
        somebody may."""
        named = self.learner.race.arms
        by_arms = self.has_default_arms if named is None else any(arm.pairs == "all" for arm in named)
        return by_arms or self.learner.pairs == "all" or not self.space.views

    def space_spec(self) -> SpaceSpec:
        """[space], its views in the file's order; UserError when there is no view."""
        from streams.event import SpaceSpec, ViewSpec

        if not self.space.views and self.file is None:
            remedy = "name one with --config, go to its folder (cd), or have one written: tripletd init FILES"
            raise UserError(f"no tripletd.toml in {Path.cwd()}", remedy)
        if not self.space.views:
            remedy = "add a table such as [space.views.x] with kind and dim (a plain `x` in events is view x)"
            raise UserError(f"{self.file}: no view is configured", remedy)
        views = (ViewSpec(name, view.kind, view.dim) for name, view in self.space.views.items())
        return SpaceSpec(self.space.id, tuple(views))


SECTIONS: dict[str, type[Section]] = {
    name: kind
    for name, kind in get_type_hints(Config).items()
    if isinstance(kind, type) and issubclass(kind, Section)
}
SECTIONS["learner"] = OasisKeys  # of the default algorithm; another one has its own, see `learner_keys`
