"""What `/v1/embeddings` adds to asking the upstream directly, at 1,536 dimensions with the default map.

The upstream is a process that answers at once with a vector it has: what is measured is the way through. One
client asks one text at a time over a kept connection, in turn directly and through serve, for base64 as
OpenAI's client does. `embeddings_route_added_p99_ms`: the 99th percentile of the differences of the pairs.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import multiprocessing
import os
import shutil
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from checkpoints import Ledger, VersionStore
from checkpoints.local import LocalStore
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.benchmarks.feeder import event
from tests.benchmarks.harness import Figure
from tests.benchmarks.places import Place

DIM, ITEMS, EVENTS, PAIRS, WARM = 1536, 2_000, 2_000, 2_000, 300
BODY = {"input": "a red dress for a party", "encoding_format": "base64"}


def figures() -> list[Figure]:
    """The one figure, of a version that was learned; `latest_`: of one that is followed step by step, `doc_`:
    of documents, which are passed on, `float_`: of queries as numbers; `cpu_ms`: processor time of serve."""
    ours, theirs = multiprocessing.Pipe()
    upstream = multiprocessing.get_context("spawn").Process(target=_upstream, args=(theirs,), daemon=True)
    upstream.start()
    port = ours.recv()
    settings = f'[embeddings]\nupstream = "http://127.0.0.1:{port}/v1"\nmodels.shop = "texts"\n'
    place = Place.make("embeddings", "dense", DIM, ITEMS, more=settings)
    try:
        place.file.write_text(place.file.read_text().replace('map = "identity"\n', ""))
        _learn(place)
        with place.running("serve") as process:
            asked = {
                name: _added(place, port, process.pid, model, BODY | more)
                for name, model, more in (
                    ("", "shop-query", {}),
                    ("latest_", "shop-query@latest", {}),
                    ("doc_", "shop-doc", {}),
                    ("float_", "shop-query", {"encoding_format": "float"}),
                )
            }
    finally:
        upstream.kill()
        shutil.rmtree(place.folder, ignore_errors=True)
    detail: dict[str, float] = {}
    for name, (added, cpu_ms) in asked.items():
        detail |= {
            f"{name}p{share}_ms": round(float(np.percentile(added, share)), 3) for share in (50, 90, 99)
        }
        detail[f"{name}cpu_ms"] = round(cpu_ms, 3)
    return [Figure("embeddings_route_added_p99_ms", detail["p99_ms"], "ms", "asking directly", PAIRS, detail)]


def _learn(place: Place) -> None:
    """A version that answers as stable."""
    address = parse_address(f"log:{place.folder / 'clicks.log'}")
    ensure_topic(address, 1)
    draws = np.random.default_rng(2).integers(0, ITEMS, (EVENTS, 3))
    with closing(open_sink(address)) as sink:
        sink.send([OutRecord(event(number, 1.7e9, drawn)) for number, drawn in enumerate(draws)])
    place.learn()
    store = LocalStore(place.folder / "checkpoints")
    number = VersionStore(store).versions()[-1]
    Ledger(store).append({"kind": "PROMOTE", "version": number, "alias": "stable", "by": "bench"})


def _added(
    place: Place, port: int, pid: int, model: str, body: dict[str, str]
) -> tuple[NDArray[np.float64], float]:
    """Milliseconds that each pair differs by, and those of processor time that serve took for a request."""
    direct = http.client.HTTPConnection("127.0.0.1", port)
    through = http.client.HTTPConnection("127.0.0.1", place.ports["serve"])
    added = []
    for number in range(WARM + PAIRS):
        if number == WARM:
            ran = _ran_s(pid)
        first = _asked(direct, {**body, "model": "texts"})
        added.append(_asked(through, {**body, "model": model}) - first)
    cpu_ms = (_ran_s(pid) - ran) / PAIRS * 1e3
    direct.close()
    through.close()
    return np.array(added[WARM:]) * 1e3, cpu_ms


def _ran_s(pid: int) -> float:
    """Processor time of a process, those of its threads that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _asked(connection: http.client.HTTPConnection, body: dict[str, str]) -> float:
    sent = json.dumps(body).encode()
    began = time.perf_counter()
    connection.request("POST", "/v1/embeddings", sent, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    raw = answer.read()
    taken = time.perf_counter() - began
    assert answer.status == 200, raw
    return taken


class _Answering(asyncio.Protocol):
    """Answers every request with the vector, in the way that it asks for."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers, self._data = answers, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = next(
            (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b":-1"
        )
        if found and len(body) == int(length.partition(b":")[2]):
            self._data = b""
            assert isinstance(self._transport, asyncio.Transport)
            self._transport.write(self._answers[b"base64" if b"base64" in body else b"float"])


def _upstream(told: Connection) -> None:
    """The process of the upstream; tells its port."""
    row = np.random.default_rng(5).normal(size=DIM).astype("<f4")
    answers = {}
    for form, written in ((b"base64", base64.b64encode(row.tobytes()).decode()), (b"float", row.tolist())):
        data = [{"object": "embedding", "index": 0, "embedding": written}]
        usage = {"prompt_tokens": 6, "total_tokens": 6}
        body = json.dumps({"object": "list", "data": data, "model": "texts", "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        answers[form] = head.encode() + body

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Answering(answers), "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())
