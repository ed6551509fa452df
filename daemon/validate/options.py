"""What the command line may ask of one run of the validator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValidateOptions:
    """One run: leave when the holdout is read, the newest version judged and nothing more will come.

    `beside_learn`: the learner was started along with it, and is at work for as long as stdin is open.
    """

    exit_when_caught_up: bool = False
    beside_learn: bool = False
