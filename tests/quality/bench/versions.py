"""What one version answers with, in all forms that it can have: as `daemon.versions.forms` and
`learners.forms.serving` make them, with one decomposition, one product with the catalog for each power, and
nothing but vectors for what differs between forms.

A test holds it against the product's forms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from daemon.versions.forms import FormChoice
from learners.forms.serving import DEFAULT_POWER
from tests.quality.bench.forms import Eigen, Form
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Folded:
    """One power. rows: S z of each row of the catalog, float32 [n, d]; own: z^T S z, float64 [n]."""

    rows: Floats
    own: Doubles


class Version:
    """A learned W over the catalog's mapped rows Z, float32 [n, d]; metric: of the own ranking, [d];
    familiarity: what shows how much a query has in common with what was learned, None: W."""

    def __init__(self, W: Floats, Z: Floats, metric: Floats, familiarity: Floats | None = None) -> None:
        self._W, self._Z, self._metric = W, Z, metric
        self._powers: dict[float, Folded] = {}
        self._shows = None if familiarity is None else Version(familiarity, Z, metric)

    @cached_property
    def _eigen(self) -> Eigen:
        return Eigen(self._W)

    @cached_property
    def _own(self) -> Doubles:
        return np.einsum("nd,d,nd->n", self._Z, self._metric, self._Z).astype(np.float64)

    def folded(self, power: float) -> Folded:
        """What was learned at a power, its trace d."""
        if power not in self._powers:
            rows = self._Z @ self._eigen.matrix(Form(power), self._metric)
            own = np.maximum(np.einsum("nd,nd->n", rows, self._Z), 0).astype(np.float64)
            self._powers[power] = Folded(rows, own)
        return self._powers[power]

    def with_usual(self, choice: FormChoice, queries: Ints) -> FormChoice:
        """As `FormChoice.with_usual`; queries: distinct rows of the catalog. Where a
        form gives way for no query, as the product's fixed forms: both with trace d."""
        if not choice.familiar:
            return replace(choice, usual=float(len(self._metric) / self._metric.sum()))
        queries = queries[self._own[queries] > 0]
        if not choice.own_share or not len(queries):
            return choice
        found = replace(choice, usual=self._usual(choice.power, queries))
        if self._shows is None:
            return found
        return replace(found, usual_familiarity=self._shows._usual(DEFAULT_POWER, queries))

    def _usual(self, power: float, queries: Ints) -> float:
        return float(np.median(self.folded(power).own[queries] / self._own[queries]))

    def known(self, choice: FormChoice, rows: Ints) -> Doubles:
        """As `BackoffForm.known`."""
        if self._shows is not None:
            alike = replace(choice, power=DEFAULT_POWER, usual=choice.usual_familiarity)
            return self._shows.known(alike, rows)
        found, usual = self.folded(choice.power).own[rows], choice.usual * self._own[rows]
        return np.divide(found, usual, out=np.ones(len(rows)), where=usual > 0)

    def scores(self, choice: FormChoice) -> Scores:
        """Of catalog rows with the catalog in a form; choice: `with_usual`."""
        folded, Z = self.folded(choice.power), self._Z
        beside = np.float32(choice.own_share * choice.usual)
        norms = folded.own + beside * self._own
        roots = np.where(norms > 0, 1 / np.sqrt(np.maximum(norms, 1e-20)), 0).astype(np.float32)

        def of(rows: Ints) -> Floats:
            query = folded.rows[rows]
            if choice.own_share:
                given = np.ones(len(rows))
                if choice.familiar:
                    given = np.minimum(self.known(choice, rows) / choice.familiar, 1) ** choice.backoff
                query = given[:, None].astype(np.float32) * query + beside * self._metric * Z[rows]
            return np.asarray(query @ Z.T * roots)

        return of
