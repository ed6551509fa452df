"""Does the configuration meet the world? One finding for each thing a role would stumble over."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import starmap
from pathlib import Path
from typing import Any

from checkpoints.store import CheckpointError, KeyExists
from daemon.config import Config
from daemon.config.learners import (
    DissimKeys,
    LegoKeys,
    LegoPairsKeys,
    OasisDiagonalKeys,
    OasisKeys,
    SomlDaKeys,
    SomlTgKeys,
    SupportKeys,
)
from daemon.config.objects import is_object_address
from daemon.config.schema import ROLE_PORTS
from daemon.exits import CheckFinding, Grade, UserError, as_user_error
from daemon.memory.fits import newest_version, refusal
from daemon.memory.needs import MemoryNeed, learner_bytes, mapped_dim, need_of, needs_of_up, serving_bytes
from daemon.memory.room import memory_bounds
from daemon.text import size
from daemon.versions.algorithms import as_made
from daemon.versions.forms import AS_LEARNED
from daemon.versions.storage import open_store
from tripletd import _names as names

Row = tuple[str, Grade, str] | tuple[str, Grade, str, str]
"""A finding: key, grade, text, and the remedy if there is one."""
_UPSTREAM_S = 10.0
_REMEDIES = {"stream.address": "correct stream.address, or see that what it names can be used from here"}
"""Where an error's own words name no remedy apart."""


def run_checks(config: Config) -> list[CheckFinding]:
    """Every finding; an error in one does not keep the others from running."""
    findings: list[CheckFinding] = []
    try:
        config = as_made(config, newest_version(config))
    except UserError as error:
        findings.append(CheckFinding("learner", "error", error.message, error.remedy or ""))
    for key, check in _CHECKS.items():
        try:
            findings += starmap(CheckFinding, check(config))
        except Exception as error:
            readable = as_user_error(error)
            if readable is None:
                raise
            if readable.message not in (one.text for one in findings):  # two checks may read the same catalog
                remedy = readable.remedy or _REMEDIES.get(key, "")
                findings.append(CheckFinding(key, "error", readable.message, remedy))
    return findings


def _names(config: Config) -> Iterator[Row]:
    if shared := names.shared_packages():
        text, remedy = names.told_shared(shared)
        yield "packages", "error", text, remedy
    else:
        yield "packages", "ok", f"nobody else installs {', '.join(names.PACKAGES)} here"


def _space(config: Config) -> Iterator[Row]:
    from daemon.versions.reference import reference_by

    views = [f"{view.name} ({view.kind}, {view.dim:,})" for view in config.space_spec().views]
    yield "space.views", "ok", ", ".join(views)
    reference = reference_by(config.space)
    yield "space.similarity", "ok" if reference.own else "note", reference.description


def _learner(config: Config) -> Iterator[Row]:
    from learners.multikernel.form import MOST_OBJECTS
    from learners.psd import MAX_FULL_DIM

    dim = mapped_dim(config)
    if not dim:
        return
    learner = config.learner
    state = size(learner_bytes(config))
    yield "learner", "ok", f"{learner.algorithm}, at most {dim:,} dimensions, {state} of state"
    if dim > MAX_FULL_DIM:
        text = f"needs at most {MAX_FULL_DIM:,} dimensions, the views have {dim:,} together"
        if isinstance(learner, OasisKeys | DissimKeys) and learner.psd_every:
            yield "learner.psd_every", "error", text, "set it to 0: the serving form is PSD all the same"
        if isinstance(learner, LegoKeys | LegoPairsKeys):
            text = f"{learner.algorithm} {text}"
            yield "learner.algorithm", "error", text, "take another, or lower the views' dim"
    decomposed = config.serving.psd != "off" and config.serving.form != AS_LEARNED
    if isinstance(learner, SupportKeys) and decomposed and learner.objects > MOST_OBJECTS:
        text = f"a form is made of at most {MOST_OBJECTS:,} objects, {learner.objects:,} may be kept"
        yield "learner.objects", "error", text, 'lower it, or set serving.psd to "off"'
    mixing = {"whiten", "pca", "precondition"}
    mixed = [name for name, view in config.space.views.items() if mixing & set(view.scalings)]
    if isinstance(learner, SomlTgKeys | SomlDaKeys | OasisDiagonalKeys) and mixed:
        (found,) = mixing & set(config.space.views[mixed[0]].scalings)
        text = f"{learner.algorithm} weighs single columns, and {found} mixes the features: it learns less"
        instead = 'set it to "unit"' if found == "precondition" else 'set it to "standardise"'
        yield f"space.views.{mixed[0]}.map", "note", text, instead
    yield from _fits([need_of(config, "learn")], config, "learner", "learn")


