"""What tests of several parts of the daemon share."""

from __future__ import annotations

import pytest

from daemon.learn import loop


@pytest.fixture
def steps_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner in this process ends once all its steps are written. Else it leaves after two seconds without
    them, which a busy machine may take: a test that reads the step log would find it half written.
    """
    for name in ("STEPS_SECONDS", "END_SECONDS"):
        monkeypatch.setattr(loop, name, 120.0)
