"""Which file is the catalog, which are click logs, and what their columns mean: guessed from what was seen.

What the values say goes before what a name says: a list of clicked ids is one whose ids are in the list that
was shown, and a query is a column whose values are objects of the catalog.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from daemon.setup.seen import ARRAYS, TIMES, ColumnSeen, FileSeen, Form, separated

_TEXTS: tuple[Form, ...] = ("text", "number")
_IDS = re.compile(r"(^|_|\.)(id|sku|key|asin|gtin|uuid)$|^(item|product|object|doc|article)", re.IGNORECASE)
_QUERY = re.compile(r"query|search|^q$|term|keyword|anchor|seed", re.IGNORECASE)
_SHOWN = re.compile(r"shown|result|impress|item|product|hit|list|rank|viewed|candidate|slate", re.IGNORECASE)
_CLICKED = re.compile(r"click|chosen|select|bought|purchase|positive|target", re.IGNORECASE)
_OBJECT = re.compile(r"item|product|object|doc|sku|article|result|shown", re.IGNORECASE)
_SESSION = re.compile(
    r"session|user|visitor|client|cookie|device|country|page|request|uuid|agent", re.IGNORECASE
)
_POSITION = re.compile(r"pos|rank|place|index|slot", re.IGNORECASE)
_LIST = re.compile(r"impression|request|search|serp|list|query_?id|view|page|slate|session", re.IGNORECASE)
_ROLES = (
    ("query", re.compile(r"^(q|query|anchor|seed)", re.IGNORECASE)),
    ("clicked", re.compile(r"^(c|clicked|positive|pos|chosen|better|preferred)($|_)", re.IGNORECASE)),
    ("skipped", re.compile(r"^(s|skipped|negative|neg|rejected|worse)($|_)", re.IGNORECASE)),
)
_SHOWN_TO_PEOPLE = {
    "title": ("title", "name", "product_name", "label", "caption", "heading"),
    "text": ("text", "description", "body", "abstract", "content"),
    "image": ("image", "image_url", "img", "picture", "photo", "thumbnail"),
    "tags": ("tags", "category", "categories", "brand", "colour", "color", "type", "genre"),
}


@dataclass(frozen=True, slots=True)
class MappingGuess:
    """What the columns of a click log mean, by the keys of a mapping; `unknown`: what could not be told."""

    keys: dict[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


@dataclass(slots=True)
class SetupGuess:
    """The files by what they are; `columns` of the catalog by what they mean; views as (name, kind, dim);
    judgments as (kind, path).
    """

    catalog: FileSeen | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    views: list[tuple[str, str, int]] = field(default_factory=list)
    logs: list[FileSeen] = field(default_factory=list)
    ready: str = ""
    mapping: MappingGuess | None = None
    judgments: tuple[str, str] | None = None
    display: str = ""
    notes: list[str] = field(default_factory=list)


def guess(files: Sequence[FileSeen]) -> SetupGuess:
    """What each file is, and what its columns mean."""
    made, known = SetupGuess(), frozenset[str]()
    with_vectors = [one for one in files if not one.format and _vector_columns(one)]
    others = [one for one in files if one not in with_vectors]
    objects = [column for one in others for column in one.of("text", "number") if _OBJECT.search(column.name)]
    shown = {text for one in others for column in (*one.of("list"), *objects) for text in column.texts}
    with_vectors.sort(key=lambda one: -_overlap(_id_column(one, shown), shown))
    if with_vectors:
        made.catalog, *more = with_vectors
        id_ = _id_column(made.catalog, shown)
        _describe_catalog(made, made.catalog, id_)
        if id_ is not None:
            known = made.catalog.ids.get(id_.name) or frozenset(id_.texts)
        unused = "has vectors too and is not used: the catalog is one file or folder"
        made.notes += [f"{one.path} {unused}" for one in more]
    else:
        made.notes.append(
            "no file has vectors: name the one of your objects, or make it with `tripletd describe`"
        )
    for one in others:
        _take_other(made, one, known)
    if not made.logs:
        made.notes.append("no file is a click log: name the one with what was shown and clicked")
    query = "" if made.mapping is None else made.mapping.keys.get("query", "")
    for column in (one.columns[query] for one in made.logs if query in one.columns):
        if known and not _overlap(column, known):
            made.notes.append(
                f"queries such as {str(column.values[0])!r} (column {query}) are no objects of the catalog: "
                "a query is an object and needs a vector there, or its lists are dropped"
            )
    return made


def _take_other(made: SetupGuess, one: FileSeen, known: Set[str]) -> None:
    """Add a file without vectors. known: ids of the catalog."""
    if (one.format and one.format != "relevance") or one.mappings:
        made.logs.append(one)
        made.ready = made.ready or next(iter(one.mappings), "")
    elif (mapping := mapping_of(one, known)) is not None:
        made.logs.append(one)
        made.mapping = made.mapping or mapping
    elif (kind := _judged(one, known)) and not made.judgments:
        made.judgments = kind, one.path
    elif (
        not made.display
        and _SHOWN_TO_PEOPLE.keys() & one.columns.keys()
        and _overlap(one.columns.get("id"), known)
    ):
        made.display = one.path
    else:
        made.notes.append(f"what {one.path} is could not be told, so it is left out")


def _vector_columns(seen: FileSeen) -> dict[str, tuple[str, str, int]]:
    """By column, or pattern of columns: the name of its view, its kind and dim."""
    found = {
        one.name: (one.name.removeprefix("views."), "sparse" if one.form == "sparse" else "dense", one.dim)
        for one in seen.of("vector", "sparse")
    }
    numbered = (re.fullmatch(r"(.*?)\d+", one.name) for one in seen.of("number", "truth"))
    heads = Counter(match[1] for match in numbered if match)
    patterns = {f"{head}*": (head.strip("_. -") or "x", "dense", n) for head, n in heads.items() if n > 3}
    return found | patterns


def _describe_catalog(made: SetupGuess, seen: FileSeen, id_: ColumnSeen | None) -> None:
    vectors = _vector_columns(seen)
    one_view = len(vectors) == 1
    own = {*vectors} == {"x"} or all(name.startswith("views.") for name in vectors)
    if own and id_ is not None and id_.name == "id":
        made.views = [*vectors.values()]
        return
    for view, kind, dim in vectors.values():
        made.views.append(("x" if one_view else re.sub(r"\W+", "_", view), kind, dim))
    if id_ is not None:
        made.columns["id"] = id_.name
    elif not seen.path.endswith(ARRAYS):
        made.notes.append(
            f"which column of {seen.path} is the id could not be told: say it as catalog.columns.id"
        )
    views = zip(made.views, vectors, strict=True)
    made.columns |= (
        {"x": next(iter(vectors))} if one_view else {"views": {view[0]: name for view, name in views}}
    )
    free = {
        one.name.lower(): one.name
        for one in seen.of("text", "list", "number")
        if one is not id_ and one.name not in vectors
    }
    for key, names in _SHOWN_TO_PEOPLE.items():
        if hits := [free[name] for name in names if name in free]:
            made.columns[key] = hits if key == "tags" else hits[0]


def _overlap(column: ColumnSeen | None, ids: Set[str]) -> float:
    texts = [] if column is None or not ids else column.texts
    return sum(one in ids for one in texts) / max(len(texts), 1)


def _id_column(seen: FileSeen, shown: Set[str]) -> ColumnSeen | None:
    """The column of a catalog that names its objects: each another one, best those that were shown."""
    whole = [one for one in seen.of("text", "number") if one.differs and one.values]
    fits = [one for one in whole if all(isinstance(cell, str | int) for cell in one.values)]

    def score(one: ColumnSeen) -> float:
        named = 3 * (one.name.lower() in ("id", "ids")) + 2 * bool(_IDS.search(one.name))
        return 10 * _overlap(one, shown) + named - 0.01 * fits.index(one)

    best = max(fits, key=score, default=None)
    return best if best is not None and (score(best) > 1 or len(fits) == 1) else None


def _judged(seen: FileSeen, known: Set[str]) -> str:
    """ "labels" or "qrels" where its lines are such; "" otherwise."""
    rows, lengths = seen.lines, {len(row) for row in seen.lines}
    if lengths == {2} and sum(row[0] in known for row in rows) * 2 > len(rows):
        return "labels"
    return "qrels" if lengths == {4} and all(row[3].lstrip("-").isdigit() for row in rows) else ""


def mapping_of(seen: FileSeen, known: Set[str]) -> MappingGuess | None:
    """What the columns of a click log mean; None where nothing looks like one. known: ids of the catalog."""
    return _row_per_list(seen, known) or _row_per_triplet(seen) or _row_per_object(seen, known)


def _row_per_list(seen: FileSeen, known: Set[str]) -> MappingGuess | None:
    lists = seen.of("list")
    for one in seen.of("text"):
        if _SHOWN.search(one.name) or _CLICKED.search(one.name):
            lists += separated(one)
    best: tuple[float, ColumnSeen, ColumnSeen, dict[str, Any]] | None = None
    for shown in lists:
        ids = sum(len(cell) == len({*map(str, cell)}) for cell in shown.values) / max(len(shown.values), 1)
        base = ids + bool(_SHOWN.search(shown.name)) + 3 * _overlap(shown, known)
        for clicked in (one for one in lists if one.name != shown.name):
            for keys, share in _click_keys(shown, clicked):
                score = base + 3 * share + bool(_CLICKED.search(clicked.name))
                if share > 0.9 and (best is None or score > best[0]):
                    best = score, shown, clicked, keys
    if best is None:
        return None
    _, shown, clicked, keys = best
    found, unknown = _time_and_query(seen, {shown.name, clicked.name}, known)
    found = {"rows": "impressions", **found, "shown": shown.name, **keys}
    if separator := shown.separator or clicked.separator:
        found["separator"] = separator
    return MappingGuess(found, unknown)


def _click_keys(shown: ColumnSeen, clicked: ColumnSeen) -> Iterator[tuple[dict[str, Any], float]]:
    """The keys by which `clicked` may tell the clicks in `shown`, and in which share of rows it does."""
    rows = [
        (list(map(str, row)), cell)
        for row, cell in zip(shown.cells, clicked.cells, strict=True)
        if row and cell
    ]
    if not rows or sum(len(cell) for _, cell in rows) >= sum(len(listed) for listed, _ in rows):
        return
    yield {"clicked": clicked.name}, sum({*map(str, cell)} <= {*row} for row, cell in rows) / len(rows)
    places = [one for _, cell in rows for one in cell]
    if all(isinstance(one, int) for one in places):
        first = int(min(places) > 0)
        within = sum(all(first <= one < first + len(row) for one in cell) for row, cell in rows)
        keys = {"clicked_positions": clicked.name} | ({"first_position": 1} if first else {})
        yield keys, 0.9 * within / len(rows) + 0.05 * bool(_POSITION.search(clicked.name))


def _time_and_query(
    seen: FileSeen, taken: Set[str], known: Set[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys that name them, and which of the two could not be told. taken: columns of another meaning."""

    def score(one: ColumnSeen) -> float:
        named = 3 * bool(_QUERY.search(one.name)) - 2 * bool(_SESSION.search(one.name))
        return 10 * _overlap(one, known) + named - one.name.lower().endswith("id") + (one.form == "text")

    times, texts = (
        [one for one in seen.of(*forms) if one.name not in taken] for forms in (("time",), _TEXTS)
    )
    time = max(times, key=lambda one: bool(TIMES.search(one.name)), default=None)
    query = max(texts, key=score, default=None)
    found: dict[str, Any] = {}
    if time is not None:
        found |= {"time": time.name} | ({"time_unit": time.unit} if time.unit not in ("", "ms") else {})
    if query is not None and score(query) > 1:
        found["query"] = query.name
    return found, tuple(key for key in ("time", "query") if key not in found)


