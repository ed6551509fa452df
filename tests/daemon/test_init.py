"""`tripletd init`: from somebody's files to a configuration that `check` and `feed` take."""

from __future__ import annotations

import csv
import json
import os
import shlex
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_OK, EX_USAGE
from streams.feed.mapping.mapping import read_mapping

DIM, PRODUCTS, LISTS = 384, 120, 60
NOW = 1_790_000_000_000
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def products(dim: int = DIM) -> Rows:
    rng = np.random.default_rng(1)
    return [
        {"sku": f"p{n}", "name": f"lamp {n}", "category": "lamps", "embedding": rng.normal(size=dim).tolist()}
        for n in range(PRODUCTS)
    ]


def lists() -> Rows:
    """A row per shown list, as a search keeps it: the query is a product, too."""
    rng = np.random.default_rng(2)
    rows = []
    for n in range(LISTS):
        query, *shown = (f"p{one}" for one in rng.choice(PRODUCTS, 11, replace=False))
        clicked = sorted(rng.choice(10, 2, replace=False).tolist())
        rows.append(
            {
                "session_id": f"s{n // 3}",
                "query": query,
                "results": shown,
                "clicks": [shown[one] for one in clicked],
                "positions": clicked,
                "ts": NOW + n * 1000,
            }
        )
    return rows


def objects() -> Rows:
    """A row per shown object."""
    return [
        {
            "search_id": f"q{n}",
            "query": row["query"],
            "product": one,
            "position": place,
            "clicked": int(one in row["clicks"]),
            "time": "2026-09-21T10:00:00",
        }
        for n, row in enumerate(lists())
        for place, one in enumerate(row["results"])
    ]


def parquet(path: str, rows: Rows) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def jsonl(path: str, rows: Iterable[dict[str, Any]]) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def csv_file(path: str, rows: Rows) -> str:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(
            {key: "|".join(map(str, one)) if isinstance(one, list) else one for key, one in row.items()}
            for row in rows
        )
    return path