def _fits(needs: list[MemoryNeed], config: Config, key: str, what: str, items: int = 0) -> Iterator[Row]:
    """An error where a role cannot be had; of all together a note, as each may have a host of its own."""
    found = refusal(needs, config, memory_bounds(), what, items=items)
    if found is not None:
        yield key, "error" if what != "up" else "note", found.message, found.remedy


def _caps(config: Config) -> Iterator[Row]:
    caps = config.caps
    if caps.source:
        text = "events without `src` are one source together, and share its cap"
        yield "caps.source", "note", text, "have events say who clicked, in `src`"
    objects = [name for name in ("query", "item") if getattr(caps, name)]
    if objects and not config.catalog.path:
        text = "without a catalog objects are known by their features alone: another digit is another object"
        yield f"caps.{objects[0]}", "note", text, "set catalog.path, and let events name objects by id"


def _stream(config: Config) -> Iterator[Row]:
    from streams.errors import TopicMissing
    from streams.open import open_source

    address = config.stream.to_address()
    if address.scheme == "kafka":
        from daemon.topics.topics import check_broker

        yield from check_broker(config)
        return
    try:
        source = open_source(address)
    except TopicMissing:
        yield "stream.address", "note", f"{address}: not there yet; feed and learn create it"
        return
    try:
        partitions, bounds = source.identity().partitions, source.bounds()
    finally:
        source.close()
    records = sum(end - earliest for earliest, end in bounds.values())
    yield "stream.address", "ok", f"{address}: {records:,} records in {partitions} partition(s)"
    if partitions != config.stream.partitions:
        text = f"the topic has {partitions} partition(s), configured are {config.stream.partitions}"
        yield "stream.partitions", "error", text, f"set stream.partitions = {partitions}"


def _catalog(config: Config) -> Iterator[Row]:
    if not config.catalog.path:
        yield "catalog.path", "ok", "none: events carry their features; no random negatives"
        return
    from daemon.catalogs import learner_catalog, serving_catalog

    catalog = learner_catalog(config, whole=True)
    assert catalog is not None
    yield "catalog.path", "ok", f"{len(catalog):,} objects, digest {catalog.digest[:12]}"
    if mapped_dim(config) and not list(_fits([need_of(config, "learn")], config, "learner", "learn")):
        needs = [need_of(config, "learn", len(catalog))]
        yield from _fits(needs, config, "catalog.path", "learn", len(catalog))
    now = None if config.serve.catalog else serving_catalog(config)
    if now is not None and now.digest != catalog.digest:
        text = (
            f"{len(now):,} objects now, with which serve answers from its next start on; learning and"
            " judging continue with those above, which were read first"
        )
        remedy = "to learn with the new ones, learn afresh: set checkpoints.path to an empty folder"
        yield "catalog.path", "note", text, remedy


def _judgments(config: Config) -> Iterator[Row]:
    if config.keys.slots:
        yield from _keys_decide(config)
        return
    if not config.validate.judgments:
        yield from _clicks_decide(config)
        return
    from daemon.validate.judgments import load_judgments

    judgments = load_judgments(config.validate.judgments)
    count = len(judgments.labels) or len(judgments.relevant)
    yield "validate.judgments", "ok", f"{count:,} {'labels' if judgments.labels else 'judged queries'}"
    if not config.catalog.path:
        text = "judgments rank the whole catalog, but there is no catalog"
        yield "catalog.path", "error", text, 'set catalog.path, or validate.judgments = ""'


def _keys_decide(config: Config) -> Iterator[Row]:
    if config.validate.judgments:
        text = "they say what is similar to everybody, and [keys] learns what is to each key"
        yield "validate.judgments", "error", text, "leave it empty: each key's own clicks decide"
        return
    need, window = config.validate.least_impressions, config.validate.window
    text = f"of each key's own clicks, from {need} lists in the window on: at most {window // need} keys"
    yield "validate.judgments", "ok", text


def _clicks_decide(config: Config) -> Iterator[Row]:
    need, window = config.validate.least_impressions, config.validate.window
    if window < need:
        text = f"a version is judged on {need} lists (validate.min_impressions), the window holds fewer"
        yield "validate.window", "note", text, f"set it to at least {need}"
    text = f"none: held-out clicks decide, from {need} lists on, error {config.validate.alpha:g}"
    yield "validate.judgments", "ok", text
    if "validate.min_delta" in config.origins:
        text = (
            "by clicks the margin comes from the data: it counts with judgments, and where [keys] are learned"
        )
        yield "validate.min_delta", "note", text


