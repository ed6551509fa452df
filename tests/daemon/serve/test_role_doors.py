"""A role behind TLS and tokens: what it refuses to open, what a signal changes, who the ledger names."""

from __future__ import annotations

import json
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from checkpoints import Ledger
from daemon.cli import main
from daemon.config import load_config
from daemon.config.schema import UNPROTECTED
from daemon.exits import EX_CONFIG, EX_OK
from daemon.look.live import ServeStatus, status_at
from daemon.runtime.doors import add_token
from daemon.versions.storage import open_store
from tests.daemon.serve.test_role import Place
from tests.harness.waiting import until

DOORS = """tls_certificate = "server.pem"
tls_key = "server.key"
tokens = "tokens.json"
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.file.write_text(made.file.read_text() + DOORS)
    yield made
    made.end()


def issue(ca: trustme.CA, folder: Path) -> None:
    made = ca.issue_cert("localhost", "127.0.0.1")
    (folder / "server.key").write_bytes(made.private_key_pem.bytes())
    (folder / "server.key").chmod(0o600)
    (folder / "server.pem").write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))


def ask(url: str, context: ssl.SSLContext, token: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, sent, headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_tls_tokens_and_a_new_certificate_on_a_signal(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.look.live._TIMEOUT_S", 60.0)  # on a busy machine two seconds are soon over
    ca, path = trustme.CA(), place.folder / "tokens.json"
    issue(ca, place.folder)
    asking = add_token(path, "shop", ["ask"])
    promoting, metrics = add_token(path, "release-train", ["promote"]), add_token(path, "watch", ["metrics"])
    context = ssl.create_default_context()
    ca.configure_trust(context)
    place.feed(20, seed=1)
    place.learn()
    role = place.start("serve")
    url = role.url("https")
    port = int(url.rpartition(":")[2])
    until(lambda: ask(f"{url}/v1/similar?id=o1", context, asking)[0] == 200, role.said)
    assert ask(f"{url}/v1/similar?id=o1", context, "")[0] == 401
    assert ask(f"{url}/v1/similar?id=o1", context, promoting)[0] == 403
    assert ask(f"{url}/v1/similar?id=o1", context, asking)[0] == 200
    moved = ask(f"{url}/v1/models/promote", context, promoting, {"version": 0, "alias": "stable"})
    assert moved[0] == 200, moved
    entry = [one for one in ledger(place).entries() if one.n == moved[1]["entry"]][-1]
    assert entry.by == "release-train by HTTP from 127.0.0.1"
    # `status` asks with http.token
    http = load_config(place.file, environ={"TRIPLETD_HTTP__TOKEN": metrics}).http
    assert isinstance(status_at(http, port), ServeStatus)
    assert status_at(load_config(place.file, environ={}).http, port) is None
    for token, line in (("", "wants a token"), (asking, "wants a token"), (metrics, "running, 40 objects")):
        monkeypatch.setenv("TRIPLETD_HTTP__TOKEN", token)
        capsys.readouterr()
        words = ["status", "--config", str(place.file), "--set", f"http.serve_port={port}"]
        assert main(words) == EX_OK
        told = capsys.readouterr().out
        assert [one for one in told.splitlines() if one.startswith("serve ") and line in one], told

    def certificate() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)

    before = certificate()
    issue(ca, place.folder)
    assert certificate() == before
    role.process.send_signal(signal.SIGHUP)
    until(lambda: certificate() != before, role.said)
    assert ask(f"{url}/v1/similar?id=o1", context, asking)[0] == 200
    (place.folder / "server.pem").write_text("torn")
    role.process.send_signal(signal.SIGHUP)
    until(lambda: "the certificate is not taken over" in role.said(), role.said)
    assert ask(f"{url}/v1/similar?id=o1", context, asking)[0] == 200
    for token in (asking, promoting, metrics):
        assert token not in role.said()
    assert role.stop() == EX_OK


def ledger(place: Place) -> Ledger:
    return open_store(load_config(place.file, environ={}).checkpoints.path).ledger


@pytest.mark.parametrize("role", ["serve", "learn", "validate", "up"])
def test_a_port_is_not_open_to_a_network_by_oversight(
    place: Place, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    place.file.write_text(place.file.read_text().replace(DOORS, ""))
    words = ["--config", str(place.file), "--set", "http.host=0.0.0.0"]
    assert main([role, *words]) == EX_CONFIG
    said = capfd.readouterr().err
    assert "http.tls_certificate and http.tokens is not set" in said
    assert f'http.unprotected = "{UNPROTECTED}"' in said


def test_said_in_words_it_opens_and_says_so(place: Place) -> None:
    place.file.write_text(
        place.file.read_text().replace(DOORS, f'host = "0.0.0.0"\nunprotected = "{UNPROTECTED}"\n')
    )
    place.feed(5, seed=1)
    place.learn()
    role = place.start("serve")
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    assert "the port is open to a network" in role.said()