def commands(said: str) -> list[list[str]]:
    """Those that are to be typed next."""
    return [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  tripletd ")]


@pytest.mark.parametrize(
    "name", ["user_id", "visitor", "event.client_id", "userpseudoid", "country", "user_agent"]
)
@pytest.mark.parametrize("rows", [lists, objects])
def test_who_clicked_is_recognized_by_the_name_of_its_column(name: str, rows: Callable[[], Rows]) -> None:
    parquet("shop.parquet", products())
    parquet("clicks.parquet", [{**row, name: f"u{n // 7}"} for n, row in enumerate(rows())])
    assert main(["init"]) == EX_OK
    mapping = read_mapping(Path("clicks.mapping.toml").read_text(), "it")
    is_known = name not in ("country", "user_agent")
    assert (None if mapping.source is None else mapping.source.text) == (name if is_known else None)
    assert mapping.query.text == "query"


def test_numbers_with_gaps_are_not_who_clicked() -> None:
    """As pandas writes ids of which some are missing: `feed` would take none of them."""
    parquet("shop.parquet", products())
    parquet("clicks.parquet", [{**row, "user_id": n / 2} for n, row in enumerate(lists())])
    assert main(["init"]) == EX_OK
    assert read_mapping(Path("clicks.mapping.toml").read_text(), "it").source is None


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: (parquet("shop.parquet", products()), parquet("clicks.parquet", lists())), "impressions"),
        (lambda: (jsonl("shop.jsonl", products()), jsonl("clicks.jsonl", lists())), "impressions"),
        (lambda: (parquet("shop.parquet", products()), csv_file("clicks.csv", lists())), "impressions"),
        (lambda: (parquet("shop.parquet", products()), parquet("clicks.parquet", objects())), "shown"),
        (lambda: (jsonl("shop.jsonl", products()), csv_file("clicks.csv", objects())), "shown"),
    ],
    ids=["parquet lists", "lines", "csv lists", "parquet rows", "csv rows"],
)
def test_own_files_are_checked_and_fed_by_the_commands_that_it_prints(
    make: Callable[[], tuple[str, str]], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog, _ = make()
    assert main(["init"]) == EX_OK
    told = capsys.readouterr()
    assert told.err == ""
    config = load_config(Path("tripletd.toml"), environ={})
    assert (config.catalog.path, config.space.views["x"].dim) == (str(Path(catalog).resolve()), DIM)
    columns = config.catalog.columns
    assert (columns.id, columns.x, columns.title, columns.tags) == ("sku", "embedding", "name", ["category"])
    mapping = read_mapping(Path("clicks.mapping.toml").read_text(), "it")
    assert mapping.rows == kind
    assert mapping.query.text == "query"
    assert not (kind == "impressions" and mapping.id)  # one of three lists of a session would be left
    check, feed, up = commands(told.out)
    assert up == ["up"]
    assert main(check) == EX_OK, capsys.readouterr().out
    capsys.readouterr()
    assert main([*feed, "--dry-run", "--json"]) == EX_OK
    fed = json.loads(capsys.readouterr().out)
    assert fed["read"] == fed["training"] + fed["holdout"] == LISTS, fed


def single(click: Callable[[list[str], int], Any]) -> Rows:
    """A row per list with one click, and every fifth without; the title is words that are no ids."""
    return [
        {
            "query": row["query"],
            "results": row["results"],
            "title": f"lamp {n}",
            "first": row["results"][0],
            "page": 1,
            "clicked": click(row["results"], row["positions"][0]) if n % 5 else None,
            "ts": row["ts"],
        }
        for n, row in enumerate(lists())
    ]


KINDS = {
    "id": (lambda shown, at: shown[at], {"clicked": "clicked"}),
    "place from 0": (lambda shown, at: at, {"clicked_positions": "clicked"}),
    "place from 1": (lambda shown, at: at + 1, {"clicked_positions": "clicked", "first_position": 1}),
    "ids with |": (lambda shown, at: "|".join(shown[at : at + 1 + at % 2]), {"clicked": "clicked"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", [jsonl, parquet, csv_file])
def test_a_log_with_a_single_click_in_a_row_is_recognized(
    kind: str, write: Callable[[str, Rows], str], capsys: pytest.CaptureFixture[str]
) -> None:
    click, keys = KINDS[kind]
    log = write({jsonl: "a.jsonl", parquet: "a.parquet", csv_file: "a.csv"}[write], single(click))
    assert main(["init", parquet("shop.parquet", products(4)), log]) == EX_OK
    check, feed, _ = commands(capsys.readouterr().out)
    text = Path("a.mapping.toml").read_text()
    mapping = tomllib.loads(text)
    assert {key: mapping.get(key) for key in (*keys, "rows", "shown", "query", "time")} == keys | {
        "rows": "impressions",
        "shown": "results",
        "query": "query",
        "time": "ts",
    }
    assert main(check) == EX_OK
    capsys.readouterr()
    assert main([*feed, "--dry-run", "--json"]) == EX_OK
    fed = json.loads(capsys.readouterr().out)
    unclicked = fed["dropped"].pop("no_click")
    assert (fed["read"], unclicked) == (LISTS, LISTS // 5), fed
    assert fed["training"] + fed["holdout"] == LISTS - unclicked, fed
    assert main(["init", log, "--out", "alone"]) == EX_OK  # without knowing the ids of the catalog
    assert Path("alone/a.mapping.toml").read_text() == text


def test_fields_of_ours_with_a_single_click_are_a_log_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"ts": NOW + n, "q": f"p{n}", "shown": ["a", "b", "c"], "clicked": "b"} for n in range(9)]
    assert main(["init", parquet("shop.parquet", products(4)), jsonl("clicks.jsonl", rows)]) == EX_OK
    _, feed, _ = commands(capsys.readouterr().out)
    assert feed == ["feed", "clicks.jsonl", "--mapping", "clicks.mapping.toml", "--explain"]
    mapping = read_mapping(Path("clicks.mapping.toml").read_text(), "it")
    assert (mapping.query.text, mapping.clicked and mapping.clicked.text) == ("q", "clicked")


@pytest.mark.parametrize(
    "row",
    [
        {"sku": "p1", "tags": ["lamp", "red"], "category": "lamp", "size": 1},
        {
            "search_id": "q1",
            "query": "p2",
            "product": "red lamp",
            "brand": "red",
            "position": 1,
            "clicked": 1,
        },
    ],
    ids=["tags", "a row per object"],
)
def test_a_word_that_is_in_another_column_is_no_click(row: dict[str, Any]) -> None:
    path = jsonl("rows.jsonl", [row | {"time": NOW + n} for n in range(30)])
    assert main(["init", path]) == EX_OK
    written = Path("rows.mapping.toml")
    assert not written.exists() or 'rows = "shown"' in written.read_text()


def test_logs_are_fed_together_where_their_columns_mean_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shop = Path("my shop")
    (shop / "older").mkdir(parents=True)
    native = [{"id": "v1", "ts": NOW, "q": "p1", "shown": ["p2", "p3"], "clicked": [1]}]
    older, newer = (
        [{"query": q, "clicked": f"p{n}", "skipped": "p3"} for n in range(4, 9)] for q in ("p1", "p2")
    )
    raw = [
        {"event": "impression", "impression": "i", "ts": NOW, "query": "p1", "shown": ["p2", "p3"]},
        {"event": "click", "impression": "i", "ts": NOW + 1, "object": "p3"},
    ]
    files = [
        parquet(f"{shop}/products.parquet", products(4)),
        jsonl(f"{shop}/native.jsonl", native),
        csv_file(f"{shop}/c.csv", newer),
        parquet(f"{shop}/c.parquet", lists()),
        jsonl(f"{shop}/raw.jsonl", raw),
        csv_file(f"{shop}/older/c's.csv", older),
        parquet(f"{shop}/older/c.parquet", objects()),
        parquet(f"{shop}/-c.parquet", [row | {"ts": row["ts"] + 1} for row in lists()]),
    ]
    assert main(["init", *files, "--out", str(shop)]) == EX_OK
    said = capsys.readouterr().out
    assert "\n  cd 'my shop'\n" in said
    os.chdir(shop)
    check, *feeds, up = commands(said)
    assert (check, up) == (["check"], ["up"])
    groups = {
        ("native.jsonl",): (None, 1),
        ("c.csv", "older/c's.csv"): ("c.mapping.toml", 10),
        ("c.parquet", "./-c.parquet"): ("c-2.mapping.toml", 2 * LISTS),
        ("raw.jsonl",): ("http", 1),
        ("older/c.parquet",): ("c-3.mapping.toml", LISTS),
    }
    for feed, (logs, (mapping, read)) in zip(feeds, groups.items(), strict=True):
        assert feed == ["feed", *logs, *(["--mapping", mapping] if mapping else []), "--explain"]
        assert main([*feed, "--dry-run", "--json"]) == EX_OK
        fed = json.loads(capsys.readouterr().out)
        assert fed["read"] == read, fed
        assert not fed["dropped"], fed


@pytest.mark.parametrize("arguments", [[], ["--out", "\udcff"]], ids=["file", "folder"])
def test_a_name_that_is_not_utf_8_ends_it_before_anything_is_written(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("vectors.npy" if arguments else os.fsdecode(b"o\xff.npy"), np.eye(8, dtype=np.float32))
    before = sorted(os.listdir())
    assert main(["init", *arguments]) == EX_DATAERR
    assert "is not UTF-8\n  rename it" in capsys.readouterr().err
    assert sorted(os.listdir()) == before


def test_a_line_break_in_a_name_stays_in_its_comment() -> None:
    assert main(["init", jsonl("a\nb.jsonl", lists()), jsonl("no\nlog.jsonl", [{"a": 1}])]) == EX_OK
    load_config(Path("tripletd.toml"), environ={})
    assert read_mapping(next(Path().glob("*.mapping.toml")).read_text(), "it").rows == "impressions"


def test_the_files_of_the_quickstart_need_no_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    things = [{"id": f"t{n}", "x": [float(n), 1.5, 2.0]} for n in range(30)]
    jsonl("items.jsonl", things)
    jsonl("display.jsonl", [{"id": f"t{n}", "title": f"thing {n}"} for n in range(30)])
    jsonl("clicks.jsonl", [{"id": "v1", "ts": NOW, "q": "t1", "shown": ["t2", "t3"], "clicked": [1]}])
    Path("labels.tsv").write_text("".join(f"t{n}\tround\n" for n in range(30)))
    assert main(["init"]) == EX_OK
    config = load_config(Path("tripletd.toml"), environ={})
    assert [Path(one).name for one in (config.catalog.path, config.serve.display)] == [
        "items.jsonl",
        "display.jsonl",
    ]
    assert config.validate.judgments == f"labels:{Path('labels.tsv').resolve()}"
    assert not config.catalog.columns.id
    check, feed, _ = commands(capsys.readouterr().out)
    assert "--mapping" not in feed
    assert main(check) == EX_OK
    assert main([*feed, "--dry-run"]) == EX_OK


def test_arrays_and_a_log_that_a_ready_mapping_reads(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("vectors.npy", np.eye(8, 5, dtype=np.float32))
    Path("vectors.ids.txt").write_text("".join(f"p{n}\n" for n in range(8)))
    jsonl(
        "raw.jsonl",
        [
            {"event": "impression", "impression": "i", "ts": NOW, "query": "p1", "shown": ["p2", "p3"]},
            {"event": "click", "impression": "i", "ts": NOW + 1, "object": "p3"},
        ],
    )
    assert main(["init", "vectors.npy", "raw.jsonl"]) == EX_OK
    check, feed, _ = commands(capsys.readouterr().out)
    assert feed[feed.index("--mapping") + 1] == "http"
    assert main(check) == EX_OK
    assert main([*feed, "--dry-run"]) == EX_OK


def test_what_cannot_be_told_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": row["session_id"], "results": row["results"], "clicks": row["clicks"]} for row in lists()]
    assert main(["init", parquet("shop.parquet", products()), parquet("clicks.parquet", rows)]) == EX_OK
    assert "say which column is time and which is query" in capsys.readouterr().err
    text = Path("clicks.mapping.toml").read_text()
    assert '# time = "COLUMN"        # not recognized: name the column' in text
    assert "a (text)" in text


def test_a_query_that_is_no_object_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"query": f"desk lamp {n}"} for n, row in enumerate(lists())]
    assert main(["init", parquet("shop.parquet", products()), jsonl("clicks.jsonl", rows)]) == EX_OK
    assert "queries such as 'desk lamp 0'" in capsys.readouterr().err
    assert "a query is an object and needs a vector" in Path("tripletd.toml").read_text()


def test_nothing_is_overwritten_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    files = [parquet("shop.parquet", products(8)), jsonl("clicks.jsonl", lists())]
    assert main(["init", *files, "--dry-run"]) == EX_OK
    assert "[space.views.x]\ndim = 8\n" in capsys.readouterr().out
    assert not Path("tripletd.toml").exists()
    Path("clicks.mapping.toml").write_text("mine")
    assert main(["init", *files]) == EX_CANTCREAT
    assert "clicks.mapping.toml: already exists" in capsys.readouterr().err
    assert not Path("tripletd.toml").exists()
    assert main(["init", *files, "--force"]) == EX_OK
    assert Path("clicks.mapping.toml").read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], EX_USAGE, "no file with objects or clicks in"),
        (["gone.parquet"], EX_DATAERR, "gone.parquet: no such file"),
        (["empty.jsonl"], EX_DATAERR, "empty.jsonl is empty"),
        (["bad.parquet"], EX_DATAERR, "bad.parquet cannot be read"),
        (["bad.npy"], EX_DATAERR, "bad.npy: not an array"),
    ],
)
def test_what_cannot_be_looked_at_is_told(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments:
        for name in ("empty.jsonl", "bad.parquet", "bad.npy"):
            Path(name).write_text("" if name == "empty.jsonl" else "no")
    assert main(["init", *arguments]) == code
    assert said in capsys.readouterr().err
