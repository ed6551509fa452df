"""The kernels that [learner] names, on the columns of each view."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.config.learners import OksKeys, OmksKeys
from daemon.versions.algorithms import kernel_names, oks_settings, omks_settings
from learners.errors import ConfigError
from learners.multikernel import KernelConfig

COLUMNS = {"text": range(4), "colour": range(4, 9), "shape": range(9, 12)}
KERNELS = [
    {"kind": "rbf", "sigma": 0.5, "views": ["text", "colour"]},
    {"kind": "intersection", "views": ["colour"]},
]


def keys(**settings: Any) -> OmksKeys:
    return OmksKeys.model_validate(settings)


def test_every_view_has_the_kernels_that_name_none() -> None:
    made = omks_settings(keys(), COLUMNS)
    assert [(view.start, view.stop, len(view.kernels)) for view in made.views] == [
        (0, 4, 4),
        (4, 9, 4),
        (9, 12, 4),
    ]
    assert made.views[0].kernels == (
        *(KernelConfig("rbf", sigma=sigma) for sigma in (0.5, 1.0, 2.0)),
        KernelConfig("cosine"),
    )


def test_a_kernel_is_of_the_views_it_names_and_a_view_without_any_plays_no_part() -> None:
    made = omks_settings(keys(kernels=KERNELS), COLUMNS)
    assert [(view.start, view.stop) for view in made.views] == [(0, 4), (4, 9)]
    assert [[one.kind for one in view.kernels] for view in made.views] == [["rbf"], ["rbf", "intersection"]]
    names = kernel_names(keys(kernels=KERNELS), COLUMNS)
    assert names == ["text rbf 0.5", "colour rbf 0.5", "colour intersection"]
    assert made.kernels == len(names)


def test_a_view_that_is_not_there_and_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="no view 'size'; there are text, colour, shape"):
        omks_settings(keys(kernels=[{"kind": "rbf", "views": ["size"]}]), COLUMNS)
    given = keys(kernels=KERNELS, combine="given", weights=[1.0, 2.0])
    with pytest.raises(ConfigError, match="2 weights are given for 3 kernels"):
        omks_settings(given, COLUMNS)


def test_oks_learns_by_the_mean_or_by_the_one_kernel_there_is() -> None:
    several = oks_settings(OksKeys.model_validate({"kernels": KERNELS}), COLUMNS)
    assert (several.mean, several.kernels, several.parts) == (True, 1, 3)
    one = OksKeys.model_validate({"kernels": [{"kind": "linear", "views": ["shape"]}]})
    alone = oks_settings(one, COLUMNS)
    assert (alone.mean, alone.kernels) == (False, 1)
    assert (alone.views[0].start, alone.views[0].stop) == (9, 12)


def test_centred_kernels_are_told_as_such_and_only_the_paper_s_can_be() -> None:
    centred = [{"kind": "rbf", "sigma": 2, "centred": True}, {"kind": "cosine", "centred": True}]
    made = omks_settings(keys(kernels=centred), {"text": range(4)})
    assert [one.centred for one in made.views[0].kernels] == [True, True]
    assert kernel_names(keys(kernels=centred), {"text": range(4)}) == [
        "text centred rbf 2",
        "text centred cosine",
    ]
    with pytest.raises(ConfigError, match="can be centred"):
        omks_settings(keys(kernels=[{"kind": "linear", "centred": True}]), {"text": range(4)})
