"""However slow a schema registry is, decoding ends before the watchdog takes it for a hang."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.config import load_config
from daemon.follow import role
from streams.errors import StreamUnavailable
from streams.feed.follow import registry, topics
from streams.feed.follow.topics import FollowedTopic
from streams.foreign_http import ForeignAnswer, ForeignServer
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address


class Slow:
    """A client of a registry that is quick up to a time; after it each answer takes as long as it may, and
    refers to others without end."""

    now = quick_until = 0.0

    def __init__(self, server: ForeignServer) -> None:
        self.timeout_s = server.timeout_s

    def ask(self, method: str, path: str) -> ForeignAnswer:
        is_quick = Slow.now < Slow.quick_until
        Slow.now += 0.2 if is_quick else self.timeout_s
        said: Any = ["AVRO"]
        if "types" not in path:
            others = [{"name": f"n{at}", "subject": f"s{at}", "version": 1} for at in range(50)]
            said = {"schema": '"long"', "references": [] if "subjects" in path or is_quick else others}
        return ForeignAnswer(200, {}, json.dumps(said).encode())


@pytest.mark.parametrize("stuck_after", [2, 10, 30, 60])
def test_schemas_take_less_time_than_the_watchdog_waits(
    stuck_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BlockingClient", Slow)
    monkeypatch.setattr(topics, "time", SimpleNamespace(monotonic=lambda: Slow.now))
    given = {"stream.stuck_after": f"{stuck_after}s", "feed.follow.registry.url": "http://127.0.0.1:9"}
    config = load_config(None, given, {})
    address = parse_address(f"log:{tmp_path}/clicks.log#raw")
    ensure_topic(address, 1)
    with closing(open_sink(address)) as sink:
        sink.send([OutRecord(b"\0" + number.to_bytes(4) + b"\2") for number in range(1, 40)])
    for quick in range(11):
        schemas = role._schemas(config, tmp_path / f"schemas-{quick}", lambda: None)
        assert schemas is not None
        schemas._registry._clock = lambda: Slow.now
        monkeypatch.setattr(Slow, "now", 0.0)
        monkeypatch.setattr(Slow, "quick_until", quick / 2)
        with closing(FollowedTopic(address, schemas=schemas)) as topic, suppress(StreamUnavailable):
            topic.read(40, 0.0)
        assert 0 < Slow.now < stuck_after
