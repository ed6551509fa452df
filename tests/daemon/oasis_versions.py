"""What a version of OASIS holds and says of its learner, for tests that write versions themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from daemon.config.learners import OasisKeys

OASIS: dict[str, Any] = {
    "name": "oasis",
    "config": OasisKeys().model_dump(exclude={"algorithm"}) | {"dedupe_window": 0},
    "config_digest": "c" * 64,
}


def state_of(W: np.ndarray) -> dict[str, np.ndarray]:
    """The learner's arrays with this matrix."""
    return {"W": W, "events": np.array(0, np.int64)}
