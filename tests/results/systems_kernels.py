"""OKS and OMKS: similarities by several kernels of several descriptors, over a support set and over explicit
maps; and OASIS on the descriptors joined.

The steps of one kernel do not depend on how kernels are weighed, so that OKS of each kernel, OMKS-U and
OMKS-W are weighings of one run. Scores of a support set come from whole kernel matrices, in products of
matrices, which is how they are quick over many queries; a test compares them with the library's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from learners import (
    HedgeConfig,
    Oasis,
    OasisConfig,
    Omks,
    OmksConfig,
    OmksMaps,
    OmksMapsConfig,
    ViewConfig,
    ViewKernels,
)
from learners.hedge import Rule, best_beta
from learners.multikernel.config import PRINTED, KernelConfig
from tests.results.data import Floats, Ints, Space, Task, dense
from tests.results.judge import Scorer
from tests.results.systems import Fit, Fits, System, best_by_row, formed, measured, trained, validate
from tests.results.systems_matrix import OF_OASIS, SERVED, raw, served

COMPONENTS = 50
"""Principal directions of each descriptor (Xia et al., TPAMI 36 (2014), section 6.3)."""
MOST = 20_000
"""Triplets, which a support set keeps; OASIS on the joined descriptors gets as many."""
CS = (1.0, 10.0)
MAP_CS = (0.1, 1.0)
FEATURES = 128
"""Of each random map."""

OKS_BEST, OKS_MEAN = "OKS-Best", "OKS-Avg"
UNIFORM, GIVEN = "OMKS-U", "OMKS-W"
PRINTED_HEDGE, SHARED, MARGINS = "OMKS as printed", "OMKS, fixed share", "OMKS, weights by margins"
SHARED_SERVED = "OMKS, fixed share, served"
MAPS, MAPS_SERVED = "OMKS over maps", "OMKS over maps, served"


def described(task: Task, by_block: bool = True) -> Space:
    """Each descriptor whitened to `COMPONENTS` directions and brought to unit length; sparse rows as they
    are."""
    if task.data.sparse:
        return replace(task.given, Z=dense(task.given.Z))
    chain = ViewConfig(
        "chain", {"maps": [ViewConfig("unit"), ViewConfig("whiten", {"components": COMPONENTS})]}
    )
    return task.under(f"described {by_block}", chain, by_block=by_block, effective=False)


@dataclass(frozen=True, eq=False)
class Supports:
    """What `Omks` keeps, as matrices. rows: float32 [n, d], the kept objects. steps: for each kernel, n x n,
    the sum of tau over triplets at (query, clicked), less that at (query, skipped)."""

    rows: Floats
    steps: tuple[sparse.csr_array, ...]
    config: OmksConfig
    gamma: npt.NDArray[np.float64]

    @classmethod
    def of(cls, learner: Omks) -> Supports:
        """As it is now."""
        rows, triplets, tau = learner.support.compact()
        q, c, s = triplets.T
        shape = (len(rows), len(rows))
        steps = []
        for kernel in range(learner.config.kernels):
            ones = np.concatenate([tau[:, kernel], -tau[:, kernel]])
            places = np.concatenate([q, q]), np.concatenate([c, s])
            steps.append(sparse.coo_array((ones, places), shape=shape).tocsr())
        return cls(rows, tuple(steps), learner.config, learner.gamma)

    def values(self, left: Floats, right: Floats) -> Iterator[Floats]:
        """The matrix of each kernel, [m, n] float32, in their order; of their mean where the settings say."""
        every = self._every(left, right)
        if self.config.mean:
            yield np.asarray(sum(every) / np.float32(self.config.parts), np.float32)
        else:
            yield from every

    def _every(self, left: Floats, right: Floats) -> Iterator[Floats]:
        for view, gamma in zip(self.config.views, self.gamma, strict=True):
            a, b = left[:, view.start : view.stop], right[:, view.start : view.stop]
            products = a @ b.T
            squares = np.square(a).sum(1)[:, None], np.square(b).sum(1)
            lengths = np.sqrt(np.maximum(squares[0] * squares[1], 1e-24))
            distances = np.sqrt(np.maximum(squares[0] + squares[1] - 2 * products, 0))
            for kernel in view.kernels:
                if kernel.kind == "rbf":
                    yield np.exp(-distances / np.float32(gamma * kernel.sigma**2))
                else:
                    assert kernel.kind == "cosine"
                    yield np.float32(0.5) * (products / lengths) + np.float32(0.5)

    def scores(self, left: Floats, right: Floats) -> Iterator[Floats]:
        """S_i of all pairs, [m, n] float32, kernel by kernel."""
        seen = zip(
            self.steps,
            self.values(left, right),
            self.values(left, self.rows),
            self.values(self.rows, right),
            strict=True,
        )
        for steps, direct, before, behind in seen:
            through = np.asarray((steps.T @ before.T).T, np.float32)
            yield np.asarray(direct + through @ behind, np.float32)


def weighed(space: Space, supports: Supports, theta: npt.NDArray[np.float64]) -> Scorer:
    """sum_i theta_i S_i."""

    def scores(queries: Ints, gallery: Ints) -> Floats:
        out = np.zeros((len(queries), len(gallery)), np.float32)
        for weight, one in zip(
            theta, supports.scores(space.dense[queries], space.dense[gallery]), strict=True
        ):
            if weight:
                out += np.float32(weight) * one
        return out

    return scores


def views_of(space: Space) -> tuple[ViewKernels, ...]:
    """The paper's four kernels on each descriptor."""
    return tuple(ViewKernels(one.start, one.stop) for one in space.views)


