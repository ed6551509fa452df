"""A reader of an embedded log in which nothing happens: it looks rarely, and finds what comes."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

from streams.log.source import LogSource
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address


def test_after_silence_it_looks_rarely_and_finds_the_next_record_at_once(tmp_path: Path) -> None:
    address = parse_address(f"log:{tmp_path / 'clicks.log'}")
    ensure_topic(address, 1)
    source = LogSource(str(tmp_path / "clicks.log"), address.topic)
    source.assign({0: 0})
    asked: list[str] = []
    source._connection.set_trace_callback(asked.append)
    source.poll(10, 0.0)
    source._quiet._since -= 60.0
    source.poll(10, 0.3)  # the first poll looks closely: it may be between two records
    asked.clear()
    source._quiet._since -= 60.0
    for _ in range(5):
        assert source.poll(10, 0.2) is None
    assert len(asked) <= 15, "at most three questions in a fifth of a second"
    with closing(open_sink(address)) as sink:
        sent = []

        def send() -> None:
            time.sleep(0.3)
            sink.send([OutRecord(b"one")])
            sent.append(time.monotonic())

        writer = threading.Thread(target=send)
        writer.start()
        batch = source.poll(10, 120.0)
        found = time.monotonic()
        writer.join()
    assert batch is not None
    assert batch.values == [b"one"]
    assert found - sent[0] < 60.0, "by its own look, not at the end of the poll"
    source.close()
