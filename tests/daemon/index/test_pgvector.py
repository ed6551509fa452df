"""pgvector for real: a server with tables, asked as a user's own is."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from daemon.config.services import IndexConfig
from daemon.index import StoreAway, StoreRefused
from daemon.index.pgvector import PgVectorIndex, text_of
from tests.harness.postgres import Postgres, started
from tests.harness.signals import stands_still
from tests.harness.waiting import until

pytestmark = pytest.mark.xdist_group("postgres")
ROWS, DIM = 3_000, 16
Opening = Callable[..., PgVectorIndex]


@pytest.fixture(scope="module")
def rows(postgres: Postgres) -> np.ndarray:
    """Unit vectors, every seventh tagged a, the others b; float32."""
    drawn = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    tags = [["a"] if number % 7 == 0 else ["b"] for number in range(ROWS)]
    for kind in ("ip", "cosine", "l2"):
        postgres.table(f"unit_{kind}", drawn, tags=tags, index=f"vector_{kind}_ops")
    return drawn


@pytest.fixture
def opened(postgres: Postgres) -> Iterator[Opening]:
    """Opens a table of the server, and closes it."""
    indexes: list[PgVectorIndex] = []

    def opening(
        table: str,
        tags: str = "tags",
        uri: str = "",
        timeout_s: float = 30.0,
        id: str = "id",
        vector: str = "embedding",
    ) -> PgVectorIndex:
        config = IndexConfig(
            store="pgvector",
            address=uri or postgres.uri,
            collection=table,
            id=id,
            vector=vector,
            tags=tags,
            width=200,
            timeout=f"{round(timeout_s * 1e3)}ms",  # type: ignore[arg-type]
            connections=2,
        )
        indexes.append(PgVectorIndex(config))
        return indexes[-1]

    yield opening
    for index in indexes:
        index.close()


def nearest(rows: np.ndarray, query: np.ndarray, k: int, among: np.ndarray | None = None) -> list[str]:
    scores = rows @ query
    if among is not None:
        scores[~among] = -np.inf
    return [f"o{row}" for row in np.argsort(-scores, kind="stable")[:k]]


@pytest.mark.parametrize("kind", ["ip", "cosine", "l2"])
def test_it_asks_by_the_operator_of_the_index_that_is_there(
    postgres: Postgres, rows: np.ndarray, opened: Opening, kind: str
) -> None:
    query = 3 * rows[5]
    # A table as small as this is read as a whole, where nothing speaks against it.
    index = opened(f"unit_{kind}", uri=f"{postgres.uri}&options=-c%20seq_page_cost%3D100000")
    exact = index.search(query.tolist(), 10, exact=True)
    assert [one.id for one in exact] == nearest(rows, query, 10)
    found = index.search(query.tolist(), 10)
    assert len(set(nearest(rows, query, 10)) & {one.id for one in found}) >= 9
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    index.close()  # what a connection counted is told when it ends
    until(lambda: scans(postgres, f"unit_{kind}") == 1)


def scans(postgres: Postgres, table: str) -> int:
    """How often the index of the vectors was asked."""
    asked = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '{}_embedding_idx'"
    return int(postgres.execute(asked.format(table))[0][0])


def test_a_filter_leaves_as_many_as_were_asked_for(rows: np.ndarray, opened: Opening) -> None:
    index, tagged = opened("unit_ip"), np.arange(ROWS) % 7 == 0
    found = index.search(rows[5].tolist(), 250, ["a"])
    assert len(found) == 250
    assert len(set(nearest(rows, rows[5], 250, tagged)) & {one.id for one in found}) >= 240
    assert index.search(rows[5].tolist(), 5, ["a", "b"]) == []
    with pytest.raises(StoreRefused, match="no column of tags") as refused:
        opened("unit_ip", tags="").search(rows[5].tolist(), 5, ["a"])
    assert refused.value.remedy == "name it in index.tags"


def test_more_than_the_widest_scan_is_found(rows: np.ndarray, opened: Opening) -> None:
    assert len(opened("unit_ip").search(rows[5].tolist(), 1_500)) == 1_500


def test_columns_of_every_kind(postgres: Postgres, opened: Opening) -> None:
    rows = np.eye(6, dtype=np.float32)
    postgres.execute("CREATE SCHEMA IF NOT EXISTS shop")
    postgres.table("shop.halves", rows, kind="halfvec", index="halfvec_cosine_ops")
    assert opened("shop.halves").search([0.1, 0, 1, 0, 0, 0.0], 1)[0].id == "o2"
    postgres.execute(
        "DROP TABLE IF EXISTS few",
        "CREATE TABLE few (sku int, words sparsevec(9))",
        "INSERT INTO few VALUES (7, '{1:1,9:2}/9'), (8, '{2:1}/9')",
    )
    words = opened("few", id="sku", vector="words")
    found = words.search({"indices": [1, 8], "values": [0.5, 2.0]}, 2)
    assert [(one.id, one.score) for one in found] == [("7", 4.0), ("8", 0.5)]
    with pytest.raises(StoreRefused, match="vectors of this space are dense, the column is sparsevec"):
        words.search([1.0] * 9, 1)


def test_what_does_not_fit_is_told_and_mended_without_a_restart(postgres: Postgres, opened: Opening) -> None:
    missing = opened("not_there")
    with pytest.raises(StoreRefused, match='relation "not_there" does not exist'):
        missing.search([1.0, 0.0], 1)
    postgres.table("not_there", np.eye(2, dtype=np.float32))
    assert missing.search([1.0, 0.0], 1)[0].id == "o0"
    with pytest.raises(StoreRefused, match="holds vectors with 2 dimensions, and this space has 3"):
        missing.search([1.0, 0.0, 0.0], 1)
    with pytest.raises(StoreRefused, match="no column other"):
        opened("not_there", vector="other").search([1.0, 0.0], 1)
    with pytest.raises(StoreRefused, match="column id is of the type text"):
        opened("not_there", vector="id").search([1.0, 0.0], 1)
    postgres.execute("DROP DATABASE IF EXISTS empty", "CREATE DATABASE empty")
    empty = opened("items", uri=postgres.uri.replace("/postgres?", "/empty?"))
    with pytest.raises(StoreRefused, match="no pgvector"):
        empty.search([1.0], 1)


def test_a_table_that_compares_otherwise_or_of_another_size_is_not_asked(
    postgres: Postgres, rows: np.ndarray, opened: Opening
) -> None:
    for kind, similarity in (("l2", "inner_product"), ("ip", "squared_euclidean")):
        with pytest.raises(StoreRefused, match=f"uses the distance {kind}, and this ranking needs"):
            opened(f"unit_{kind}").search(rows[5].tolist(), 3, similarity=similarity)
    assert opened("unit_l2").search(rows[5].tolist(), 1, similarity="squared_euclidean")[0].id == "o5"
    postgres.table("made_again", rows[:3], index="vector_l2_ops")
    index = opened("made_again")
    index.search(rows[0].tolist(), 1)  # as its recall is measured
    with pytest.raises(StoreRefused, match="uses the distance l2"):
        index.search(rows[0].tolist(), 1, similarity="inner_product")
    postgres.table("made_again", rows[:3], index="vector_ip_ops")
    assert index.search(rows[0].tolist(), 1, similarity="inner_product")[0].id == "o0"
    postgres.table("bare", np.zeros((0, 3), dtype=np.float32))
    with pytest.raises(StoreRefused, match="holds vectors with 3 dimensions"):
        opened("bare").search([1.0, 0.0], 1)
    assert opened("bare").search([1.0, 0.0, 0.0], 1) == []


def test_a_table_without_an_index_is_asked_by_the_distance_of_the_ranking(
    postgres: Postgres, opened: Opening
) -> None:
    lengths = np.array([[1, 0], [3, 0], [9, 0]], dtype=np.float32)
    postgres.table("no_index", lengths)
    for similarity, order in (("inner_product", "210"), ("squared_euclidean", "102")):
        found = opened("no_index").search([4.0, 0.0], 3, similarity=similarity)
        assert [one.id for one in found] == [f"o{number}" for number in order], similarity
    postgres.table("two_indexes", lengths, index="vector_l2_ops")
    postgres.execute("CREATE INDEX ON two_indexes USING hnsw (embedding vector_ip_ops)")
    both = opened("two_indexes")
    assert both.search([4.0, 0.0], 1)[0].id == "o1"
    assert both.search([4.0, 0.0], 1, similarity="inner_product")[0].id == "o2"
    assert both.search([4.0, 0.0], 1, similarity="squared_euclidean")[0].id == "o1"


def test_a_row_of_zeros_has_no_cosine_and_is_no_hit(postgres: Postgres, opened: Opening) -> None:
    rows = np.array([[0, 0], [1, 0], [1, 1], [0, 0], [0, 1]], dtype=np.float32)
    postgres.table("zeros", rows, tags=[["a"]] * 5, index="vector_cosine_ops")
    for tags, exact in itertools.product(([], ["a"]), (False, True)):
        found = opened("zeros").search([1.0, 0.0], 200, tags, exact=exact, similarity="inner_product")
        assert [one.id for one in found] == ["o1", "o2", "o4"]


def test_a_question_keeps_what_it_knows_of_the_table_while_others_forget_it(
    postgres: Postgres, opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.table("forgotten", np.eye(2, dtype=np.float32))
    forgetting = property(lambda index: None, lambda index, shape: None)
    monkeypatch.setattr(PgVectorIndex, "_shape", forgetting, raising=False)
    assert opened("forgotten").search([1.0, 0.0], 1)[0].id == "o0"


def test_a_store_that_is_away_is_told_in_time_and_found_again(opened: Opening) -> None:
    with tempfile.TemporaryDirectory(prefix="tripletd-pg-") as folder:
        server = started(Path(folder) / "data")
        try:
            server.table("items", np.eye(3, dtype=np.float32))
            index = opened("items", uri=server.uri, timeout_s=2.0)
            until(lambda: answers(index))
            server.stop()
            for _ in range(2):
                with pytest.raises(StoreAway, match="does not answer"):
                    index.search([0.0, 1.0, 0.0], 1)
            server.start()
            until(lambda: answers(index))
        finally:
            server.close()


def answers(index: PgVectorIndex) -> bool:
    """Whether it does in its time, which is short in these tests."""
    try:
        return index.search([0.0, 1.0, 0.0], 1)[0].id == "o1"
    except StoreAway:
        return False


def test_a_table_that_is_locked_keeps_nobody(postgres: Postgres, opened: Opening) -> None:
    postgres.table("locked", np.eye(3, dtype=np.float32))
    index = opened("locked", timeout_s=1.0)
    until(lambda: answers(index))
    with psycopg.connect(postgres.uri) as other:
        other.execute("LOCK TABLE locked")
        with pytest.raises(StoreAway, match="statement timeout"):
            index.search([0.0, 1.0, 0.0], 1)
    until(lambda: answers(index))


def test_numbers_as_pgvector_reads_them() -> None:
    assert text_of([0.1, -2.0, 1e-30], "vector(3)") == "[0.1,-2.0,1e-30]"
    assert text_of({"indices": [0, 4], "values": [1.5, 2.0]}, "sparsevec(5)") == "{1:1.5,5:2.0}/5"
    assert json.loads(text_of([np.float32(0.1).item()], "vector(1)"))[0] == np.float32(0.1)


ENDLESS = """
import signal, sys
from pathlib import Path
from tests.harness.postgres import started
print(started(Path(sys.argv[1]) / "data").server.get_pid(), flush=True)
signal.pause()
"""


def test_the_server_of_a_test_ends_with_it_also_by_a_signal() -> None:
    with tempfile.TemporaryDirectory(prefix="tripletd-pg-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen([sys.executable, "-c", ENDLESS, folder], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            server = int(process.stdout.readline())
            assert " (postgres) " in Path(f"/proc/{server}/stat").read_text()
        finally:
            process.terminate()
            process.communicate()
        until(lambda: stands_still(server, "ZX"), "the server has ended")
