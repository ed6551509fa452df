"""Each kernel of a version judged by itself: OMKS-W weighs them by theta_i = exp(mAP_i).

Source: Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search, TPAMI 36 (2014),
section 6.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from checkpoints.store import CheckpointError
from checkpoints.versions import VersionStore
from daemon.catalogs import learner_catalog
from daemon.config.schema import Config
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.validate.inputs import judged_queries, open_judgments
from daemon.validate.scorer import MappedObjects, Scorer
from daemon.versions.algorithms import algorithm_of, columns_of, kernel_names, learner_config_of, map_of
from daemon.versions.restore import learner_of
from learners.base import Learner
from learners.hedge import HedgeConfig, first_standing
from learners.tether import untethered


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel. name: of its view and kind. theta: its weight in the version, of sum 1. map: of its own
    similarity alone on the judged queries of the holdout, None without judgments. weight: exp(map), theta of
    OMKS-W up to a factor.
    """

    name: str
    theta: float
    map: float | None
    weight: float | None


def judge_kernels(versions: VersionStore, number: int, config: Config, most: int) -> list[KernelRow]:
    """The kernels of a version in their order, each in the form that [serving] says, on at most `most` judged
    queries. Raises UserError for a learner that weighs none, and for a version that does not load.
    """
    try:
        version = versions.load(number)
    except CheckpointError as error:
        raise UserError(f"version {number} cannot be loaded: {error}", error.remedy, EX_DATAERR) from error
    learner: Any = untethered(learner_of(version))
    if not isinstance(getattr(learner, "theta", None), np.ndarray):
        name = version.manifest.learner["name"]
        raise UserError(f"{name} weighs no kernels", "choose a version of omks or omks-maps", EX_USAGE)
    fitted, theta = map_of(version), learner.theta.tolist()
    names = kernel_names(learner_config_of(version.manifest), columns_of(fitted))
    measures: Sequence[float | None] = [None] * len(theta)
    judgments, serving = open_judgments(config), config.serving
    if judgments is not None:
        kind = algorithm_of(version.manifest.learner["name"]).forms.served(serving)
        forms = (kind.make(one, max(1, number), serving, fitted.own) for one in each_alone(learner))
        objects = MappedObjects(config.space_spec(), learner_catalog(config), fitted)
        judged = judged_queries(config, objects, judgments, most)
        tables = (judged.table(Scorer(form, objects), judged.fixed) for form in forms)
        means = [judged.summary(judged.fixed, table)["map_full"] for table in tables]
        measures = [None if math.isnan(mean) else mean for mean in means]
    weights = [None if found is None else math.exp(found) for found in measures]
    return [KernelRow(*row) for row in zip(names, theta, measures, weights, strict=True)]


def each_alone(learner: Any) -> list[Learner]:
    """The learner with all weight on one kernel, for each of them."""
    made = []
    for own in np.eye(len(learner.theta)):
        given = HedgeConfig("given", weights=tuple(own.tolist()))
        arrays = {**learner.state(), "standing": first_standing(given, len(own))}
        made.append(type(learner).from_state(arrays, replace(learner.config, hedge=given)))
    return made