def _checkpoints(config: Config) -> Iterator[Row]:
    if is_object_address(config.checkpoints.path):
        yield from _bucket(config.checkpoints.path)
        return
    folder = Path(config.checkpoints.path)
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        yield "checkpoints.path", "error", f"{existing} is not a folder", "choose another path"
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield "checkpoints.path", "error", f"{existing} cannot be written", "check its owner and mode"
    elif existing != folder:
        yield "checkpoints.path", "ok", f"{folder}: will be created"
    else:
        yield "checkpoints.path", "ok", str(folder)


def _bucket(address: str) -> Iterator[Row]:
    """Whether versions can be listed, and an object put once and not twice; nothing is left behind."""
    name = f"check-{os.urandom(4).hex()}"
    try:
        store = open_store(address).versions.store
        count, twice = len(store.list("versions/")), False
        store.put_new(name, [b"first"])
        try:
            store.put_new(name, [b"second"])
            twice = True
        except KeyExists:
            pass
        finally:
            store.delete(name)
    except CheckpointError as error:
        yield "checkpoints.path", "error", f"{error.place}: {error.problem}", error.remedy
        return
    if twice:
        text = f"{address}: a put that only creates has replaced an object: learners would not see each other"
        yield "checkpoints.path", "error", text, "use a server that honours If-None-Match"
    else:
        yield "checkpoints.path", "ok", f"{address}: {count:,} objects of versions; it can be written"


def _serve(config: Config) -> Iterator[Row]:
    items = 0
    path = config.serve.catalog or config.catalog.path
    if path and config.space.views:
        from daemon.catalogs import serving_catalog

        items = len(serving_catalog(config, whole=bool(config.serve.catalog)) or ())
        if config.serve.catalog:
            yield "serve.catalog", "ok", f"{items:,} objects"
    if mapped_dim(config):
        buffers = size(serving_bytes(config, items))
        yield "serve.aliases", "ok", f"{', '.join(config.serve.aliases)}: {buffers} of buffers"
        yield from _fits([need_of(config, "serve", items)], config, "serve.aliases", "serve", items)
        yield from _fits(needs_of_up(config, items), config, "memory", "up", items)
    if config.serve.display:
        from daemon.serve.items.display import load_display

        yield "serve.display", "ok", f"{len(load_display(config.serve.display)):,} objects are shown"
    if config.serve.ann == "on" and find_spec("faiss") is None:
        yield "serve.ann", "error", "faiss is not installed", 'pip install "tripletd[ann]"'


def _position_weights(config: Config) -> Iterator[Row]:
    from daemon.feeding import position_weights

    weights = position_weights(config)
    if weights is not None:
        of_pairs = [one for row in weights.pairs for one in row]
        text = f"{len(weights.drawn)} ranks, pairs weigh {min(of_pairs):.2g} to {max(of_pairs):.2g}"
        yield "feed.position_weights", "ok", text


def _registry(config: Config) -> Iterator[Row]:
    registry = config.feed.follow.registry
    if not registry.url:
        return
    from streams.feed.follow.registry import SchemaRegistry

    try:
        kinds = SchemaRegistry(registry.to_settings(), Path()).kinds()
    except (OSError, ValueError) as error:  # OSError: of the file of authorities
        text, remedy = f"{registry.url}: {error}", "until it answers, records whose schema is new wait"
        yield "feed.follow.registry", "error", text, remedy
        return
    yield "feed.follow.registry", "ok", f"{registry.url}: {', '.join(kinds)}"
    for module, extra in (("fastavro", "avro"), ("google.protobuf", "protobuf")):
        if _is_missing(module) and extra.upper() in kinds:
            text, remedy = f"{module} is not installed", f'for {extra} pip install "tripletd[{extra}]"'
            yield "feed.follow.registry", "note", text, remedy


def _is_missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ImportError:  # not even the package that holds it
        return True


def _embeddings(config: Config) -> Iterator[Row]:
    given = config.embeddings
    if not given.folder:
        if given.upstream:
            yield from _upstream(config)
        return
    from daemon.serve.text_model import TextModel

    model = TextModel.open(Path(given.folder), given.threads)
    text = f"{model.name}: {model.dim:,} dimensions, texts of up to {model.layout.longest:,} tokens"
    yield "embeddings", "ok", text
    views = config.space_spec().views
    if len(views) != 1:
        remedy = "embeddings need a space with exactly one view"
        yield "embeddings", "error", f"the space has {len(views)} views", remedy
    elif views[0].dim != model.dim:
        text = f"the model has {model.dim:,} dimensions, the view {views[0].name} {views[0].dim:,}"
        yield "embeddings", "error", text, "take the model that embedded the catalog"


