"""Which file is the catalog, which are click logs, and what their columns mean: guessed from what was seen.

What the values say goes before what a name says: clicked ids are those that are in the list that was shown,
and a query is a column whose values are objects of the catalog.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from daemon.setup.seen import ARRAYS, SEPARATORS, TIMES, ColumnSeen, FileSeen, Form, cut, separated

_TEXTS: tuple[Form, ...] = ("text", "number")
_named = partial(re.compile, flags=re.IGNORECASE)
_IDS = _named(r"(^|_|\.)(id|sku|key|asin|gtin|uuid)$|^(item|product|object|doc|article)")
_QUERY = _named(r"query|search|^q$|term|keyword|anchor|seed")
_SHOWN = _named(r"shown|result|impress|item|product|hit|list|rank|viewed|candidate|slate")
_CLICKED = _named(r"click|chosen|select|bought|purchase|positive|target")
_OBJECT = _named(r"item|product|object|doc|sku|article|result|shown")
_SESSION = _named(r"session|user|visitor|client|cookie|device|country|page|request|uuid|agent")
_WHO = _named(r"(^|_|\.)(user|visitor|client|customer)(_?(pseudo_?)?id)?$")
_POSITION = _named(r"pos|rank|place|index|slot")
_LIST = _named(r"impression|request|search|serp|list|query_?id|view|page|slate|session")
_ROLES = (
    ("query", _named(r"^(q|query|anchor|seed)")),
    ("clicked", _named(r"^(c|clicked|positive|pos|chosen|better|preferred)($|_)")),
    ("skipped", _named(r"^(s|skipped|negative|neg|rejected|worse)($|_)")),
)
_SHOWN_TO_PEOPLE = {
    "title": ("title", "name", "product_name", "label", "caption", "heading"),
    "text": ("text", "description", "body", "abstract", "content"),
    "image": ("image", "image_url", "img", "picture", "photo", "thumbnail"),
    "tags": ("tags", "category", "categories", "brand", "colour", "color", "type", "genre"),
}


_NEEDED = {"impressions": ("time", "query"), "shown": ("time", "query", "id"), "triplets": ()}


@dataclass(frozen=True, slots=True)
class MappingGuess:
    """What the columns of a click log mean, by the keys of a mapping; `unknown`: keys without a column."""

    keys: dict[str, Any]
    unknown: list[str]


@dataclass(slots=True)
class LogGroup:
    """Click logs that are fed together, as their columns mean the same. mapping: the name of the one that
    comes along, or of the file that `guess` is to be written to; "" where they need none."""

    logs: list[FileSeen]
    guess: MappingGuess | None
    mapping: str


@dataclass(slots=True)
class SetupGuess:
    """The files by what they are; `columns` of the catalog by what they mean; views with their settings;
    judgments as (kind, path)."""

    catalog: FileSeen | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: list[LogGroup] = field(default_factory=list)
    judgments: tuple[str, str] | None = None
    display: str = ""
    notes: list[str] = field(default_factory=list)


def guess(files: Sequence[FileSeen]) -> SetupGuess:
    """What each file is, and what its columns mean."""
    made, known = SetupGuess(), frozenset[str]()
    with_vectors = [one for one in files if not one.format and _vector_columns(one)]
    others = [one for one in files if one not in with_vectors]
    columns = [column for one in others for column in one.of("list", *_TEXTS)]
    objects = (one for one in columns if one.form == "list" or _OBJECT.search(one.name))
    shown = {text for column in objects for text in column.texts}
    with_vectors.sort(key=lambda one: -_overlap(_id_column(one, shown), shown))
    if with_vectors:
        made.catalog, *more = with_vectors
        id_ = _id_column(made.catalog, shown)
        _describe_catalog(made, made.catalog, id_)
        if id_ is not None:
            known = frozenset(made.catalog.ids.get(id_.name) or id_.texts)
        unused = "has vectors too and is not used: the catalog is one file or folder"
        made.notes += [f"{one.path} {unused}" for one in more]
    else:
        need = "no file has vectors: name the one of your objects, or make it with `tripletd describe`"
        made.notes.append(need)
    for one in others:
        is_display = _SHOWN_TO_PEOPLE.keys() & one.columns.keys() and _overlap(one.columns.get("id"), known)
        if (one.format and one.format != "relevance") or one.mappings:
            _add_log(made.logs, one, None, next(iter(one.mappings), ""))
        elif (mapping := mapping_of(one, known)) is not None:
            _add_log(made.logs, one, mapping, "")
        elif (kind := _judged(one, known)) and not made.judgments:
            made.judgments = kind, one.path
        elif is_display and not made.display:
            made.display = one.path
        else:
            made.notes.append(f"{one.path} was not recognized and is left out")
    if not made.logs:
        made.notes.append("no file is a click log: name the one with what was shown and clicked")
    for group in made.logs:
        query = "" if group.guess is None else group.guess.keys.get("query", "")
        made.notes += [
            f"queries such as {str(one.columns[query].values[0])[:60]!r} (column {query}) are no objects of "
            "the catalog: a query is an object and needs a vector there, or its lists are dropped"
            for one in group.logs
            if known and query and not _overlap(one.columns[query], known)
        ]
    return made


def _add_log(groups: list[LogGroup], seen: FileSeen, meaning: MappingGuess | None, ready: str) -> None:
    for group in groups:
        if group.guess == meaning and (meaning is not None or group.mapping == ready):
            group.logs.append(seen)
            return
    if meaning is not None:
        stem = seen.path.rstrip("/").rpartition("/")[2].partition(".")[0]
        taken = {group.mapping for group in groups}
        names = (f"{stem}{number}.mapping.toml" for number in ("", *range(-2, -len(groups) - 3, -1)))
        ready = next(name for name in names if name not in taken)
    groups.append(LogGroup([seen], meaning, ready))


def _vector_columns(seen: FileSeen) -> dict[str, tuple[str, dict[str, Any]]]:
    """By column, or pattern of columns: the name of its view, and its settings."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for one in seen.of("vector", "sparse"):
        kind = {"kind": "sparse"} if one.form == "sparse" else {}
        found[one.name] = one.name.removeprefix("views."), {"dim": one.dim, **kind}
    numbered = (re.fullmatch(r"(.*?)\d+", one.name) for one in seen.of("number", "truth"))
    heads = Counter(match[1] for match in numbered if match)
    return found | {f"{head}*": (head.strip("_. -") or "x", {"dim": n}) for head, n in heads.items() if n > 3}


