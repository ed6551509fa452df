"""`tripletd deadletters`: what is shown of records that somebody else chose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.dead_letters import HEAD_BYTES
from daemon.exits import EX_OK, EX_UNAVAILABLE
from streams.log import source
from streams.open import ensure_topic, open_sink
from streams.poison import DeadLetter, dead_letter_record
from streams.source import OutRecord, parse_address

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command over a log with events alone."""
    monkeypatch.chdir(tmp_path)
    ensure_topic(parse_address("log:clicks.log"), 1)
    return ["deadletters", "--set", "stream.address=log:clicks.log"]


def refuse(*letters: DeadLetter, other: tuple[OutRecord, ...] = ()) -> None:
    dead = parse_address("log:clicks.log").dead
    ensure_topic(dead, 1)
    sink = open_sink(dead)
    sink.send([*map(dead_letter_record, letters), *other])
    sink.close()


def test_the_newest_are_shown_escaped(words: list[str], capsys: Capture) -> None:
    refuse(*(DeadLetter("triplets", 3, n, "not_msgpack", "why", b"\x1b[31m\\" + b"x" * n) for n in range(50)))
    assert main([*words, "--last", "2", "--json"]) == EX_OK
    first, second = json.loads(capsys.readouterr().out)
    assert (first["offset"], second["offset"], second["partition"]) == (48, 49, 3)
    assert (second["reason"], second["detail"], second["size"]) == ("not_msgpack", "why", 55)
    assert second["head"] == "\\x1b[31m\\x5c" + "x" * (HEAD_BYTES - 6)
    assert main(words) == EX_OK
    out = capsys.readouterr().out
    assert "triplets partition 3 offset 49  55 bytes" in out
    assert "not_msgpack: why" in out
    assert out.count("offset ") == 20
    assert "\x1b" not in out


def test_what_is_no_dead_letter_hides_no_other(
    words: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "now_ms", lambda: 2**60)  # the clock of whoever wrote it
    tombstone = DeadLetter("triplets", 0, 7, "null_value", "a\x1b[2Jb", None)
    refuse(tombstone, other=(OutRecord(b"odd", timestamp=2**60),))
    assert main(words) == EX_OK
    out = capsys.readouterr().out
    assert "offset 7  no value" in out
    assert "null_value: a\\x1b[2Jb" in out
    assert f"{2**60} ms  ?  3 bytes" in out
    assert "not a dead letter: header 'reason' is missing" in out


def test_none_yet_and_no_such_log(words: list[str], capsys: Capture) -> None:
    assert main(words) == EX_OK
    assert capsys.readouterr().out == "no dead letters\n"
    assert main(["deadletters", "--set", "stream.address=log:none.log"]) == EX_UNAVAILABLE
    assert not Path("none.log").exists()