def learner_of(task: Task, space: Space, C: float, rule: Rule, mean: bool = False) -> Omks:
    """An untrained OMKS that has room for whatever it learns."""
    views = views_of(space)
    beta = best_beta(MOST, len(views) * len(PRINTED))
    config = OmksConfig(
        views,
        C=C,
        triplets=MOST,
        objects=len(task.parts.train) + 16,
        hedge=HedgeConfig(rule, beta=beta),
        mean=mean,
    )
    return Omks(space.dim, config, sample=space.dense[task.parts.train])


def names_of(task: Task) -> list[str]:
    """Of the kernels, in their order."""

    def told(kernel: KernelConfig) -> str:
        return f"RBF of {kernel.sigma:g}" if kernel.kind == "rbf" else kernel.kind

    return [f"{view}, {told(kernel)}" for view in task.data.views for kernel in PRINTED]


def by_theta(rule: Rule, row: str, task: Task) -> Fits:
    """OMKS with a rule for its weights."""
    space = described(task)

    def form(learner: Any, _: Space) -> tuple[Scorer, Any]:
        return weighed(space, Supports.of(learner), learner.theta.copy()), None

    def settings() -> Iterator[Fits]:
        for C in CS:
            learner = learner_of(task, space, C, rule)
            found = trained(task, space, learner, {row: form}, MOST, f"C = {C:g}")
            if row == SHARED:  # of one rule: its scores take most of the time
                whole = measured(task, formed(space, learner.form()), f"C = {C:g}")
                found[SHARED_SERVED] = replace(
                    whole, triplets=int(learner.counts[0]), seconds=found[row].seconds
                )
            yield found

    return best_by_row(settings())


def weighings(task: Task) -> Fits:
    """OKS of each kernel, of which validation chooses the best; all alike; by the exponential of each one's
    mAP."""
    space, names = described(task), names_of(task)
    alone: dict[int, npt.NDArray[np.float64]] = {}

    def every(learner: Any) -> tuple[Supports, npt.NDArray[np.float64]]:
        done = int(learner.counts[0])
        if done not in alone:
            alone.clear()
            supports = Supports.of(learner)
            rows = task.parts.validation
            held = [*supports.scores(space.dense[rows], space.dense[rows])]
            alone[done] = np.array([validate(task, partial(_given, one)) for one in held], np.float64)
        return Supports.of(learner), alone[done]

    def chosen(learner: Any, _: Space) -> tuple[Scorer, Any]:
        supports, heights = every(learner)
        return weighed(space, supports, np.eye(len(heights))[int(np.argmax(heights))]), None

    def alike(learner: Any, _: Space) -> tuple[Scorer, Any]:
        supports, heights = every(learner)
        return weighed(space, supports, np.ones(len(heights)) / len(heights)), None

    def by_map(learner: Any, _: Space) -> tuple[Scorer, Any]:
        supports, heights = every(learner)
        return weighed(space, supports, np.exp(heights) / np.exp(heights).sum()), None

    def settings() -> Iterator[Mapping[str, Fit]]:
        for C in CS:
            alone.clear()
            forms = {OKS_BEST: chosen, UNIFORM: alike, GIVEN: by_map}
            learner = learner_of(task, space, C, "uniform")
            found = trained(task, space, learner, forms, MOST, f"C = {C:g}")
            place = int(np.argmax(every(learner)[1]))
            told = f"C = {C:g}, {names[place]}"
            yield found | {OKS_BEST: replace(found[OKS_BEST], chosen=told)}

    return best_by_row(settings())


