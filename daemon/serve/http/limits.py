"""How much of anything one asker may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the HTTP side; whatever goes beyond is answered 4xx or 503, naming the field.

    `body_bytes`: of a request. `bodies_bytes`: of all requests that are being read or worked on together (one
    alone may always be as large as `body_bytes`). `head_bytes`: request line and headers. `connections`: open
    at once. `k_max`: results per query. `batch_max`: queries per request. `results_max`: k summed over them.
    `queue`: queries waiting for the compute thread. `pass_queries`: queries of one alias that share one pass
    over the items. Seconds: `head_s` from the first byte (or from connecting) to the end of the headers,
    `body_s` to the end of the body, `idle_s` between requests of a connection, `write_s` for a reader that
    does not read, `answer_s` from a parsed request to its answer, `drain_s` for open requests when the server
    stops.
    """

    body_bytes: int = 4 << 20
    bodies_bytes: int = 32 << 20
    head_bytes: int = 32 << 10
    connections: int = 512
    k_max: int = 1000
    batch_max: int = 256
    results_max: int = 20_000
    queue: int = 512
    pass_queries: int = 16
    head_s: float = 10.0
    body_s: float = 10.0
    idle_s: float = 30.0
    write_s: float = 10.0
    answer_s: float = 5.0
    drain_s: float = 5.0
