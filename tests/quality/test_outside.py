"""An index that is not ours answers as the server does: by exported vectors, or by folded queries."""

from __future__ import annotations

import pytest

from daemon.versions.forms import DEFAULT_FORM
from tests.quality.bench.backoff import Giving
from tests.quality.bench.outside import EMBEDDED, OWN, RESCORED, SERVED, measured


def test_folded_queries_lose_next_to_nothing_once_their_candidates_are_rescored() -> None:
    """Handwritten digits, of which clicks taught something."""
    for _, _, found in measured("digits", [2_000], 150, (Giving.of(DEFAULT_FORM),)):
        print(found)
        served, _ = found[SERVED]
        assert served > found[OWN][0], "nothing was learned: nothing is tested"
        assert found[EMBEDDED] == pytest.approx(found[SERVED], abs=2e-4)
        assert found[RESCORED][0] >= 0.98 * served
        assert found["folded"][0] < found[RESCORED][0], "nothing is rescored: nothing is tested"
