"""Which file is the catalog, which are click logs, and what their columns mean: guessed from what was seen.

What the values say goes before what a name says: a list of clicked ids is one whose ids are in the list that
was shown, and a query is a column whose values are objects of the catalog.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from daemon.setup.seen import TIMES, ColumnSeen, FileSeen, separated

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
    """The files by what they are; `columns` of the catalog by what they mean; views as (name, kind, dim)."""

    catalog: FileSeen | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    views: list[tuple[str, str, int]] = field(default_factory=list)
    logs: list[FileSeen] = field(default_factory=list)
    ready: str = ""
    mapping: MappingGuess | None = None
    judgments: str = ""
    display: str = ""
    notes: list[str] = field(default_factory=list)


def guess(files: Sequence[FileSeen]) -> SetupGuess:
    """What each file is, and what its columns mean."""
    made = SetupGuess()
    with_vectors = [one for one in files if not one.format and _vector_columns(one)]
    others = [one for one in files if one not in with_vectors]
    shown = _shown_ids(others)
    with_vectors.sort(key=lambda one: -_overlap(_id_column(one, shown), shown))
    if with_vectors:
        made.catalog, *more = with_vectors
        _describe_catalog(made, made.catalog, shown)
        made.notes += [
            f"{one.path} has vectors too and is not used: the catalog is one file or folder" for one in more
        ]
    known: frozenset[str] = frozenset()
    if made.catalog is not None and (id_ := _id_column(made.catalog, shown)) is not None:
        known = made.catalog.ids.get(id_.name) or frozenset(map(str, id_.values))
    for one in others:
        _take_other(made, one, known)
    _note_what_is_missing(made, known)
    return made


def _take_other(made: SetupGuess, one: FileSeen, known: Set[str]) -> None:
    if one.format and one.format != "relevance":
        made.logs.append(one)
    elif one.mappings:
        made.logs.append(one)
        made.ready = made.ready or one.mappings[0]
    elif (mapping := mapping_of(one, known)) is not None:
        made.logs.append(one)
        made.mapping = made.mapping or mapping
    elif (kind := _judged(one, known)) and not made.judgments:
        made.judgments = f"{kind}:{one.path}"
    elif _is_display(one, known) and not made.display:
        made.display = one.path
    else:
        made.notes.append(f"what {one.path} is could not be told, so it is left out")


def _note_what_is_missing(made: SetupGuess, known: Set[str]) -> None:
    if made.catalog is None:
        made.notes.append(
            "no file has vectors: name the one of your objects, or make it with `tripletd describe`"
        )
    if not made.logs:
        made.notes.append("no file is a click log: name the one with what was shown and clicked")
    query = "" if made.mapping is None else made.mapping.keys.get("query", "")
    for column in (one.columns[query] for one in made.logs if query in one.columns):
        if known and not _overlap(column, known):
            made.notes.append(
                f"queries such as {str(column.values[0])!r} (column {query}) are no objects of the catalog: "
                "a query is an object and needs a vector there, or its lists are dropped"
            )


def _vector_columns(seen: FileSeen) -> dict[str, tuple[str, str, int]]:
    """By column, or pattern of columns: the name of its view, its kind and dim."""
    found = {
        one.name: (one.name.removeprefix("views."), "sparse" if one.form == "sparse" else "dense", one.dim)
        for one in seen.of("vector", "sparse")
    }
    numbered: dict[str, int] = defaultdict(int)
    for one in seen.of("number", "truth"):
        if match := re.fullmatch(r"(.*?)\d+", one.name):
            numbered[match[1]] += 1
    found |= {
        f"{head}*": (head.strip("_. -") or "x", "dense", count)
        for head, count in numbered.items()
        if count > 3
    }
    return found


def _describe_catalog(made: SetupGuess, seen: FileSeen, shown: Set[str]) -> None:
    vectors = _vector_columns(seen)
    id_ = _id_column(seen, shown)
    one_view = len(vectors) == 1
    for view, kind, dim in vectors.values():
        made.views.append(("x" if one_view else re.sub(r"\W+", "_", view), kind, dim))
    own = set(vectors) == {"x"} or all(name.startswith("views.") for name in vectors)
    if own and id_ is not None and id_.name == "id":
        if not one_view or "x" not in vectors:
            made.views = [(view, kind, dim) for view, kind, dim in vectors.values()]
        return
    if id_ is not None:
        made.columns["id"] = id_.name
    elif not seen.path.endswith((".npy", ".npz", ".safetensors")):
        made.notes.append(
            f"which column of {seen.path} is the id could not be told: say it as catalog.columns.id"
        )
    if one_view:
        made.columns["x"] = next(iter(vectors))
    else:
        made.columns["views"] = dict(zip((name for name, _, _ in made.views), vectors, strict=True))
    free = {name.lower(): one for name, one in seen.columns.items() if one is not id_ and name not in vectors}
    for key, names in _SHOWN_TO_PEOPLE.items():
        hits = [
            free[name] for name in names if name in free and free[name].form in ("text", "list", "number")
        ]
        if hits:
            made.columns[key] = [one.name for one in hits] if key == "tags" else hits[0].name


def _texts(column: ColumnSeen | None) -> set[str]:
    return set() if column is None else {str(one) for one in column.values}


def _overlap(column: ColumnSeen | None, ids: Set[str]) -> float:
    """Which share of a column's values are among these."""
    if column is None or not column.values or not ids:
        return 0.0
    entries = [str(one) for cell in column.values for one in (cell if isinstance(cell, list) else [cell])]
    return sum(one in ids for one in entries) / max(len(entries), 1)


