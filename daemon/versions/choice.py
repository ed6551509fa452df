"""In which form a version is judged and served: what clicks chose for it, kept with its form.

The choice belongs to the version. One that was not judged yet, and what a replica has learned behind it, has
the form of the newest version before it that was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from checkpoints.store import CheckpointError
from checkpoints.versions import VersionStore
from daemon.config.schema import ServingConfig
from learners.forms.backoff import FAMILIAR

DERIVED = "serving"
"""Name of the file beside a version that holds its form."""
CHOSEN = "chosen"
"""In the description of that file: what was chosen, and why."""
NUMBERS = ("power", "own_share", "familiar", "usual")


@dataclass(frozen=True, slots=True)
class FormChoice:
    """power: of the eigenvalues. own_share: of the own ranking beside what was learned, and more of it where
    a query has less in common with that than `familiar` times what is `usual` (`learners.forms.backoff`).
    why: a sentence.
    """

    power: float
    own_share: float
    familiar: float = FAMILIAR
    usual: float = 1.0
    why: str = ""

    @property
    def told(self) -> str:
        """What it is, in words."""
        return f"power {self.power:g} with {self.own_share:g} of your own ranking"

    def to_json(self) -> dict[str, Any]:
        """As it stands beside the version."""
        return {**{name: getattr(self, name) for name in NUMBERS}, "why": self.why}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse. KeyError, TypeError or ValueError for anything else."""
        power, own_share, familiar, usual = (float(found[name]) for name in NUMBERS)
        return cls(power, own_share, familiar, usual, str(found["why"]))


OFFERED = (FormChoice(1.5, 0.2, 0.8), FormChoice(1.5, 0.3), FormChoice(1.0, 1.0), FormChoice(1.5, 1.0))
"""What there is to choose from, in order of care: bolder, as long as nothing is known, and with as much of
the own ranking as of what was learned, without and with a sharp spectrum."""
FIRST = 1
"""Of `OFFERED`, what is taken as long as nothing is known."""


def described(config: ServingConfig, choice: FormChoice | None = None) -> dict[str, Any]:
    """What stands beside a form of how it was made; config: `as_scored`. What says nothing is left out, so
    that forms kept before it was known stand.
    """
    settings = config.model_dump(exclude={"form"})
    if config.score == "auto":
        settings["score"] = "normalised"  # as it is wherever nothing is known of the user's own ranking
    if choice is not None:
        settings |= {"power": choice.power, "own_share": 0.0}
    told = {"settings": {name: one for name, one in settings.items() if one or name != "own_share"}}
    return told if choice is None else told | {CHOSEN: choice.to_json()}


def digest_of(told: Mapping[str, Any]) -> str:
    """sha256 over what `described` says of the settings, and of the choice where there is one."""
    said = told["settings"] if CHOSEN not in told else [told["settings"], told[CHOSEN]]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def settings_digest(config: ServingConfig) -> str:
    """sha256 over the settings that a form without a choice depends on; config: `as_scored`."""
    return digest_of(described(config))


def stands(meta: Mapping[str, Any], config: ServingConfig, judged: bool) -> bool:
    """Whether a kept form is still that of its version. judged: `FormKind.is_judged`; then the form that its
    validator made stands, in whichever form that was; else one that was made with these settings.
    """
    if meta.get("settings_digest") == settings_digest(config):
        return True
    kept = meta.get("settings")
    return judged and isinstance(kept, Mapping) and _lasting(kept) == _lasting(described(config)["settings"])


def _lasting(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in {"power", "own_share"}}


def choice_of(versions: VersionStore, number: int) -> FormChoice | None:
    """What was chosen for version `number` itself; None where nothing was, or where it cannot be read."""
    try:
        meta = versions.attached_meta(number, DERIVED)
        return None if meta is None or CHOSEN not in meta else FormChoice.from_json(meta[CHOSEN])
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None


def choice_at(versions: VersionStore, number: int) -> FormChoice | None:
    """What was chosen for version `number`, else for the newest one before it; None where nothing was."""
    numbers = (one for one in reversed(versions.versions()) if one <= number)
    return next((found for one in numbers if (found := choice_of(versions, one)) is not None), None)
