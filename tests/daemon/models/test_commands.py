"""The verbs of `tripletd models` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoints import aliases
from daemon.cli import main
from daemon.exits import EX_DATAERR, EX_OK, EX_USAGE

from .shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tripletd.toml").write_text("[space.views.x]\ndim = 3\n[checkpoints]\nkeep = 2\n")
    return Shelf(tmp_path / "checkpoints", count=6)


def names(shelf: Shelf) -> dict[str, int]:
    return aliases(shelf.ledger.entries())


def test_the_verbs_move_names_and_tell_how(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in (
        (("promote", "3"), "stable: version 0 -> version 3 (entry 1)"),
        (("promote", "latest", "--reason", "the newest"), "stable: version 3 -> version 5 (entry 2)"),
        (("rollback", "--dry-run"), "stable: version 5 -> version 3 (would be)"),
        (("rollback",), "stable: version 5 -> version 3 (entry 3)"),
        (("promote", "4", "-a", "canary"), "canary: no version -> version 4 (entry 4)"),
        (("pin", "monday", "stable"), "monday: no version -> version 3 (entry 5)"),
        (("unpin", "monday"), "monday: taken away, was version 3 (entry 6)"),
    ):
        assert main(("models", *words)) == EX_OK
        assert capsys.readouterr().out.strip() == expected
    assert names(shelf) == {"stable": 3, "canary": 4}
    second = shelf.ledger.entries()[1]
    assert second.reason == "the newest"
    assert second.by.startswith("tripletd models")


def test_json_is_one_document(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("models", "promote", "3", "--json")) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["alias"], told["before"], told["after"], told["entry"]["n"]) == ("stable", 0, 3, 1)
    assert main(("models", "gc", "--dry-run", "--json")) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["gone"], told["kept"]["3"], told["dry_run"]) == ([1, 2], ["stable"], True)
    assert shelf.versions.versions() == list(range(6))


def test_gc_tells_what_stays_and_why(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("models", "pin", "monday", "1")) == EX_OK
    capsys.readouterr()
    assert main(("models", "gc", "--keep", "3")) == EX_OK
    told = capsys.readouterr().out
    assert told.startswith("deleted 2 (")
    assert [line.strip().split(maxsplit=1) for line in told.splitlines()[2:]] == [
        ["0", "version 0"],
        ["1", "monday"],
        ["3", "newest"],
        ["4", "newest"],
        ["5", "newest"],
    ]
    assert shelf.versions.versions() == [0, 1, 3, 4, 5]


def test_refusals_are_told_with_a_remedy(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.spoil_state(2)
    for words, code, told, remedy in (
        (("promote", "9"), EX_USAGE, "there is no version 9", "models list"),
        (("promote", "2"), EX_DATAERR, "version 2 does not load", "older ones are not affected"),
        (("promote", "3", "--alias", "best"), EX_USAGE, "best is the validator's choice", "`stable`"),
        (("rollback",), EX_USAGE, "never promoted", "--to N"),
        (("unpin", "nobody"), EX_USAGE, "no version of its own", "models list"),
        (("gc", "--keep", "1"), EX_USAGE, "greater than or equal to 2", "--help"),
    ):
        assert main(("models", *words)) == code
        err = capsys.readouterr().err
        assert told in err
        assert remedy in err
        assert "Traceback" not in err, err
    assert names(shelf) == {}


def test_a_lost_entry_is_told_when_the_name_is_moved(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("models", "promote", "3")) == EX_OK
    shelf.spoil_entry(shelf.says("PROMOTE", 4, "stable"))
    capsys.readouterr()
    assert main(("models", "list")) == EX_OK
    told = capsys.readouterr().err
    assert "0000000002.json" in told
    assert "stable is in doubt" in told
    assert "it means version 3 until its next move" in told
    assert main(("models", "promote", "5")) == EX_OK
    told = capsys.readouterr()
    assert "cannot be read (2) may have moved stable" in told.err
    assert "stable: version 3 -> version 5" in told.out
    assert main(("models", "list")) == EX_OK
    assert "stable is in doubt" not in capsys.readouterr().err
    assert main(("models", "gc")) == EX_DATAERR
    assert "restore the entry" in capsys.readouterr().err


def test_a_damaged_entry_is_written_off_and_gc_goes_on(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in (1, 2, 3):
        assert main(("models", "promote", str(version), "-a", "canary")) == EX_OK
    shelf.spoil_entry(2)
    assert main(("models", "gc")) == EX_DATAERR
    assert "tripletd models write-off" in capsys.readouterr().err
    assert main(("models", "write-off")) == EX_OK
    assert "entry 2: ledger/0000000002.json" in capsys.readouterr().out
    assert main(("models", "write-off", "3")) == EX_USAGE
    assert "those that cannot: 2" in capsys.readouterr().err
    assert main(("models", "write-off", "2", "--reason", "no copy")) == EX_OK
    assert capsys.readouterr().out.strip() == "entry 2: written off"
    assert main(("models", "gc")) == EX_OK
    assert main(("models", "write-off", "--json")) == EX_OK
    assert capsys.readouterr().out.endswith("[]\n")
    assert names(shelf) == {"canary": 3}
