"""`tripletd feed` from the command line into a real embedded log, read back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from streams.codec import decode_event, decode_impression
from streams.event import PAIR_BELOW, PAIR_SIDES, Draft, DraftModel, Event, Impression, ObjectRef
from streams.open import ensure_topic, open_source
from streams.signed_lists import SignedList, sign_list
from streams.source import parse_address
from tests.harness import forked


def tripletd(
    *words: str, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return forked.run([*COMMAND, *words], input=stdin, capture_output=True, cwd=cwd, check=False, timeout=120)


COMMAND = [sys.executable, "-m", "daemon", "feed"]


def read_all(address: str) -> list[bytes]:
    source = open_source(parse_address(address))
    source.assign({partition: earliest for partition, (earliest, _) in source.bounds().items()})
    values: list[bytes] = []
    while batch := source.poll(10_000, 0.0):
        values += [value for value in batch.values if value is not None]
    source.close()
    return values


def events_of(address: str) -> list[Event]:
    return [decode_event(value) for value in read_all(address)]


def impressions_of(log: Path) -> list[Impression]:
    """Those that are held out."""
    found = (decode_impression(value) for value in read_all(f"log:{log}#triplets.holdout"))
    return [one for one in found if not one.trained]


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """300 impressions over 40 queries, and a torn line."""
    draw = random.Random(3)
    lines = []
    for number in range(300):
        shown = [f"p{one}" for one in draw.sample(range(50), 6)]
        clicked = [rank for rank in range(6) if draw.random() < 0.3]
        line = {"id": f"i{number}", "ts": 1000 + number, "q": f"q{draw.randrange(40)}", "shown": shown}
        lines.append(json.dumps({**line, "clicked": clicked}))
    lines.insert(100, "{torn")
    path = tmp_path / "clicks.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def account(result: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


def test_feed_into_the_log_and_again(tmp_path: Path, clicks: Path) -> None:
    log = tmp_path / "clicks.log"
    few = ("--triplets-per-impression", "3")
    words = (str(clicks), "--to", f"log:{log}", "--json", "--holdout-share", "0.3", *few)
    first = account(tripletd(*words))
    events, held = events_of(f"log:{log}"), impressions_of(log)
    assert first["complete"]
    assert first["read"] == 301 == first["training"] + first["holdout"] + sum(first["dropped"].values())
    assert first["dropped"]["malformed:not_json"] == 1
    assert (first["triplets"], first["holdout"]) == (len(events), len(held))
    assert first["triplets"] == first["from_pairs"] + first["random_negatives"]
    assert first["pairs"] == first["from_pairs"] + first["capped_pairs"]
    assert first["capped_pairs"] > 0
    assert 0 < first["below"] == sum(event.pair & PAIR_SIDES == PAIR_BELOW for event in events)
    assert first["below"] < first["from_pairs"]
    assert {event.query.id for event in events}.isdisjoint(one.query.id for one in held)
    assert len({event.id for event in events}) == len(events)
    again = account(tripletd(*words))
    assert again == first
    assert events_of(f"log:{log}")[len(events) :] == events


def test_the_cap_is_an_option_and_reported(tmp_path: Path, clicks: Path) -> None:
    words = (str(clicks), "--dry-run", "--to", f"log:{tmp_path / 'x.log'}", "--triplets-per-impression")
    one, none = tripletd(*words, "1", "--explain", "--json"), tripletd(*words, "0", "--json")
    told, whole = account(one), account(none)
    assert told["pairs"] == whole["pairs"] == whole["from_pairs"] > told["from_pairs"]
    assert told["random_negatives"] == whole["random_negatives"]
    assert f"({told['capped_pairs']:,} more pairs capped)" in one.stderr.decode()
    assert f"{told['below']:,} of them with an object below the click" in one.stderr.decode()
    assert "pairs over the cap" in one.stderr.decode()
    assert "capped" not in none.stderr.decode()


@pytest.mark.parametrize(("ts", "told"), [(1_700_000_000, True), (1_700_000_000_000, False)])
def test_times_that_look_like_seconds_are_told(tmp_path: Path, ts: int, told: bool) -> None:
    path = tmp_path / "clicks.jsonl"
    line = {"id": "i", "ts": ts, "q": {"x": [1.0]}, "shown": [{"x": [2.0]}, {"x": [3.0]}], "clicked": [1]}
    path.write_text(json.dumps(line) + "\n")
    result = tripletd(str(path), "--dry-run", "--to", f"log:{tmp_path / 'x.log'}", "--json")
    assert account(result)["training"] + account(result)["holdout"] == 1
    assert ("1 kept ones have times in early 1970" in result.stderr.decode()) == told


def test_dry_run_writes_nothing(tmp_path: Path, clicks: Path) -> None:
    log = tmp_path / "clicks.log"
    dry = account(tripletd(str(clicks), "--to", f"log:{log}", "--json", "--dry-run"))
    assert not log.exists()
    wet = account(tripletd(str(clicks), "--to", f"log:{log}", "--json"))
    assert {**dry, "dry_run": False} == wet


def test_explain_names_places_reasons_and_remedies(tmp_path: Path, clicks: Path) -> None:
    result = tripletd(str(clicks), "--to", f"log:{tmp_path / 'x.log'}", "--explain")
    told = result.stderr.decode()
    assert f"{clicks}:101: dropped, malformed:not_json" in told
    assert "write one JSON object per line" in told
    assert "fed to training" in told
    assert result.stdout == b""


def test_a_catalog_gives_the_negatives_and_knows_the_objects(tmp_path: Path, clicks: Path) -> None:
    names = [f"p{one}" for one in range(45)] + [f"q{one}" for one in range(40)] + ["never-shown"]
    catalog = tmp_path / "catalog.jsonl"
    catalog.write_text("".join(json.dumps({"id": one, "x": [1.0, 2.0]}) + "\n" for one in names))
    config = tmp_path / "tripletd.toml"
    config.write_text(
        '[stream]\naddress = "log:own.log#t"\npartitions = 3\n'
        '[space.views.x]\nkind = "dense"\ndim = 2\n[catalog]\npath = "catalog.jsonl"\n'
        '[feed]\nrule = "clicked_vs_random"\nrandom_negatives = 5\n'
    )
    told = account(tripletd(str(clicks), "--config", str(config), "--json"))
    events = events_of(f"log:{tmp_path / 'own.log'}#t")
    assert told["triplets"] == told["random_negatives"] == len(events)
    assert {event.skipped.id for event in events} == set(names)
    assert {event.clicked.id for event in events} <= set(names)


def test_stdin_and_an_existing_topic_keeps_its_partitions(tmp_path: Path, clicks: Path) -> None:
    address = f"log:{tmp_path / 'many.log'}"
    ensure_topic(parse_address(address), 4)
    told = account(tripletd("-", "--to", address, "--json", stdin=clicks.read_bytes()))
    assert len(events_of(address)) == told["triplets"] > 0


def test_relevance_table(tmp_path: Path) -> None:
    table = tmp_path / "table.tsv"
    table.write_text("red\ta\t3\nred\tb\t1\nblue\tc\t2\nblue\td\t2\n")
    address = f"log:{tmp_path / 'r.log'}"
    words = (str(table), "--format", "relevance", "--triplets", "50", "--to", address, "--holdout-share", "0")
    assert account(tripletd(*words, "--json"))["triplets"] == 50
    assert {event.query.id for event in events_of(address)} == set("abcd")


def test_labels_are_split_by_their_query_and_go_on_where_a_run_ended(tmp_path: Path) -> None:
    table, catalog = tmp_path / "labels.tsv", tmp_path / "objects.jsonl"
    table.write_text("".join(f"o{n}\tlabel {n % 3}\n" for n in range(60)))
    catalog.write_text("".join(json.dumps({"id": f"o{n}", "x": [n, 1]}) + "\n" for n in range(50)))
    words = (str(table), "--format", "labels", "--catalog", str(catalog), "--holdout-share", "0.3", "--json")
    whole = account(tripletd(*words, "--triplets", "400", "--to", f"log:{tmp_path / 'whole.log'}"))
    assert whole["dropped"] == {"unknown_object": 10}
    assert whole["training"] + whole["holdout"] == 400
    assert whole["triplets"] == whole["training"]
    held = {one.query.id for one in impressions_of(tmp_path / "whole.log")}
    events = events_of(f"log:{tmp_path / 'whole.log'}")
    assert held
    assert held.isdisjoint(event.query.id for event in events)
    pieces = f"log:{tmp_path / 'pieces.log'}"
    first = account(tripletd(*words, "--triplets", "150", "--to", pieces))
    account(tripletd(*words, "--triplets", "400", "--to", pieces, "--skip", str(first["items"])))
    assert [replace(event, ts=0) for event in events_of(pieces)] == [replace(event, ts=0) for event in events]


def test_labels_cannot_be_followed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feed", "--follow", "--format", "labels"]) == 64
    assert "takes what it does from the configuration alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("clicks.jsonl", "--to", "clicks.log"), 64, "not a stream address"),
        (("clicks.jsonl", "--rule", "skip-abov"), 64, "did you mean skip_above?"),
        (("clicks.jsonl", "--format", "json"), 64, "use one of impressions"),
        (("clicks.jsonl", "--catalog", "none.jsonl"), 78, "none.jsonl does not exist"),
        (("none.jsonl",), 65, "none.jsonl does not exist"),
        (("odd.jsonl",), 65, "name it with --format"),
        (("clicks.jsonl", "--holdout-share", "1.5"), 78, "feed.holdout_share"),
        (("clicks.jsonl", "--config", "none.toml"), 78, "none.toml"),
        ((), 64, "SOURCE"),
    ],
)
def test_mistakes_are_told_plainly(
    clicks: Path,
    words: tuple[str, ...],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(clicks.parent)
    Path("odd.jsonl").write_text('{"a": 1}\n')
    ended = main(["feed", *words])
    told = capsys.readouterr().err
    assert (ended, message in told) == (code, True), told
    assert "Traceback" not in told, told
    assert not Path("clicks.log").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_tells_how_far_it_came_and_skip_goes_on(
    tmp_path: Path, clicks: Path, number: signal.Signals
) -> None:
    address, whole = f"log:{tmp_path / 'a.log'}", f"log:{tmp_path / 'b.log'}"
    words = ["-", "--to", address, "--json"]
    process = forked.Popen(
        [*COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lines = clicks.read_bytes().splitlines(keepends=True)
    process.stdin.write(b"".join(lines[:150]))
    process.stdin.flush()
    nudges = iter(lines[150:])
    while not _has_records(address):
        # A batch is written once it is a second old and a further line comes.
        time.sleep(0.3)
        process.stdin.write(next(nudges))
        process.stdin.flush()
    os.kill(process.pid, number)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 75, told.decode()
    fed = json.loads(out)
    assert not fed["complete"]
    assert f"--skip {fed['items']}" in told.decode()
    assert len(events_of(address)) == fed["triplets"] > 0
    rest = b"".join(lines)
    account(tripletd("-", "--to", address, "--json", "--skip", str(fed["items"]), stdin=rest))
    account(tripletd("-", "--to", whole, "--json", stdin=rest))
    assert events_of(address) == events_of(whole)
    assert impressions_of(tmp_path / "a.log") == impressions_of(tmp_path / "b.log")


def _has_records(address: str) -> bool:
    try:
        return bool(read_all(address))
    except Exception:  # the topic is created by the process under test
        return False


def test_ubi_query_and_event_files_are_fed_together(tmp_path: Path) -> None:
    queries, events = tmp_path / "ubi_queries.jsonl", tmp_path / "ubi_events.jsonl"
    query = {"query_id": "1", "user_query": "shoes", "query_response_hit_ids": ["a", "b", "c"]}
    queries.write_text(json.dumps({**query, "timestamp": "2024-05-16T12:00:00Z"}) + "\n")
    attributes = {"object": {"object_id": "c"}, "position": {"ordinal": 3}}
    event = {"action_name": "click", "query_id": "1", "event_attributes": attributes}
    events.write_text(json.dumps({**event, "timestamp": "2024-05-16T12:00:05Z"}) + "\n")
    address = f"log:{tmp_path / 'u.log'}"
    words = (str(events), str(queries), "--to", address, "--holdout-share", "0", "--random-negatives", "0")
    account(tripletd(*words, "--json"))
    told = [(one.query.id, one.clicked.id, one.skipped.id) for one in events_of(address)]
    assert told == [("shoes", "c", "a"), ("shoes", "c", "b")]


def test_interleaved_lists_are_checked_with_the_configured_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the id that serve signs to the draft in the holdout: fresh, too old, and without a key."""
    secret, now = "0123456789abcdef0123456789abcdef", int(time.time() * 1000)
    draft = Draft((DraftModel("stable", 3, 10), DraftModel("latest", 7, 20)), (2, 0, 1))
    lines = []
    for made_ms in (now - 1000, now - 3_600_000):
        shown = ["a", "b", "c"]
        name = sign_list(secret.encode(), SignedList(made_ms, draft), ObjectRef("q"), shown, nonce=b"abc")
        lines.append(json.dumps({"id": name, "ts": now, "q": "q", "shown": shown, "clicked": ["a"]}))
    (tmp_path / "lists.jsonl").write_text("\n".join(lines))
    words = [
        "feed",
        str(tmp_path / "lists.jsonl"),
        "--holdout-share",
        "0.99",
        "--set",
        "interleaving.max_age=10m",
    ]
    monkeypatch.setenv("TRIPLETD_INTERLEAVING__KEY", secret)
    assert main([*words, "--to", f"log:{tmp_path}/signed.log"]) == 0
    assert [one.draft for one in impressions_of(tmp_path / "signed.log")] == [draft, None]
    told = " ".join(capsys.readouterr().err.split())
    assert "1 interleaved or explored lists with a valid signature; 1 made longer ago" in told
    monkeypatch.delenv("TRIPLETD_INTERLEAVING__KEY")
    assert main([*words, "--to", f"log:{tmp_path}/unsigned.log"]) == 0
    assert [one.draft for one in impressions_of(tmp_path / "unsigned.log")] == [None, None]
    assert "2 not checked" in " ".join(capsys.readouterr().err.split())
