"""Memory that is never zero by luck: what the compiled decoder leaves unwritten shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streams.compiled import reading


class DirtyNumpy:
    """NumPy, but `empty` gives arrays full of 0xEE."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        """As `numpy.empty`."""
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = 0xEE
        return array


@contextmanager
def dirty_memory() -> Iterator[None]:
    """Until the end, `streams.compiled.reading` gets dirty memory."""
    reading.np = DirtyNumpy()  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        reading.np = np  # type: ignore[misc]
