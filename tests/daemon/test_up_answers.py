"""`tripletd up` keeps answering: whatever learn and validate end with, serve goes on, and it is told."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_OK, EX_UNAVAILABLE
from tests.harness.kill.up_answers import EMBEDDED, Fault, UpShop, broker_away, down, endure
from tests.harness.waiting import until

pytestmark = pytest.mark.kill


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` waits for roles: on a busy machine two seconds are soon over."""
    monkeypatch.setattr("daemon.look.live._TIMEOUT_S", 60.0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[UpShop]:
    made = UpShop(tmp_path)
    yield made
    made.end()


def status(shop: UpShop, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["status", "--json", "--config", str(shop.file)]) == EX_OK
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_learner_that_is_refused_stays_down_alone_and_is_told_everywhere(
    shop: UpShop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.new_log()
    up = shop.start("up")
    until(lambda: down(up) and shop.similar() == 200, up.said)
    (told,) = down(up)
    assert (told["role"], told["exit"]) == ("learn", 65)
    assert "--accept-log" in told["reason"]
    assert up.process.poll() is None
    until(
        lambda: "is down" in shop.get(shop.up_port, "/readyz")[1], up.said
    )  # a moment after its log says so
    ready, why = shop.get(shop.up_port, "/readyz")
    assert ready == 503
    assert why.startswith("learn is down: ")
    assert f"kill -HUP {up.process.pid}" in why
    assert shop.get(shop.up_port, "/livez")[0] == 200
    metrics = shop.get(shop.up_port, "/metrics")[1]
    assert 'tripletd_role_state{exit="65",of_role="learn",reason="' in metrics
    assert 'tripletd_role_failures_total{of_role="learn"} 1.0' in metrics
    picture = status(shop, capsys)
    assert picture["down"]["learn"].startswith("DOWN: ")
    assert any("kill -HUP" in note for note in picture["problems"])
    assert main(["status", "--config", str(shop.file)]) == EX_OK
    assert "DOWN: " in capsys.readouterr().out
    until(lambda: roles_of_page(shop)["learn"]["down"] is not None, up.said)
    assert shop.similar() == 200
    # What the message asks for, beside `up`; then it is told to start the role again.
    words = ("--accept-log", "--start", "earliest", "--exit-when-caught-up")
    beside = shop.start("learn", *words)
    assert beside.process.wait(120) == EX_OK, beside.said()
    up.process.send_signal(signal.SIGHUP)
    until(lambda: shop.get(shop.learn_port, "/readyz")[0] == 200, up.said)
    until(lambda: shop.get(shop.up_port, "/readyz")[0] == 200, up.said)
    assert status(shop, capsys)["down"] == {}
    assert up.stop() == EX_OK


def roles_of_page(shop: UpShop) -> dict[str, Any]:
    told = json.loads(shop.get(shop.serve_port, "/v1/page/overview")[1])
    return {one["role"]: one for one in told["roles"]}


def test_what_no_role_accepts_fails_at_once_with_its_code(shop: UpShop) -> None:
    shop.set('path = "catalog.jsonl"', 'path = "none.jsonl"')
    up = shop.start("up")
    assert up.process.wait(120) == EX_DATAERR, up.said()
    assert {line["role"] for line in down(up)} == {"learn", "validate", "serve"}
    assert "none.jsonl" in up.said()


def test_a_mistake_in_the_file_is_told_before_anything_is_started(
    shop: UpShop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.set("[checkpoints]", "[chekpoints]")
    assert main(["up", "--config", str(shop.file)]) == EX_CONFIG
    assert "chekpoints" in capsys.readouterr().err


def test_a_port_of_up_that_others_hold_is_refused_only_where_it_was_chosen(shop: UpShop) -> None:
    with socket.create_server(("127.0.0.1", shop.up_port)):
        up = shop.start("up")
        assert up.process.wait(120) == EX_UNAVAILABLE, up.said()
        assert "started" not in up.said()


@pytest.mark.parametrize("fault", [*EMBEDDED, broker_away(2)], ids=lambda fault: fault.name)
def test_no_answer_is_lost(shop: UpShop, fault: Fault) -> None:
    endure(shop, fault).check()