def _describe_catalog(made: SetupGuess, seen: FileSeen, id_: ColumnSeen | None) -> None:
    vectors = _vector_columns(seen)
    own = {*vectors} == {"x"} or all(name.startswith("views.") for name in vectors)
    if own and id_ is not None and id_.name == "id":
        made.views = dict(vectors.values())
        return
    if id_ is not None:
        made.columns["id"] = id_.name
    elif not seen.path.endswith(ARRAYS):
        untold = f"cannot tell which column of {seen.path} is the id: set catalog.columns.id"
        made.notes.append(untold)
    names = ["x"] if len(vectors) == 1 else [re.sub(r"\W+", "_", view) for view, _ in vectors.values()]
    made.views = {name: settings for name, (_, settings) in zip(names, vectors.values(), strict=True)}
    views = dict(zip(names, vectors, strict=True))
    made.columns |= views if len(vectors) == 1 else {"views": views}
    columns = (one.name for one in seen.of("text", "list", "number") if one is not id_)
    free = {name.lower(): name for name in columns if name not in vectors}
    for key, known in _SHOWN_TO_PEOPLE.items():
        if hits := [free[name] for name in known if name in free]:
            made.columns[key] = hits if key == "tags" else hits[0]


def _overlap(column: ColumnSeen | None, ids: Set[str]) -> float:
    texts = [] if column is None or not ids else column.texts
    return sum(one in ids for one in texts) / max(len(texts), 1)


def _id_column(seen: FileSeen, shown: Set[str]) -> ColumnSeen | None:
    """The column of a catalog that names its objects: unique values, preferably ids that were shown."""
    whole = [one for one in seen.of(*_TEXTS) if one.differs and one.values]
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
    keys = _row_per_list(seen, known) or _row_per_triplet(seen) or _row_per_object(seen, known)
    return MappingGuess(keys, [one for one in _NEEDED[keys["rows"]] if one not in keys]) if keys else None


def _row_per_list(seen: FileSeen, known: Set[str]) -> dict[str, Any]:
    named = [one for one in seen.of("text") if _SHOWN.search(one.name) or _CLICKED.search(one.name)]
    lists = seen.of("list") + [column for one in named for column in separated(one)]
    found = [
        (share, shown, clicked, keys)
        for shown in lists
        for clicked in _clicked_columns(seen, shown, known)
        for keys, share in _click_keys(shown, clicked)
        if share > 0.9
    ]

    def score(one: tuple[float, ColumnSeen, ColumnSeen, dict[str, Any]]) -> float:
        share, shown, clicked, _ = one
        ids = sum(len(cell) == len({*map(str, cell)}) for cell in shown.values) / len(shown.values)
        named = bool(_SHOWN.search(shown.name)) + bool(_CLICKED.search(clicked.name))
        return ids + named + 3 * _overlap(shown, known) + 3 * share

    if not found:
        return {}
    _, shown, clicked, clicks = max(found, key=score)
    common = _time_and_query(seen, {shown.name, clicked.name}, known)
    separator = shown.separator or clicked.separator
    clicks |= {"separator": separator} if separator else {}
    return {"rows": "impressions", **common, "shown": shown.name, **clicks}


