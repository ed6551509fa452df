"""A server of `/embeddings` as OpenAI has it, over vectors that tests choose; it keeps what it is asked."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.harness.waiting import until

Embed = Callable[[str], Sequence[float]]


@dataclass
class Embedder:
    """embed: a text's vector. answers: taken in turn instead of an answer of its own, as long as there are
    some. asked: (body, headers) of every request; ports: of the client's side of its connection."""

    embed: Embed
    url: str = ""
    answers: list[Response] = field(default_factory=list)
    asked: list[tuple[Any, dict[str, str]]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    async def embeddings(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append((body, dict(request.headers)))
        self.ports.append(request.client.port if request.client else 0)
        if self.answers:
            return self.answers.pop(0)
        given = body["input"]
        texts = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
        rows = [np.asarray(self.embed(str(text)), "<f4")[: body.get("dimensions")] for text in texts]
        written: list[Any] = [row.tolist() for row in rows]
        if body.get("encoding_format") == "base64":
            written = [base64.b64encode(row.tobytes()).decode() for row in rows]
        data = [
            {"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(written)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        told = {"object": "list", "data": data[::-1], "model": body["model"], "usage": usage}
        return JSONResponse(told, headers={"x-request-id": f"r{len(self.asked)}"})


@contextmanager
def embedding(embed: Embed) -> Iterator[Embedder]:
    """Serve it on a free port."""
    one = Embedder(embed)
    app = Starlette(routes=[Route("/v1/embeddings", one.embeddings, methods=["POST"])])
    listening = socket.create_server(("127.0.0.1", 0))
    one.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    # Whoever stood still for a while finds its connection as it was.
    config = uvicorn.Config(app, log_config=None, lifespan="off", http="httptools", timeout_keep_alive=600)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the upstream has started")
    try:
        yield one
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
        listening.close()
