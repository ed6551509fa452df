"""Vectors for an index that is not ours, by the model that answers (`learners.forms.embedding`).

`embedded`: in the space of the vectors that `models export --form served` writes of the same version.
`folded`: queries alone, in the space of the vectors as they were given (`learners.maps.linear`). `own`: the
same by the owner's ranking, whatever was learned.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from scipy import sparse

from daemon.replica.view import ModelId, View
from daemon.versions.forms import KeyedForm
from learners.block import Block, DenseBlock, Float32s, as_block
from learners.forms.carried import CarriedForm
from learners.forms.embedding import Embedding, GivenForm, Root, given_form, root_of
from learners.forms.quadratic import FoldingForm, inverse_roots
from learners.forms.serving import learned_of
from learners.maps import FittedSpaceMap
from learners.maps.linear import linear_space

Mode: TypeAlias = Literal["folded", "embedded"]
"""Of a query: for an index of given vectors, and for one of exported vectors."""
WantedVector: TypeAlias = Literal["folded", "embedded", "document", "own"]
"""The same, an object as a document of an index of exported vectors, and a query by the owner's ranking."""
ReadView: TypeAlias = Callable[[], AbstractContextManager[View]]

ROOTS = 4
"""Models whose root is kept."""
TRIES = 3
"""How often a root is recomputed when the model changes meanwhile."""


class NoVectorsError(ValueError):
    """A model has no vectors of the kind that was asked for. `code` is short, for programs."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code, self.remedy = code, remedy


@dataclass(frozen=True, slots=True)
class GivenView:
    """Where a view lies in a folded vector. unit: whether the index is to hold it at unit length."""

    name: str
    start: int
    dim: int
    unit: bool


@dataclass(frozen=True, slots=True)
class MadeVectors:
    """rows: one for each object. similarity: what of a query's vector and a document's is the score, folded
    ones up to what is each object's own. symmetric: whether an object has one vector for both sides, always
    False where they are folded. model, formed: as in `View`. views: of a folded vector, () of another.
    top: as in `View`; where it is set, vectors are folded by the user's own ranking."""

    rows: Block
    similarity: str
    symmetric: bool
    model: ModelId
    formed: int
    views: tuple[GivenView, ...] = ()
    top: int | None = None