def _upstream(config: Config) -> Iterator[Row]:
    """What the upstream gives for a text of each model; without names, whether it answers."""
    from daemon.serve.model_probe import FILE, LEAST_COSINE, probe_of, upstream_of
    from streams.foreign_http import ForeignError

    given = config.embeddings
    probe = probe_of(config, upstream_of(given, _UPSTREAM_S))
    try:
        models = {name: probe.compare(name, keep=False) for name in probe.models}
        if not models:
            probe.reach()
    except ForeignError as error:
        remedy = "correct embeddings.upstream, key_env or models; until then requests with texts get 502"
        yield "embeddings", "error", f"{given.upstream}: {error}", remedy
        return
    text = ", ".join(f"{name} gives {size:,} numbers" for name, (_, size) in models.items())
    yield "embeddings", "ok", f"texts go to {given.upstream}{': ' if text else ''}{text}"
    for name, (cosine, _) in models.items():
        if cosine < LEAST_COSINE:
            text = f"{name} now gives another vector for the same text (cosine {cosine:.2f})"
            remedy = f"embed the objects by it as well, and remove {FILE} in the folder of checkpoints"
            yield "embeddings", "error", text, remedy


def _index(config: Config) -> Iterator[Row]:
    given = config.index
    if not given.store:
        return
    from daemon.catalogs import serving_catalog
    from daemon.index import StoreError, open_index

    index = open_index(given)
    assert index is not None
    if given.holds_exported:
        text = f"{index.name}: exported vectors of version {given.version}; it was not asked"
        yield "index", "ok", text
        return
    similarity = "squared_euclidean" if config.space.own_similarity == "euclidean" else "inner_product"
    try:
        found = index.search(_probe(config), given.candidates, similarity=similarity)
        if given.tags:
            index.search(_probe(config), 1, ["none has this tag"])
    except StoreError as error:
        yield "index", "error", str(error), error.remedy
        return
    finally:
        index.close()
    catalog = serving_catalog(config)
    known = 0 if catalog is None else sum(catalog.row_of(one.id) is not None for one in found)
    text = f"{index.name} answers: {known:,} of {len(found):,} objects that it found are in the catalog"
    if known:
        yield "index", "ok", text
    elif not found:
        yield "index", "error", f"{index.name} answers, and is empty", "put the vectors in it"
    else:
        remedy = "index.id has to name the column or field of the ids that the catalog has"
        yield "index", "error", text, remedy


def _probe(config: Config) -> list[float] | dict[str, list[Any]]:
    views = config.space_spec().views
    if any(view.kind == "sparse" for view in views):
        return {"indices": [0], "values": [1.0]}
    dim = sum(view.dim for view in views)
    return [float(dim) ** -0.5] * dim


def _http(config: Config) -> Iterator[Row]:
    for name in ROLE_PORTS:
        key, role = f"http.{name}", name.removesuffix("_port")
        port: int = getattr(config.http, name)
        door = f"{config.http.host}:{port}"
        with socket.socket(socket.AF_INET6 if ":" in config.http.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((config.http.host, port))
            except OSError as error:
                grade: Grade = "error"
                remedy = "set http.host to an address of this machine and the port to 1024 or above"
                if error.errno == errno.EADDRINUSE:
                    grade, remedy = "note", f"unless that is a running `tripletd {role}`, choose another port"
                yield key, grade, f"{door}: {error.strerror or error}", remedy
            else:
                yield key, "ok", "any free port" if port == 0 else f"{door} is free"


_CHECKS: dict[str, Callable[[Config], Iterator[Row]]] = {
    "packages": _names,
    "secrets": lambda config: (("secrets", "note", one.text, one.remedy) for one in config.exposed),
    "space.views": _space,
    "learner": _learner,
    "caps": _caps,
    "stream.address": _stream,
    "catalog.path": _catalog,
    "validate.judgments": _judgments,
    "checkpoints.path": _checkpoints,
    "serve": _serve,
    "feed.position_weights": _position_weights,
    "feed.follow.registry": _registry,
    "embeddings": _embeddings,
    "index": _index,
    "http": _http,
}
