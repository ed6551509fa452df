"""Versions ready to be judged: loaded, verified, in their serving form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkpoints.errors import Damaged, KeyMissing
from checkpoints.manifest import Manifest
from checkpoints.versions import Version, VersionStore
from daemon.config.schema import ServingConfig
from daemon.exits import EX_DATAERR, UserError
from daemon.validate.scorer import MappedObjects, Scorer
from daemon.versions.contents import APPLIED, counted
from daemon.versions.forms import KeyedForm
from daemon.versions.restore import map_of, serving_form
from learners.block import Float32s
from learners.errors import LearnerError
from learners.forms.diagonal import IdentityForm
from learners.forms.quadratic import ServedForm, by_distance, folds
from learners.spectrum import symmetry_index
from streams.catalog import Catalog
from streams.event import SpaceSpec


def is_identity(W: Float32s) -> bool:
    """Whether W is exactly I; reads it row by row, so that nothing of its size is made."""
    return all(row[place] == 1 and np.count_nonzero(row) == 1 for place, row in enumerate(W))


class CandidateRejected(Exception):
    """The version must never be best: damaged, not finite, not of these objects, or pruned meanwhile."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An opened version. keys: its form, with which each key's scorer is made, where there is one model per
    key; `scorer` is then version 0's. symmetry: of its W (`symmetry_index`), None for a learner without one.
    """

    manifest: Manifest
    scorer: Scorer
    objects: MappedObjects
    keys: KeyedForm | None = None
    symmetry: float | None = None

    @property
    def number(self) -> int:
        """Its number."""
        return self.manifest.number

    @property
    def events(self) -> int:
        """Events applied up to it, rejected ones left out."""
        return counted(self.manifest.counters, *APPLIED)

    def scorer_of(self, key: str) -> Scorer | None:
        """Scores of one key's model, made now; None where it has none. Raises LearnerError."""
        model = None if self.keys is None else self.keys.model_of(key)
        return None if model is None else Scorer(model.form(), self.objects)


class CandidateCache:
    """Opens versions and keeps those in use open: version 0, the best, the one being judged.

    Memory: the catalog as read and as mapped, and per open version its serving form (a matrix of the
    learner's dimension, 4 d^2 bytes; none for an untrained version 0) and one float32 per catalog object.
    """

    def __init__(
        self, versions: VersionStore, space: SpaceSpec, catalog: Catalog | None, serving: ServingConfig
    ) -> None:
        self._versions = versions
        self._space = space
        self._catalog = catalog
        self._serving = serving
        self._open: dict[int, Candidate] = {}
        self._objects: MappedObjects | None = None

    @property
    def objects(self) -> MappedObjects:
        """The objects under the map of the versions opened so far; open one first."""
        assert self._objects is not None
        return self._objects

    def open(self, number: int) -> Candidate:
        """The version, loaded and checked unless it is open already. Raises Refused, UserError."""
        if number not in self._open:
            try:
                self._open[number] = self._load(number)
            except (Damaged, KeyMissing, LearnerError) as error:
                raise CandidateRejected(str(error)) from error
        return self._open[number]

    def keep(self, *numbers: int | None) -> None:
        """Close every open version but these."""
        self._open = {number: one for number, one in self._open.items() if number in numbers}

    def _load(self, number: int) -> Candidate:
        version = self._versions.load(number)
        self._refuse_other_inputs(version.manifest)
        objects = self._mapped(version)
        form = self._form_of(version)
        if form.dim != objects.dim:
            raise CandidateRejected(f"the learner has {form.dim} dimensions, the map gives {objects.dim}")
        keys = form if isinstance(form, KeyedForm) else None
        W = version.arrays.get("W")
        symmetry = None if W is None or W.ndim != 2 else symmetry_index(W)
        return Candidate(version.manifest, Scorer(form, objects), objects, keys, symmetry)

    def _form_of(self, version: Version) -> ServedForm:
        """The version's serving form; version 0 stays open for good, so its W = I is not held."""
        form = serving_form(self._versions, version, self._serving)
        W, folded = version.arrays.get("W"), folds(form) and not by_distance(form)
        if folded and version.manifest.number == 0 and W is not None and W.ndim == 2 and is_identity(W):
            return IdentityForm(form.dim, form.normalised)
        return form

    def _mapped(self, version: Version) -> MappedObjects:
        if self._objects is None or self._objects.map_id != version.manifest.map.get("id"):
            fitted = map_of(version)
            self._objects = MappedObjects(self._space, self._catalog, fitted)
        return self._objects

    def _refuse_other_inputs(self, manifest: Manifest) -> None:
        digest = None if self._catalog is None else self._catalog.digest
        if manifest.space != self._space.id or manifest.catalog_digest != digest:
            raise UserError(
                f"version {manifest.number} was learned in space {manifest.space!r} with catalog "
                f"{manifest.catalog_digest}; configured are {self._space.id!r} and {digest}",
                "put space.id and catalog.path back, or point checkpoints.path to the folder learned so",
                EX_DATAERR,
            )