def _row_per_triplet(seen: FileSeen) -> MappingGuess | None:
    found: dict[str, Any] = {"rows": "triplets"}
    for role, pattern in _ROLES:
        names = (one.name for one in seen.of(*_TEXTS) if one.name not in found.values())
        found[role] = next(filter(pattern.search, names), None)
    return MappingGuess(found) if all(found.values()) else None


def _row_per_object(seen: FileSeen, known: Set[str]) -> MappingGuess | None:
    clicks = [one for one in seen.of("truth") if _CLICKED.search(one.name)]
    texts = seen.of(*_TEXTS)
    if not clicks or not texts:
        return None
    objects = sorted(texts, key=lambda one: -(10 * _overlap(one, known) + bool(_OBJECT.search(one.name))))
    named = (one for one in objects if _OBJECT.search(one.name) and not _QUERY.search(one.name))
    object_ = next(named, objects[0]).name
    names = [one.name for one in texts if one.name != object_]
    position = next(filter(_POSITION.search, names), "")
    common, unknown = _time_and_query(seen, {clicks[0].name, object_, position}, known)
    lists = [one for one in names if one not in {position, *common.values()} and _LIST.search(one)]
    found: dict[str, Any] = {"rows": "shown", **common, "id": next(iter(lists), ""), "object": object_}
    found["position"] = position
    is_truth = {*clicks[0].texts} <= {"True", "False"}
    found["click"] = (clicks[0].name, "true" if is_truth else "1")
    return MappingGuess(
        {key: one for key, one in found.items() if one}, unknown if lists else (*unknown, "id")
    )
