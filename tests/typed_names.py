"""What a type checker knows of `from tripletd import ...`; mypy checks it, nothing runs it."""

from __future__ import annotations

from typing import assert_type

import learners
from daemon.client.model import Model
from tripletd import Oasis, SearchIndex, follow


def of_the_library(learner: Oasis, index: SearchIndex) -> None:
    """The classes are those of `learners`."""
    assert_type(learner, learners.Oasis)
    assert_type(index, learners.SearchIndex)
    assert_type(follow("checkpoints"), Model)
