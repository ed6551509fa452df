"""Rests that grow with silence."""

from __future__ import annotations

import pytest

from streams.source import SHARE, Quiet


def test_the_longer_nothing_came_the_longer_the_rest_within_bounds() -> None:
    now = [100.0]
    quiet = Quiet(0.05, 0.2, lambda: now[0])
    assert quiet.rest_s() == 0.05
    now[0] += 3.0
    assert quiet.rest_s() == pytest.approx(SHARE * 3.0)
    now[0] += 3600.0
    assert quiet.rest_s() == 0.2
    quiet.broken()
    assert quiet.rest_s() == 0.05