def _clicked_columns(seen: FileSeen, shown: ColumnSeen, known: Set[str]) -> Iterator[ColumnSeen]:
    """What may hold the clicks in `shown`, as lists: of several, or of the only one of each row."""
    trusted = (not shown.separator and bool(_SHOWN.search(shown.name))) or _overlap(shown, known) > 0.5
    ids = {*shown.texts}
    for one in seen.of("list", "truth", *_TEXTS):
        named = bool(_CLICKED.search(one.name))
        likely = one.form == "list" or named or (trusted and not _QUERY.search(one.name))
        if one.name == shown.name or not likely:
            continue
        if one.form == "text":
            separators = (shown.separator,) if shown.separator else ("", *SEPARATORS * named)
            columns = (cut(one, separator) for separator in separators)
            yield from (column for column in columns if not ids.isdisjoint(column.texts))
        elif one.form != "truth" or _POSITION.search(one.name):
            yield one if one.form == "list" else cut(one, "")


def _click_keys(shown: ColumnSeen, clicked: ColumnSeen) -> Iterator[tuple[dict[str, Any], float]]:
    """The keys by which `clicked` may tell the clicks in `shown`, and in which share of rows it does."""
    both = zip(shown.cells, clicked.cells, strict=True)
    rows = [(list(map(str, row)), cell) for row, cell in both if row and cell]
    if not rows or sum(len(cell) for _, cell in rows) >= sum(len(listed) for listed, _ in rows):
        return
    yield {"clicked": clicked.name}, sum({*map(str, cell)} <= {*row} for row, cell in rows) / len(rows)
    places = [one for _, cell in rows for one in cell]
    if all(type(one) in (int, float) and one % 1 == 0 for one in places):
        first = int(min(places) > 0)
        within = sum(all(first <= one < first + len(row) for one in cell) for row, cell in rows)
        keys = {"clicked_positions": clicked.name} | ({"first_position": 1} if first else {})
        named = _POSITION.search(clicked.name) or _CLICKED.search(clicked.name)
        yield keys, 0.9 * within / len(rows) + 0.05 * bool(named)


def _time_and_query(seen: FileSeen, taken: Set[str], known: Set[str]) -> dict[str, Any]:
    """The keys that name these, and who clicked, as far as recognized. taken: columns of another meaning."""

    def score(one: ColumnSeen) -> float:
        named = 3 * bool(_QUERY.search(one.name)) - 2 * bool(_SESSION.search(one.name))
        return 10 * _overlap(one, known) + named - one.name.lower().endswith("id") + (one.form == "text")

    free = [one for one in seen.of("time", *_TEXTS) if one.name not in taken]
    times = [one for one in free if one.form == "time"]
    queries = [one for one in free if one.form != "time" and score(one) > 1]
    found: dict[str, Any] = {}
    if times:
        time = max(times, key=lambda one: bool(TIMES.search(one.name)))
        found = {"time": time.name} | ({"time_unit": time.unit} if time.unit not in ("", "ms") else {})
    if queries:
        found["query"] = max(queries, key=score).name
    named = [one for one in free if _WHO.search(one.name) and one.name not in found.values()]
    who = [one.name for one in named if all(isinstance(cell, str | int) for cell in one.values)]
    return found | ({"source": who[0]} if who else {})


def _row_per_triplet(seen: FileSeen) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": "triplets"}
    for role, pattern in _ROLES:
        names = (one.name for one in seen.of(*_TEXTS) if one.name not in found.values())
        found[role] = next(filter(pattern.search, names), None)
    return found if all(found.values()) else {}


def _row_per_object(seen: FileSeen, known: Set[str]) -> dict[str, Any]:
    clicks = [one for one in seen.of("truth") if _CLICKED.search(one.name)]
    texts = seen.of(*_TEXTS)
    if not clicks or not texts:
        return {}

    def score(one: ColumnSeen) -> tuple[bool, float]:
        named = bool(_OBJECT.search(one.name))
        return named and not _QUERY.search(one.name), 10 * _overlap(one, known) + named

    object_ = max(texts, key=score).name
    names = [one.name for one in texts if one.name != object_]
    position = next(filter(_POSITION.search, names), "")
    common = _time_and_query(seen, {object_, position}, known)
    lists = [one for one in names if one not in {position, *common.values()} and _LIST.search(one)]
    clicked = "true" if {*clicks[0].texts} <= {"True", "False"} else "1"
    click = {"where": {clicks[0].name: clicked}}
    columns = {"id": next(iter(lists), ""), "object": object_, "position": position}
    found = {"rows": "shown", **common, **columns, "click": click}
    return {key: one for key, one in found.items() if one}
