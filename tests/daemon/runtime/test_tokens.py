"""Tokens are made once, kept as hashes, and open what they were made for, for as long as they are kept."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_OK, EX_USAGE, UserError
from daemon.runtime.doors import (
    ASK,
    CLICK,
    LOOK_SECONDS,
    METRICS,
    PROMOTE,
    SCOPES,
    Gate,
    TokenFile,
    add_token,
    is_loopback,
    read_tokens,
    remove_token,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_only_a_hash_is_kept_and_for_its_owner_alone(path: Path) -> None:
    token = add_token(path, "shop", [ASK, CLICK], ["de"])
    other = add_token(path, "prometheus", [METRICS])
    assert token != other
    assert len(token) > 40
    assert token not in path.read_text()
    assert token.removeprefix("tpd_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = Gate(TokenFile(path)).grant(token.encode())
    assert found is not None
    assert (found.name, found.scopes, found.keys) == ("shop", {ASK, CLICK}, {"de"})
    assert [file.name for file in path.parent.iterdir()] == ["tokens.json"]


def test_several_are_good_at_a_time_and_each_is_taken_back_alone(path: Path) -> None:
    now = [0.0]
    old = add_token(path, "old", [ASK])
    file = TokenFile(path, clock=lambda: now[0])
    gate = Gate(file)
    new = add_token(path, "new", [ASK])
    now[0] += LOOK_SECONDS
    assert gate.grant(old.encode()) is not None
    assert gate.grant(new.encode()) is not None
    remove_token(path, "old")
    gate.reload()
    assert gate.grant(old.encode()) is None
    assert gate.grant(new.encode()) is not None


def test_a_slip_of_the_hand_changes_nothing_and_a_file_that_is_gone_opens_nothing(path: Path) -> None:
    token = add_token(path, "one", [ASK])
    gate = Gate(TokenFile(path), single="the-single-token-of-old")
    path.write_text("{")
    gate.reload()
    assert gate.grant(token.encode()) is not None
    path.unlink()
    gate.reload()
    assert gate.grant(token.encode()) is None
    assert ASK in gate.needed


def test_the_single_token_keeps_its_meaning_and_beside_a_file_opens_everything(path: Path) -> None:
    alone = Gate(single="the-single-token-of-old")
    assert alone.needed == {PROMOTE}
    assert not alone.shut
    found = alone.grant(b"the-single-token-of-old")
    assert found is not None
    assert found.scopes == {PROMOTE}
    add_token(path, "one", [ASK])
    beside = Gate(TokenFile(path), single="the-single-token-of-old")
    assert beside.needed == set(SCOPES)
    found = beside.grant(b"the-single-token-of-old")
    assert found is not None
    assert found.scopes == set(SCOPES)
    assert Gate().shut == {PROMOTE}
    assert Gate(writes="of-the-shop's-own-page").needed == {PROMOTE, CLICK}


@pytest.mark.parametrize(
    ("name", "scopes", "keys", "said"),
    [
        ("a b", [ASK], [], "is no name"),
        ("one", [ASK], [], "there is a token called one"),
        ("two", ["admin"], [], "no scope 'admin'"),
        ("two", [], [], "opens nothing"),
        ("two", [ASK, METRICS], ["de"], "metrics is about all keys"),
    ],
)
def test_what_makes_no_sense_is_refused(
    path: Path, name: str, scopes: list[str], keys: list[str], said: str
) -> None:
    add_token(path, "one", [ASK])
    with pytest.raises(UserError, match=said) as refused:
        add_token(path, name, scopes, keys)
    assert refused.value.code == EX_USAGE
    assert len(read_tokens(path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"tokens": [{"name": "a", "sha256": "00", "scopes": ["ask"]}]}',
        '{"tokens": [{"name": "a", "sha256": "%s", "scopes": "ask"}]}' % ("00" * 32),
        '{"tokens": [{"name": "a", "sha256": "%s", "scopes": ["promote"], "keys": ["k"]}]}' % ("00" * 32),
    ],
)
def test_a_file_of_something_else_is_refused_at_the_start(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UserError, match="is no file of tokens") as refused:
        TokenFile(path)
    assert refused.value.code == EX_CONFIG


def test_the_commands(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--set", f"http.tokens={path}"]
    assert (
        main(["tokens", "add", "shop", "--scope", "ask", "--scope", "click", "--key", "de", *where]) == EX_OK
    )
    token = capsys.readouterr().out.strip()
    assert Gate(TokenFile(path)).grant(token.encode()) is not None
    assert main(["tokens", "list", "--json", *where]) == EX_OK
    (row,) = json.loads(capsys.readouterr().out)["tokens"]
    assert (row["name"], row["scopes"], row["keys"]) == ("shop", ["ask", "click"], ["de"])
    assert main(["tokens", "list", *where]) == EX_OK
    assert "shop" in capsys.readouterr().out
    assert main(["tokens", "remove", "shop", *where]) == EX_OK
    assert main(["tokens", "remove", "shop", *where]) == EX_DATAERR
    assert main(["tokens", "list"]) == EX_CONFIG
    assert "http.tokens" in capsys.readouterr().err
    assert read_tokens(path) == []


def test_which_hosts_are_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "shop.example.org")))
