"""The form of OKS and OMKS over a support set, as [serving] says, and as it is kept beside its version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.config.schema import ServingConfig
from daemon.exits import UserError
from daemon.versions import forms as supports_form
from daemon.versions.forms import SupportsForms
from learners.multikernel import Omks, OmksConfig, ViewKernels
from tests.learners.examples import triplets

DIM = 12


def learner() -> Omks:
    """OMKS of two views after some events."""
    made = Omks(DIM, OmksConfig((ViewKernels(0, 5), ViewKernels(5, DIM)), triplets=40, objects=96))
    made.learn_many(triplets(5, 60, DIM, "dense"))
    return made


def serving(**keys: Any) -> ServingConfig:
    """[serving] with these keys."""
    return ServingConfig.model_validate(keys)


@pytest.mark.parametrize("score", ["raw", "normalised"])
@pytest.mark.parametrize("psd", ["off", "auto"])
def test_a_kept_form_is_the_form_that_was_made(score: str, psd: str) -> None:
    kind, one, rows = SupportsForms(), learner(), np.eye(DIM, dtype=np.float32)
    made = kind.make(one, 1, serving(score=score, psd=psd))
    assert made.normalised is (score == "normalised")
    kept = kind.read(kind.arrays(made), one)
    assert type(kept) is type(made)
    assert kept.normalised is made.normalised
    assert kept.scores(rows, rows).tobytes() == made.scores(rows, rows).tobytes()
    assert kind.account(kept) == kind.account(made)


def test_a_support_set_too_large_for_a_form_is_refused_unless_it_is_served_as_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supports_form, "MOST_OBJECTS", 3)
    kind, one = SupportsForms(), learner()
    with pytest.raises(UserError, match=r"serving\.psd") as refused:
        kind.make(one, 1, serving())
    assert "learner.objects" in refused.value.remedy
    kind.make(one, 1, serving(psd="off"))
