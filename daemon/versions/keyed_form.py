"""What versions with one model per key are served as: version 0's form, and for each key the form of its own
model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from numpy.typing import NDArray

from daemon.config.model import ServingConfig
from daemon.versions.forms import ANEW, FormKind
from learners.block import Float32s
from learners.forms.quadratic import FoldingForm, Pieces, by_distance, whole
from learners.keyed import Keyed
from learners.protocol import Learner


@dataclass(frozen=True, slots=True, eq=False)
class KeyedForm:
    """The untrained form, which scores what is asked without a key, and the models of the keys.

    base: of a model before any event. learner: all models; read while a key's form is made, never kept by
    that. form_of: the form of one model, on arrays of its own.
    """

    base: FoldingForm
    learner: Keyed
    form_of: Callable[[Learner], FoldingForm]

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.base.dim

    @property
    def normalised(self) -> bool:
        """Whether a score is divided by sqrt(S(q, q) S(p, p))."""
        return self.base.normalised

    @property
    def distance(self) -> bool:
        """Whether the raw score is minus a distance."""
        return by_distance(self.base)

    def fold(self, queries: Any) -> Float32s:
        """S q under the untrained form, float32 [n, d]."""
        return self.base.fold(queries)

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p under the untrained form, float32 [n]."""
        return self.base.self_scores(items, pieces)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs under the untrained form, float32 [queries, items]."""
        return self.base.scores(queries, items)

    def __contains__(self, key: str) -> bool:
        return self.learner.learner_of(key) is not None

    def model_of(self, key: str) -> KeyModel | None:
        """The key's model as it is now, copied; None for a key that has none."""
        learner = self.learner.learner_of(key)
        return None if learner is None else KeyModel.of(learner.clone(), self.form_of)


@dataclass(frozen=True, slots=True, eq=False)
class KeyModel:
    """One key's model, independent of the version it was read from. digest: sha256 of its arrays: two models
    of one digest have the same form.
    """

    digest: str
    learner: Learner
    form_of: Callable[[Learner], FoldingForm]

    @classmethod
    def of(cls, learner: Learner, form_of: Callable[[Learner], FoldingForm]) -> Self:
        """Of a learner that nobody changes any more."""
        digest = hashlib.sha256()
        for name, array in sorted(learner.state().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
            digest.update(array.tobytes())
        return cls(digest.hexdigest(), learner, form_of)

    def form(self) -> FoldingForm:
        """What it is served as, made now."""
        return self.form_of(self.learner)


@dataclass(frozen=True, slots=True)
class KeyedForms:
    """Forms of learners with one model per key: `inner` makes them for one model, when it is asked for."""

    inner: FormKind
    follows: str = ANEW
    kept: bool = False

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """Never: a key's matrix is made when it is asked for."""
        return False

    def make(self, learner: Learner, number: int, config: ServingConfig) -> KeyedForm:
        """Version 0's form, and the means to make each key's."""
        keyed = cast(Keyed, learner)
        base = cast(FoldingForm, self.inner.make(keyed.untrained, 0, config))

        def form_of(model: Learner) -> FoldingForm:
            return cast(FoldingForm, self.inner.make(model, max(1, number), config))

        return KeyedForm(base, keyed, form_of)

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> KeyedForm:
        """Never asked for: nothing is stored."""
        raise LookupError("no form of this kind is stored")

    def arrays(self, form: object) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def account(self, form: object) -> dict[str, Any]:
        """Nothing."""
        return {}
