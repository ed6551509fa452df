"""How much of anything askers may take, alone and together.

There is no share per asker, and so no 429: who an asker is, only whoever stands in front can tell, because
behind a proxy all come from one address. A rate for each belongs there. What is bounded here keeps one asker
from being felt by others for longer than its own requests take: a request has at most `batch_max` queries and
`results_max` results, a connection answers one request at a time, and what waits is answered in order, with
other aliases in between. When `queue` or `connections` are full, whoever comes next is told so at once, 503
with Retry-After, which a client, a proxy and a load balancer all understand as: later, or elsewhere.
"""

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
