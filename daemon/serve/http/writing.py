"""How long a reader may not read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from daemon.serve.http.limits import Limits
from daemon.serve.http.metrics import HttpMetrics


class TimedWriting(HttpToolsProtocol):
    """uvicorn's protocol, ended when bytes of an answer are not taken for `write_s`."""

    def __init__(self, *args: Any, limits: Limits, metrics: HttpMetrics, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits, self._metrics = limits, metrics
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that any byte that is not taken at once starts the timer

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_s, self._not_reading)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _not_reading(self) -> None:
        self._metrics.record_turned_away("slow_reader")
        self.transport.abort()
