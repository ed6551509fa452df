"""What roles say of how things stand (metrics, status, page) is the same before and after a restart."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.cli import main
from tests.daemon.serve.test_role import PATIENCE_S, Place, Role
from tests.daemon.serve.test_role_doors import ledger
from tests.harness.gauges import state_samples
from tests.harness.waiting import until

FOLLOWED = '[feed]\nholdout_share = 0.3\nrandom_negatives = 0\n[feed.follow]\nsources = ["raw/in.jsonl"]\n'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place with held-out lists, where validate has something to judge."""
    made = Place(tmp_path)
    text = made.file.read_text()
    text = text.replace("[feed]\nholdout_share = 0.0\nrandom_negatives = 0\n", FOLLOWED)
    assert FOLLOWED in text
    made.file.write_text(
        text.replace("serve_port = 0\n", "serve_port = 0\nfeed_port = 0\n")
        + "[validate]\nmin_impressions = 5\nmin_versions = 1\n"
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "in.jsonl").write_text("")
    yield made
    made.end()


def feed(place: Place, count: int) -> None:
    """Lists of four, clicked at each of their ranks."""
    lines = [
        {"id": f"i{n}", "ts": 1_700_000_000_000 + n, "q": {"id": f"o{n % 40}"}, "clicked": [n % 4]}
        | {"shown": [{"id": f"o{(n * 7 + at * 11 + 1) % 40}"} for at in range(4)]}
        for n in range(count)
    ]
    source = place.folder / "clicks.jsonl"
    source.write_text("\n".join(map(json.dumps, lines)))
    assert main(["feed", str(source), "--config", str(place.file)]) == 0


def gauges(role: Role) -> dict[str, float]:
    with urllib.request.urlopen(role.url() + "/metrics", timeout=PATIENCE_S) as answer:
        return state_samples(text_string_to_metric_families(answer.read().decode()))


def settled(role: Role) -> dict[str, float]:
    """Its gauges, once they are the same twice and it is ready, or says that it is parked and how far its log
    goes, which it asks meanwhile."""
    seen: list[dict[str, float]] = []

    def still() -> bool:
        seen.append(gauges(role))
        _, why = role.get("/readyz")
        parked = "parked" in why and any(name.startswith("tripletd_lag_events") for name in seen[-1])
        at_rest = why == "ready\n" or parked or "ok" in why
        return at_rest and len(seen) > 1 and seen[-1] == seen[-2]

    until(still, lambda: (role.said(), role.get("/readyz"), seen[-2:]))
    return seen[-1]


def status_of(place: Place, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """`status --json` without what roles say live, which `gauges` compares."""
    capsys.readouterr()
    assert main(["status", "--json", "--config", str(place.file)]) == 0
    found = json.loads(capsys.readouterr().out)
    return {name: value for name, value in found.items() if name not in ("live", "not_ready", "down")}


def page_of(serve: Role) -> dict[str, Any]:
    found = {name: serve.get(f"/v1/page/{name}")[1] for name in ("curves", "versions", "overview")}
    overview = found.pop("overview")
    served = [{k: v for k, v in one.items() if k != "since"} for one in overview["served"]]
    return {**found, "served": served, "objects": overview["objects"]}


def test_each_role_says_the_same_after_a_restart_with_nothing_new(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(place, 240)
    place.learn()
    assert main(["validate", "--exit-when-caught-up", "--config", str(place.file)]) == 0
    ledger(place).append({"kind": "STOP", "by": "test", "reason": "there is one to be told of"})
    started = {name: place.start(name) for name in ("learn", "validate", "serve")}
    started["feed"] = place.start("feed", "--follow")
    until(lambda: gauges(started["learn"])["tripletd_parked"] == 1, started["learn"].said)
    before = {name: settled(role) for name, role in started.items()}
    told, page = status_of(place, capsys), page_of(started["serve"])
    assert before["validate"]["tripletd_stopped"] == 1
    assert before["learn"]["tripletd_parked"] == 1
    assert before["learn"]["tripletd_version"] == place.newest().number
    again = {}
    for name, role in started.items():
        role.stop()
        again[name] = place.start(name, *(["--follow"] if name == "feed" else []))
    after = {name: settled(role) for name, role in again.items()}
    changed = {
        f"{role}: {name}": (before[role].get(name), after[role].get(name))
        for role in before
        for name in before[role].keys() | after[role].keys()
        if before[role].get(name) != after[role].get(name)
    }
    assert not changed
    assert status_of(place, capsys) == told
    assert page_of(again["serve"]) == page