def _id_column(seen: FileSeen, shown: Set[str]) -> ColumnSeen | None:
    """The column of a catalog that names its objects: each another one, best those that were shown."""
    fits = [
        one
        for one in seen.of("text", "number")
        if len(one.values) == len(one.cells or one.values)
        and len({str(cell) for cell in one.values}) == len(one.values)
        and all(isinstance(cell, str | int) for cell in one.values)
    ]

    def score(one: ColumnSeen) -> float:
        exact = one.name.lower() in ("id", "ids")
        return (
            10 * _overlap(one, shown) + 3 * exact + 2 * bool(_IDS.search(one.name)) - 0.01 * fits.index(one)
        )

    best = max(fits, key=score, default=None)
    named = best is not None and (score(best) > 1 or len(fits) == 1)
    return best if named else None


def _shown_ids(files: Iterable[FileSeen]) -> set[str]:
    """What was shown in logs, to recognise the catalog by."""
    found: set[str] = set()
    for seen in files:
        for one in seen.of("list"):
            found.update(str(entry) for cell in one.values for entry in cell)
        for one in seen.of("text", "number"):
            if _OBJECT.search(one.name):
                found |= _texts(one)
    return found


def _judged(seen: FileSeen, known: Set[str]) -> str:
    """ "labels" or "qrels" where its lines are such; "" otherwise."""
    if not seen.lines:
        return ""
    if all(len(row) == 2 for row in seen.lines) and sum(row[0] in known for row in seen.lines) * 2 > len(
        seen.lines
    ):
        return "labels"
    return "qrels" if all(len(row) == 4 and row[3].lstrip("-").isdigit() for row in seen.lines) else ""


def _is_display(seen: FileSeen, known: Set[str]) -> bool:
    names = {"title", "text", "image", "tags"} & set(seen.columns)
    return bool(names) and _overlap(seen.columns.get("id"), known) > 0


def mapping_of(seen: FileSeen, known: Set[str]) -> MappingGuess | None:
    """What the columns of a click log mean; None where nothing looks like one. known: ids of the catalog."""
    return _row_per_list(seen, known) or _row_per_triplet(seen) or _row_per_object(seen, known)


def _row_per_list(seen: FileSeen, known: Set[str]) -> MappingGuess | None:
    lists = [one for one in seen.of("list") if one.cells]
    for one in seen.of("text"):
        if _SHOWN.search(one.name) or _CLICKED.search(one.name):
            lists += separated(one)
    best: tuple[float, ColumnSeen, ColumnSeen, dict[str, Any]] | None = None
    for shown in lists:
        ids = sum(len(cell) == len(set(map(str, cell))) for cell in shown.values) / max(len(shown.values), 1)
        base = ids + bool(_SHOWN.search(shown.name)) + 3 * _overlap(shown, known)
        clicks = [one for one in (*lists, *seen.of("text", "number")) if one.name != shown.name]
        for clicked in clicks:
            for keys, share in _click_keys(shown, clicked):
                score = base + 3 * share + bool(_CLICKED.search(clicked.name))
                if share > 0.9 and (best is None or score > best[0]):
                    best = (score, shown, clicked, keys)
    if best is None:
        return None
    _, shown, clicks_in, keys = best
    taken = {shown.name, clicks_in.name}
    found: dict[str, Any] = {"rows": "impressions"}
    unknown = _add_common(found, seen, taken, known)
    found |= {"shown": shown.name, **keys}
    if shown.separator or clicks_in.separator:
        found["separator"] = shown.separator or clicks_in.separator
    return MappingGuess(found, unknown)


