"""What everything else knows of a learner that a configuration can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from daemon.versions.forms import FormKind
from learners.block import Block
from learners.protocol import Learner

Columns: TypeAlias = Mapping[str, range]
"""View, or kernel of a view, -> its columns in the mapped vectors, in their order."""
NO_VIEWS: Columns = {}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One learner as everything else knows it.

    settings: (keys of [learner], columns of the views) -> the learner's own settings; raises ConfigError.
    make: (settings, dim, sample) -> the learner before any event. sample: mapped objects of the warm-up, of
    which it may learn scales and landmarks; None unless `needs_sample`.
    restore: (arrays, settings) -> the learner that goes on from a version's arrays, taking them over where it
    can; raises StateError.
    forms: what versions are served as.
    state_bytes: (keys of [learner], columns of the views, dim) -> the memory that the learner takes; raises
    ConfigError.
    followed: the arrays by whose bytes a copy that took its steps is known to be equal; () for all.
    by_block: it learns a similarity for each view or kernel of one, and wants each of unit length.
    form_bytes: (keys of [learner], columns of the views, dim, items) -> the memory of a sharpened form that
    does not fold, with what it keeps of so many items; None for other forms.
    full_step: keys of [learner] -> the largest tau of an event of weight 1; None where an event's tau says
    less of what it did than its weight.
    """

    settings: Callable[[Any, Columns], Any]
    make: Callable[[Any, int, Block | None], Learner]
    restore: Callable[[Mapping[str, npt.NDArray[Any]], Any], Learner]
    forms: FormKind
    state_bytes: Callable[[Any, Columns, int], int]
    followed: tuple[str, ...] = ()
    needs_sample: bool = False
    by_block: bool = False
    form_bytes: Callable[[Any, Columns, int, int], int] | None = None
    full_step: Callable[[Any], float] | None = None
