"""`tripletd feed --mapping` from the command line: into a log, twice; what is said of unknown tables."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from daemon.cli import main
from streams.feed.mapping.mapping import recipe_text

from .test_feed_command import account, events_of, impressions_of, tripletd

SAMPLE = Path(__file__).parents[1] / "streams" / "feed" / "samples" / "ga4.jsonl"


@pytest.fixture
def events(tmp_path: Path) -> str:
    """The sample of GA4 as Parquet."""
    rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "events.parquet")
    return str(tmp_path / "events.parquet")


@pytest.fixture
def lists(tmp_path: Path) -> str:
    """Two lists of one session, and one whose query is no object; the mapping takes the session as the id."""
    rows = [
        {"session": "s1", "q": query, "ts": 1_790_000_000_000 + n, "shown": ["a", "b"], "clicked": ["b"]}
        for n, query in enumerate(("q", "q", "desk lamp"))
    ]
    rows[2]["session"] = "s2"
    path = str(tmp_path / "lists.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    keys = {"id": "session", "query": "q", "time": "ts", "shown": "shown", "clicked": "clicked"}
    lines = ['rows = "impressions"', *(f'{key} = "{column}"' for key, column in keys.items())]
    Path(f"{path}.toml").write_text("\n".join(lines))
    return path


def test_a_table_is_fed_and_again(tmp_path: Path, events: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "clicks.log"
    words = ["feed", events, "--mapping", "ga4", "--to", f"log:{log}", "--json", "--holdout-share", "0.4"]
    assert main(words) == 0
    said = capsys.readouterr()
    account = json.loads(said.out)
    assert account["read"] == 3 == account["training"] + account["holdout"] + account["dropped"]["no_click"]
    assert account["ignored"] == {"other_row": 3, "click_not_shown": 1}
    assert "ignored: other_row 3, click_not_shown 1" in said.err
    first = {event.id for event in events_of(f"log:{log}")} | {one.id for one in impressions_of(log)}
    assert len(first) == len(events_of(f"log:{log}")) + len(impressions_of(log))
    copied = tmp_path / "mine.toml"
    copied.write_text(recipe_text("ga4"))
    assert main(["feed", events, "--mapping", str(copied), *words[4:]]) == 0
    assert {event.id for event in events_of(f"log:{log}")} | {one.id for one in impressions_of(log)} == first


def test_lines_come_from_a_pipe_too() -> None:
    packed = gzip.compress(SAMPLE.read_bytes())
    fed = account(
        tripletd("-", "--mapping", "ga4", "--dry-run", "--json", "--to", "log:unused", stdin=packed)
    )
    assert (fed["read"], fed["dropped"]) == (3, {"no_click": 1})


def test_a_dry_run_explains_every_row(events: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feed", events, "--mapping", "ga4", "--dry-run", "--explain"]) == 0
    said = capsys.readouterr().err
    assert f"{events}:row 9: ignored, click_not_shown: object 'lamp-7'" in said
    assert f"{events}:row 1: ignored, other_row: event_name 'session_start'" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 64, "no click log is given"),
        (["EVENTS", "--mapping", "ga4", "--format", "ubi"], 64, "exclude each other"),
        (["EVENTS", "--mapping", "ubi", "--ubi-click", "add_to_cart"], 64, "say nothing to a mapping"),
        (["EVENTS", "--mapping", "ubi", "--ubi-query", "query"], 64, "change query and click there"),
        (["--show-mapping", "ga5"], 64, "did you mean ga4?"),
        (["EVENTS", "--mapping", "ga5"], 65, "did you mean ga4?"),
        (["EVENTS", "--mapping", "none.toml"], 65, "none.toml cannot be read"),
        (["EVENTS"], 65, "event_name (string)"),
        (["EVENTS"], 65, "it looks like that of ga4: add --mapping ga4"),
        (["LISTS"], 65, "`tripletd init` writes one of your files. A row for each list needs five lines"),
        (["LISTS", "--mapping", "LISTS.toml", "--explain"], 0, "the id was fed before: leave `id` out of"),
        (["LISTS", "--mapping", "LISTS.toml", "--explain"], 0, "also where it is a query: a mapping carries"),
        (["EVENTS", "--mapping", "segment"], 65, "columns: event_date"),
        (["none.parquet", "--mapping", "ga4"], 65, "none.parquet does not exist"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(
    events: str, lists: str, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"EVENTS": events, "LISTS": lists, "LISTS.toml": f"{lists}.toml"}
    given = [names.get(word, word) for word in words]
    if "LISTS.toml" in words:
        catalog = Path(lists).with_name("items.jsonl")
        catalog.write_text("".join(json.dumps({"id": one, "x": [1.0, 2.0]}) + "\n" for one in "abq"))
        given += ["--catalog", str(catalog), "--set", "space.views.x.dim=2"]
    assert main(["feed", *given, "--to", "log:unused", "--dry-run"]) == code
    assert said in capsys.readouterr().err


def test_a_mapping_that_comes_along_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feed", "--show-mapping", "snowplow"]) == 0
    assert capsys.readouterr().out == recipe_text("snowplow")
