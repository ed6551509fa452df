"""A list on its whole way: two versions make it together, its id is signed, its click comes back, its outcome
is there for whoever judges."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.exits import EX_OK
from daemon.validate.preferences import outcomes
from streams.codec import decode_impression
from streams.open import open_source
from streams.source import parse_address
from tests.daemon.serve.test_role import Place
from tests.harness.waiting import until

KEY = "TRIPLETD_INTERLEAVING__KEY_FILE"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_from_two_versions_to_the_outcome_of_a_click(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = place.folder / "key"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    os.chmod(secret, 0o600)
    monkeypatch.setenv(KEY, str(secret))
    place.feed(200, seed=1)
    place.learn()
    assert main(["models", "promote", "0", "--alias", "stable", "--config", str(place.file)]) == EX_OK
    role = place.start("serve", "--set", "serve.aliases=stable,latest,own")
    try:
        until(lambda: role.get("/readyz")[0] == 200, role.said)
        for alias in ("latest", "own"):
            until(lambda alias=alias: role.get(f"/v1/similar?id=o1&alias={alias}")[0] == 200, role.said)
        wanted: list[dict[str, object]] = []
        expected: dict[str, float] = {}
        for number in range(40):
            status, answer = role.get(f"/v1/similar?id=o{number}&k=6&interleave=stable,latest")
            assert status == 200, answer
            assert answer["models"][0]["base"] == 0
            chosen = next((hit for hit in answer["results"] if hit["team"] == "latest"), None)
            if chosen is None:  # both versions answer this query alike
                assert answer["tie"]
                continue
            shown = [hit["id"] for hit in answer["results"]]
            line = {
                "id": answer["impression"],
                "ts": int(time.time() * 1000),
                "q": f"o{number}",
                "shown": shown,
            }
            wanted.append({**line, "clicked": [chosen["id"]]})
            expected[answer["impression"]] = 1.0
        status, answer = role.get("/v1/similar?id=o1&k=6&interleave=own,latest")
        assert status == 200, answer
        assert answer["models"][0]["base"] == 0
        assert role.get("/v1/similar?id=o1&k=6&alias=own")[1]["base"] == 0
        status, explained = role.get("/v1/similar?id=o1&k=3&explain=true&alias=latest")
        assert status == 200
        for hit in explained["results"]:
            total = sum(share["contribution"] for share in hit["why"]["views"])
            assert total + hit["why"]["rest"] == pytest.approx(hit["score"])
            assert abs(hit["why"]["rest"]) < 1e-4
        path = "/v1/similar?id=o1&k=1&explain=true&alias=latest"
        clicks = until(lambda: role.get(path)[1]["results"][0]["why"]["clicks"], role.said)
        assert clicks["records"] == 600
    finally:
        place.end()
    assert len(wanted) > 5
    source = place.folder / "lists.jsonl"
    source.write_text("\n".join(json.dumps(line) for line in wanted))
    words = ["feed", str(source), "--config", str(place.file), "--holdout-share", "0.99"]
    assert main(words) == EX_OK
    log = open_source(parse_address(f"log:{place.folder}/clicks.log#triplets.holdout"))
    log.assign({partition: earliest for partition, (earliest, _) in log.bounds().items()})
    held = []
    while batch := log.poll(1000, 0.0):
        held += [decode_impression(value) for value in batch.values]
    log.close()
    found = dict(zip((one.id for one in held), outcomes(held, (0, 0)).tolist(), strict=True))
    assert found.items() <= expected.items()
    assert len(found) == len(held) > 0
