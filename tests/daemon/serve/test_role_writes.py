"""A shop without Kafka: what is posted to `serve` is kept, `feed` joins it, and the learner learns it."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from daemon.client import NotKeptError, WriteClient
from daemon.exits import EX_OK
from streams.codec import decode_event
from streams.event import Event
from streams.open import open_source
from streams.source import parse_address
from tests.daemon.serve.test_role import Place, Role
from tests.harness.waiting import until

TOKEN = "of-the-shop's-own-page"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.file.write_text(made.file.read_text() + "[serve.writes]\nenabled = true\n")
    yield made
    made.end()


def serving(place: Place) -> Role:
    place.feed(20, seed=1)
    place.learn()
    secret = place.folder / "write-token"
    secret.write_text(f"{TOKEN}\n")
    os.chmod(secret, 0o600)
    role = place.start("serve", env={"TRIPLETD_SERVE__WRITES__TOKEN_FILE": str(secret)})
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    return role


def asked(role: Role, question: dict[str, object]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    body = json.dumps(question).encode()
    request = urllib.request.Request(f"{role.url()}/v1/similar", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.loads(answer.read()))


def learned(place: Place) -> list[Event]:
    log = open_source(parse_address(f"log:{place.folder}/clicks.log"))
    log.assign({partition: earliest for partition, (earliest, _) in log.bounds().items()})
    events = []
    while batch := log.poll(1000, 0.0):
        events += [decode_event(value) for value in batch.values]
    log.close()
    return events


def test_from_a_post_to_the_event_that_is_learned(place: Place) -> None:
    role = serving(place)
    before = len(learned(place))
    server = WriteClient(role.url(), token=TOKEN)
    mine = server.impression("o1", ["o2", "o3", "o4"], impression="mine", source="search")
    server.click(mine, "o4")
    server.click(mine, "o4")  # sent again
    answer = asked(role, {"id": "o5", "k": 3, "log": True})
    assert answer["logged"]
    best, _, last = (hit["id"] for hit in answer["results"])
    server.click(answer["impression"], last)
    with pytest.raises(NotKeptError, match="needs a token"):
        WriteClient(role.url()).click(mine, "o4")
    assert TOKEN not in role.said()
    role.process.send_signal(signal.SIGKILL)  # what was confirmed is on the disk
    role.process.wait(60)
    raw = place.folder / "clicks.log.raw"
    lines = [json.loads(line) for file in raw.iterdir() for line in file.read_text().splitlines()]
    assert [one["event"] for one in lines] == ["impression", "click", "click", "impression", "click"]
    for _ in range(2):  # feeding it again changes nothing that is learned
        assert main(["feed", str(raw), "--mapping", "http", "--config", str(place.file)]) == EX_OK
    events = {one.id: one for one in learned(place)[before:]}
    pairs = {(one.impression, one.query.id, one.clicked.id, one.skipped.id) for one in events.values()}
    assert {("mine", "o1", "o4", "o2"), ("mine", "o1", "o4", "o3")} <= pairs
    assert (answer["impression"], "o5", last, best) in pairs
    assert {one.source for one in events.values() if one.impression == "mine"} == {"search"}
    assert len(events) == 4
    place.learn()