def _given(scores: Floats, _: Ints, __: Ints) -> Floats:
    return scores


def mean_kernel(task: Task) -> Fits:
    """OKS on the mean of all kernels."""
    space = described(task)

    def form(learner: Any, _: Space) -> tuple[Scorer, Any]:
        return weighed(space, Supports.of(learner), np.ones(1)), None

    return best_by_row(
        trained(
            task,
            space,
            learner_of(task, space, C, "uniform", mean=True),
            {OKS_MEAN: form},
            MOST,
            f"C = {C:g}",
        )
        for C in (*CS, 100.0)
    )


def over_maps(task: Task) -> Fits:
    """OMKS over random features of the same kernels, in constant memory, weighed by fixed share."""
    kernels = [
        ViewConfig("rff", {"kernel": "exponential", "components": FEATURES, "sigma": kernel.sigma})
        for kernel in PRINTED
        if kernel.kind == "rbf"
    ]
    before = (
        [] if task.data.sparse else [ViewConfig("whiten", {"components": COMPONENTS}), ViewConfig("unit")]
    )
    last = [] if task.data.sparse else [ViewConfig("cosine")]
    maps = [ViewConfig("unit"), *before, ViewConfig("kernels", {"maps": [*kernels, *last]})]
    space = task.under("over maps", ViewConfig("chain", {"maps": maps}), by_block=True, effective=False)
    assert space.fitted is not None
    widths = tuple(len(columns) for columns in space.fitted.blocks.values())

    def learned(learner: Any, _: Space) -> tuple[Scorer, Any]:
        return formed(space, learner.form(normalised=False, power=1.0)), None

    return best_by_row(
        trained(
            task,
            space,
            OmksMaps(space.dim, OmksMapsConfig(widths=widths, C=C)),
            {MAPS: learned, MAPS_SERVED: served},
            4 * MOST,
            f"C = {C:g}",
        )
        for C in MAP_CS
    )


CON, CON_SERVED = "OASIS-Con", "OASIS-Con, served"
ONE, ONE_SERVED = "OASIS on the best descriptor", "OASIS on the best descriptor, served"
CON_CS = (0.1, 0.3, 1.0)


def joined(task: Task) -> Fits:
    """OASIS on the descriptors joined, each of unit length, as OMKS gets them."""
    space = described(task, by_block=False)
    return best_by_row(
        trained(
            task,
            space,
            Oasis(space.dim, OasisConfig(C=C)),
            {CON: raw, CON_SERVED: served},
            MOST,
            f"C = {C:g}",
        )
        for C in CON_CS
    )


def best_alone(task: Task) -> Fits:
    """OASIS on each of these descriptors by itself, of which validation chooses the best."""
    space = described(task, by_block=False)

    def settings() -> Iterator[Fits]:
        for view, columns in zip(task.data.views, space.views, strict=True):
            part = Space(np.ascontiguousarray(space.dense[:, columns]), None, (slice(0, COMPONENTS),))
            norms = np.linalg.norm(part.Z, axis=1, keepdims=True)
            part = replace(part, Z=part.Z / np.maximum(norms, 1e-12))
            for C in CON_CS:
                learner = Oasis(part.dim, OasisConfig(C=C))
                forms = {ONE: raw, ONE_SERVED: OF_OASIS[SERVED]}
                yield trained(task, part, learner, forms, MOST, f"C = {C:g}, {view}")

    return best_by_row(settings())


MANY = ("photos",)
WHY = "several descriptors"
SYSTEMS = (
    System("con", (CON, CON_SERVED), joined, MANY, WHY, edition=2),
    System("best-alone", (ONE, ONE_SERVED), best_alone, MANY, WHY),
    System("weighings", (OKS_BEST, UNIFORM, GIVEN), weighings),
    System("oks-avg", (OKS_MEAN,), mean_kernel),
    System("omks-hedge", (PRINTED_HEDGE,), partial(by_theta, "hedge", PRINTED_HEDGE)),
    System("omks-share", (SHARED, SHARED_SERVED), partial(by_theta, "share", SHARED)),
    System("omks-margins", (MARGINS,), partial(by_theta, "margins", MARGINS)),
    System("omks-maps", (MAPS, MAPS_SERVED), over_maps),
)
