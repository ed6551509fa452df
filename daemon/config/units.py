"""Durations ("30s", "1h30m") and sizes ("64MiB") as written in the configuration."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")

LONGEST_SECONDS = 100_000 * 86400.0
MOST_BYTES = 1_000_000 << 40
"""Both bounds keep every use (timers, 64-bit file offsets) from overflowing."""

DURATION_HELP = 'a duration such as "250ms", "30s", "5m", "1h30m", "7d"'
SIZE_HELP = 'a size such as "512KiB", "64MiB", "2GiB"'


def parse_duration(text: str) -> float:
    """Seconds of a duration such as "30s" or "1h30m". Raises ValueError when it is not one."""
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part.group(0) for part in parts) != text:
        raise ValueError(f"expected {DURATION_HELP}")
    seconds = sum(float(part.group(1)) * _SECONDS[part.group(2)] for part in parts)
    if seconds > LONGEST_SECONDS:
        raise ValueError("expected a duration of at most 100,000 days")
    return seconds


def parse_size(text: str) -> int:
    """Bytes of a size such as "64MiB". Raises ValueError when it is not one."""
    match = _SIZE.fullmatch(text)
    if match is None or match.group(2) not in _BYTES:
        raise ValueError(f"expected {SIZE_HELP}")
    size = float(match.group(1)) * _BYTES[match.group(2)]
    if size > MOST_BYTES:
        raise ValueError("expected a size of at most 1,000,000 TiB")
    return int(size)