def _click_keys(shown: ColumnSeen, clicked: ColumnSeen) -> Iterable[tuple[dict[str, Any], float]]:
    """The keys by which `clicked` may tell the clicks in `shown`, and in which share of rows it does."""
    rows = [
        (list(map(str, listed)), cell if isinstance(cell, list) else [cell])
        for listed, cell in zip(shown.cells, clicked.cells, strict=True)
        if isinstance(listed, list) and cell not in (None, "")
    ]
    rows = [(listed, cell) for listed, cell in rows if cell]
    if not rows or sum(len(cell) for _, cell in rows) >= sum(len(listed) for listed, _ in rows):
        return
    if clicked.form == "list":
        yield (
            {"clicked": clicked.name},
            sum({*map(str, cell)} <= {*listed} for listed, cell in rows) / len(rows),
        )
    if all(isinstance(one, int) for _, cell in rows for one in cell):
        lowest = min(one for _, cell in rows for one in cell)
        first = 1 if lowest > 0 else 0
        within = sum(all(first <= one < first + len(listed) for one in cell) for listed, cell in rows)
        if clicked.form == "list":
            keys = {"clicked_positions": clicked.name} | ({"first_position": 1} if first else {})
            yield keys, 0.9 * within / len(rows) + 0.05 * bool(_POSITION.search(clicked.name))


def _add_common(found: dict[str, Any], seen: FileSeen, taken: set[str], known: Set[str]) -> tuple[str, ...]:
    """Add time and query; returns what could not be told."""
    unknown = []
    times = [one for one in seen.of("time") if one.name not in taken]
    if times:
        time = max(times, key=lambda one: bool(TIMES.search(one.name)))
        found["time"] = time.name
        if time.unit and time.unit != "ms":
            found["time_unit"] = time.unit
        taken.add(time.name)
    else:
        unknown.append("time")
    query = _query_column(seen, taken, known)
    if query is not None:
        found["query"] = query.name
        taken.add(query.name)
    else:
        unknown.append("query")
    return tuple(unknown)


def _query_column(seen: FileSeen, taken: set[str], known: Set[str]) -> ColumnSeen | None:
    def score(one: ColumnSeen) -> float:
        named = 3 * bool(_QUERY.search(one.name)) - 2 * bool(_SESSION.search(one.name))
        is_id = bool(re.search(r"id$", one.name, re.IGNORECASE))
        return 10 * _overlap(one, known) + named - is_id + (one.form == "text")

    fits = [one for one in seen.of("text", "number") if one.name not in taken]
    best = max(fits, key=score, default=None)
    return best if best is not None and score(best) > 1 else None


def _row_per_triplet(seen: FileSeen) -> MappingGuess | None:
    texts = seen.of("text", "number")
    found: dict[str, Any] = {"rows": "triplets"}
    for role, pattern in _ROLES:
        hits = [one.name for one in texts if pattern.search(one.name) and one.name not in found.values()]
        if not hits:
            return None
        found[role] = hits[0]
    return MappingGuess(found)


def _row_per_object(seen: FileSeen, known: Set[str]) -> MappingGuess | None:
    clicks = [one for one in seen.of("truth") if _CLICKED.search(one.name)]
    if not clicks:
        return None
    texts = seen.of("text", "number")
    objects = sorted(texts, key=lambda one: -(10 * _overlap(one, known) + bool(_OBJECT.search(one.name))))
    named = [one for one in objects if _OBJECT.search(one.name) and not _QUERY.search(one.name)]
    object_ = next(iter(named or objects), None)
    if object_ is None:
        return None
    found: dict[str, Any] = {"rows": "shown"}
    taken = {clicks[0].name, object_.name}
    position = next((one for one in texts if _POSITION.search(one.name) and one.name not in taken), None)
    if position is not None:
        taken.add(position.name)
    unknown = _add_common(found, seen, taken, known)
    lists = [one for one in texts if one.name not in taken and _LIST.search(one.name)]
    if lists:
        found["id"] = lists[0].name
    else:
        unknown = (*unknown, "id")
    found["object"] = object_.name
    if position is not None:
        found["position"] = position.name
    said = {str(one).lower() if isinstance(one, bool) else str(one) for one in clicks[0].values}
    found["click"] = (clicks[0].name, "true" if said <= {"true", "false"} else "1")
    return MappingGuess(found, unknown)