class VectorMaker:
    """Makes vectors by the model of a moment. Any thread; a model's root is computed once, by the first who
    asks for embedded vectors."""

    def __init__(self, fitted: FittedSpaceMap) -> None:
        self._linear, self._own = linear_space(fitted), fitted.own
        self._roots: OrderedDict[ModelId, Root | None] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._given: OrderedDict[tuple[ModelId, bool], GivenForm | None] = OrderedDict()
        self._making_given = threading.Lock()

    @property
    def views(self) -> tuple[GivenView, ...]:
        """Where each view lies in a folded vector; () where the map is not linear."""
        views = () if self._linear is None else self._linear.views
        return tuple(
            GivenView(one.name, one.columns.start, one.columns.stop - one.columns.start, one.unit)
            for one in views
        )

    def make(self, read: ReadView, mapped: Block, wanted: WantedVector) -> MadeVectors:
        """Make the vectors of mapped objects by the model that `read` gives. Raises NoVectorsError."""
        if wanted in ("folded", "own"):
            with read() as view:
                by_owner = replace(view, form=view.by_owner(self._own)) if wanted == "own" else view
                return self._folded(by_owner, mapped)
        for _ in range(TRIES):
            with read() as view:
                _refuse(view)
                known, root = self._known(view.model)
                if known:
                    return _embedded(view, mapped, root, wanted)
                model, form = view.model, copy.deepcopy(view.form)  # readers must not keep a model for long
            with self._making:
                if not self._known(model)[0]:
                    with self._lock:
                        self._roots[model] = root_of(form)
                        while len(self._roots) > ROOTS:
                            self._roots.popitem(last=False)
        raise NoVectorsError("busy", "the model changed while it was prepared", "ask again shortly")

    def fold_given(self, read: ReadView, rows: Float32s, *, begin: bool = True) -> MadeVectors | None:
        """`make` of folded queries from their given vectors, float32 [n, dim], of the space's only view, by a
        form that was taken back to these (`learners.forms.embedding`): to rounding the same, in a fraction of
        the time. None where a model has none, or none yet: the first request that may `begin` has it made in
        a thread, for which it copies the form."""
        with read() as view:
            model, formed, top = view.model, view.formed, view.top
            of = model, top is None
            with self._lock:
                known, form = of in self._given, self._given.get(of)
            follows = model.behind or isinstance(learned_of(view.form), CarriedForm)
            refused = follows or view.rescored or isinstance(view.form, KeyedForm)
            if begin and not known and not refused and self._making_given.acquire(blocking=False):
                self._take_back(of, copy.deepcopy(view.search))
        if form is None:
            return None
        folded = DenseBlock(form.fold(rows))
        return MadeVectors(folded, "inner_product", False, model, formed, self.views, top)

    def _take_back(self, of: tuple[ModelId, bool], search: FoldingForm) -> None:
        """Make the form for given vectors in a thread, which lets the next one begin."""

        def work() -> None:
            try:
                made = None if self._linear is None else given_form(search, self._linear)
                with self._lock:
                    self._given[of] = made
                    while len(self._given) > ROOTS:
                        self._given.popitem(last=False)
            finally:
                self._making_given.release()

        threading.Thread(target=work, name="tripletd-given-form", daemon=True).start()

    def _folded(self, view: View, mapped: Block) -> MadeVectors:
        if view.rescored or isinstance(view.form, KeyedForm):
            _refuse(view)
        if self._linear is None:
            message = "the map of this space is not linear: no given vector stands for a folded query"
            remedy = "ask for the mode embedded, and index exported vectors"
            raise NoVectorsError("not_linear", message, remedy)
        folded = view.fold(mapped)
        if view.normalised:
            folded = folded * inverse_roots(view.self_scores(mapped))[:, None]
        given: Block = DenseBlock(self._linear.back(folded))
        if self._linear.sparse:
            given = as_block(sparse.csr_array(given.values))
        about = view.model, view.formed, self.views, view.top
        return MadeVectors(given, "inner_product", False, *about)

    def _known(self, model: ModelId) -> tuple[bool, Root | None]:
        with self._lock:
            if model not in self._roots:
                return False, None
            self._roots.move_to_end(model)
            return True, self._roots[model]


def _embedded(view: View, mapped: Block, root: Root | None, wanted: WantedVector) -> MadeVectors:
    embedding = Embedding(view.search, root)
    rows = embedding.documents(mapped) if wanted == "document" else embedding.queries(mapped)
    return MadeVectors(rows, embedding.similarity, embedding.symmetric, view.model, view.formed)


def _refuse(view: View) -> None:
    """Raise NoVectorsError for a model of which nothing is exported."""
    if isinstance(view.form, KeyedForm):
        message = "one model per key is learned here: there is no one space of vectors"
        remedy = "ask /v1/similar with a key, or export a key's model: tripletd models export --key"
        raise NoVectorsError("one_model_per_key", message, remedy)
    if view.rescored:
        message = "the similarity of this model is no inner product of finite vectors"
        remedy = "ask /v1/similar; models of omks-maps and oasis have vectors"
        raise NoVectorsError("no_vectors", message, remedy)
    if view.top is not None:
        first = f"the first {view.top}" if view.reordered_first else "lists"
        raise NoVectorsError(
            "order_only",
            f"version {view.model.version} orders lists, and is not shown to search better",
            f"index your own vectors, ask for the mode folded, and have {first} put in order: "
            "/v1/similar with filter.include, or /v1/rerank",
        )
    if view.model.behind or isinstance(learned_of(view.form), CarriedForm):
        message = "this name follows the learner step by step, and vectors are exported of versions"
        remedy = "ask a name that stands for versions, such as stable, or for the mode folded"
        raise NoVectorsError("between_versions", message, remedy)


def as_numbers(rows: Block) -> Iterator[list[float] | dict[str, list[Any]]]:
    """Each row as JSON has it, `{"indices": ..., "values": ...}` where it is sparse."""
    if isinstance(rows, DenseBlock):
        yield from rows.values.tolist()
        return
    for start, stop in zip(rows.indptr, rows.indptr[1:], strict=False):
        yield {"indices": rows.indices[start:stop].tolist(), "values": rows.values[start:stop].tolist()}
