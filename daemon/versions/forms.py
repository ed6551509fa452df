"""What versions of a learner are served as: one kind of form per family of learners, made as [serving] says.

A learned matrix W: symmetric, PSD, sharpened, normalised. OMKS over maps: block-diagonal, PSD, sharpened, its
weights folded in. OKS and OMKS over a support set: a form that scores a few items for each query. One model
per key: version 0's form, and for each key the form of its own model.

`FormChoice` is the form of one version where forms are `judged`: `DEFAULT_FORM`, or what judgments chose.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from daemon.config.schema import ServingConfig
from daemon.exits import UserError
from learners.base import Learner
from learners.block import Block, Float32s
from learners.forms.blocks import BlocksForm
from learners.forms.lowrank import LowRankBase, low_rank_form
from learners.forms.quadratic import DiagonalForm, FoldingForm, Pieces, ServedForm, by_distance, whole
from learners.forms.serving import (
    BACKOFF,
    DEFAULT_POWER,
    FAMILIAR,
    BackoffForm,
    Beside,
    ServingForm,
    learned_of,
    usual_ratio,
)
from learners.keyed import Keyed
from learners.loreta import Loreta
from learners.maps.base import OwnRanking
from learners.merge import State
from learners.multikernel import Omks
from learners.multikernel.form import MOST_OBJECTS, AsLearned, SupportsForm
from learners.oasis_sparse import OasisSparse
from learners.omks_maps import OmksMaps
from learners.psd import MAX_FULL_DIM
from learners.tether import untethered

Own: TypeAlias = OwnRanking | None

_NUMBERS = ("power", "own_share", "familiar", "usual")
_BACKOFF, _FORMER_BACKOFF = "backoff", 12.0
"""And what earlier releases left out, since they had one for all."""
_FAMILIARITY = "usual_familiarity"
_SCORE, _RAW = "score", "raw"
"""What stands beside them where scores are raw; releases before it read a kept form as it is, and make others
normalised."""


@dataclass(frozen=True, slots=True)
class FormChoice:
    """power: of the eigenvalues. own_share: of the own ranking beside what was learned, and more of it, by
    the power `backoff`, where a query has less in common with that than `familiar` times what is `usual`
    (`learners.forms.serving`);
    usual_familiarity: the same of the form that shows what is in common, where that is another one.
    raw: scores without norms instead, and nothing beside, as an earlier release could choose. why: a
    sentence.
    """

    power: float
    own_share: float
    familiar: float = FAMILIAR
    usual: float = 1.0
    why: str = ""
    raw: bool = False
    usual_familiarity: float = 1.0
    backoff: float = BACKOFF

    @property
    def told(self) -> str:
        """A description of the choice in words."""
        if self.raw:
            return "raw scores of what was learned"
        if not self.own_share:
            return f"power {self.power:g} and nothing of your own ranking"
        return f"power {self.power:g} with {self.own_share:g} of your own ranking"

    @property
    def gives_way(self) -> bool:
        """Whether there is a share of the own ranking, and more of it where little is known of a query."""
        return bool(self.own_share) and not self.raw

    def beside(self, learned: ServingForm, own: OwnRanking) -> ServedForm:
        """What was learned, at this power and raw where that is, with the own ranking beside."""
        if not self.gives_way:
            return learned
        usual = self.usual, self.familiar
        more = {"backoff": self.backoff, "usual_familiarity": self.usual_familiarity}
        return BackoffForm.beside(learned, own.metric, self.own_share, *usual, **more)

    def with_usual(self, learned: ServingForm, own: OwnRanking, queries: Block) -> Self:
        """The choice with the usual ratio of some queries, which says nothing of what was clicked; learned:
        by this choice, without the own ranking."""
        if not self.gives_way:
            return self
        usual = usual_ratio(learned, own.metric, queries)
        shown = 1.0 if learned.familiarity is None else usual_ratio(learned.familiarity, own.metric, queries)
        return replace(self, usual=usual, usual_familiarity=shown)

    def to_json(self) -> dict[str, Any]:
        """The choice as JSON, kept with the version."""
        raw = {_SCORE: _RAW} if self.raw else {}
        shown = {_FAMILIARITY: self.usual_familiarity} if self.usual_familiarity != 1 else {}
        numbers = {name: getattr(self, name) for name in (*_NUMBERS, _BACKOFF)}
        return {**numbers, **shown, **raw, "why": self.why}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse. KeyError, TypeError or ValueError for anything else."""
        power, own_share, familiar, usual = (float(found[name]) for name in _NUMBERS)
        raw, shown = found.get(_SCORE) == _RAW, float(found.get(_FAMILIARITY, 1.0))
        backoff = float(found.get(_BACKOFF, _FORMER_BACKOFF))
        return cls(power, own_share, familiar, usual, str(found["why"]), raw, shown, backoff)


DEFAULT_FORM = FormChoice(power=1.5, own_share=0.1, familiar=FAMILIAR, backoff=BACKOFF)
"""Of every version, unless judged queries choose another: sharp, with a little of the user's own ranking, and
more of it the less a query has in common with what was learned. One
form for all: clicks of held-out lists are too few to choose by, and to be looked at again with each version
(docs/decisions/086)."""


FormByChoice: TypeAlias = Callable[[FormChoice], ServingForm]
"""What was learned, at the power of a choice, and raw where that is; without the own ranking."""

AS_LEARNED = "as_learned"
"""Of `serving.form`."""
CARRIED, ANEW, HELD, VERSIONS = "carried", "anew", "held", "versions"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormKind:
    """Makes forms of learners.

    kept: whether they are stored beside their versions. follows: how one keeps up with steps: `CARRIED` on to
    first order, made `ANEW` with each, `HELD` as it is until another one is made, or only by `VERSIONS`. A
    form that is held refers to none of the learner's arrays.
    """

    kept: bool = False
    follows: str = ANEW

    def served(self, config: ServingConfig) -> FormKind:
        """The kind that these settings serve: this one, or the scores as they were learned."""
        return self.as_learned() if config.form == AS_LEARNED else self

    def as_learned(self) -> FormKind:
        """The scores of the same learners as they were learned."""
        return AsLearnedForms(follows=self.follows)

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """Whether a form of this dimension is a matrix [dim, dim] of its own."""
        return False

    def make(
        self,
        learner: Learner,
        number: int,
        config: ServingConfig,
        own: Own = None,
        choice: FormChoice | None = None,
    ) -> ServedForm:
        """The form of a learner at version `number`, 0 untrained; it may read the learner's arrays in place.
        own: the user's own ranking where the map keeps it; the untrained version answers with it, whatever
        the learner is. choice: of its form where that is judged, None for what the settings say. Raises
        UserError for settings that do not suit it.
        """
        if number == 0 and own is not None:
            return own.form()
        if self.served(config) is not self:
            return self.as_learned().make(learner, number, config, own)
        scored = as_scored(config, own)
        if choice is None or own is None or not self.is_judged(config, own):
            return self.trained(learner, number, scored, own)
        return choice.beside(self.by_choice(learner, number, scored, own)(choice), own)

    def is_judged(self, config: ServingConfig, own: Own) -> bool:
        """Whether each version gets a form of its own, a `FormChoice`."""
        return False

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """The form of what was learned, see `make`; config: `as_scored`."""
        raise NotImplementedError

    def by_choice(
        self, learner: Learner, number: int, config: ServingConfig, own: OwnRanking
    ) -> FormByChoice:
        """Where `is_judged`: what was learned, each decomposition made once; config: `as_scored`."""
        raise LookupError("no form of this kind is chosen")

    def read(self, arrays: State, learner: Learner, own: Own = None) -> ServedForm:
        """The form of a learner from what `arrays` gave of it. Raises StateError."""
        raise LookupError("no form of this kind is stored")

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """The arrays of a form that are stored."""
        return cast(Any, form).arrays() if self.kept else {}

    def account(self, form: ServedForm) -> dict[str, Any]:
        """How a form was made, for people."""
        return {}


@dataclass(frozen=True, slots=True)
class AsLearnedForms(FormKind):
    """The scores of learners as their papers have them: neither symmetric nor positive semi-definite,
    sharpened, normalised nor mixed with anything. Nothing is computed, so nothing is kept."""

    def as_learned(self) -> FormKind:
        """Itself."""
        return self

    def served(self, config: ServingConfig) -> FormKind:
        """Itself."""
        return self

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """`as_learned` of the learner, in place where the form is made anew with each step."""
        return learner.as_learned(copy=self.follows != ANEW)


def as_scored(config: ServingConfig, own: Own) -> ServingConfig:
    """The settings with a score that is named: the learned cosine, but raw where the user's own ranking goes
    by lengths too."""
    if config.score != "auto":
        return config
    raw = own is not None and own.similarity != "cosine"
    return config.model_copy(update={"score": "raw" if raw else "normalised"})


AnyForm = TypeVar("AnyForm", ServingForm, BlocksForm, DiagonalForm)


def with_distance(form: AnyForm, own: Own) -> AnyForm:
    """The form as minus a distance where the own ranking goes by that and scores are raw."""
    return replace(form, distance=own is not None and own.by_distance and not form.normalised)


@dataclass(frozen=True, slots=True)
class UnstoredForms(FormKind):
    """Forms that are made from the state in no time, and stored nowhere; `form_of` makes one."""

    form_of: Callable[[Any, ServingConfig], ServedForm]

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """See `form_of`."""
        form = self.form_of(learner, config)
        return with_distance(form, own) if isinstance(form, DiagonalForm) else form


@dataclass(frozen=True, slots=True)
class TouchedForms(FormKind):
    """Forms of learners that keep touched entries alone, read in place: of the symmetric part of W, or of W
    itself where `psd` is off, which needs half the memory. Where the own ranking goes by distance they are
    normalised."""

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """See `OasisSparse.form`."""
        normalised = config.score != "raw" or (own is not None and own.by_distance)
        return cast(OasisSparse, learner).form(normalised, copy=False, symmetric=config.psd != "off")


@dataclass(frozen=True, slots=True)
class MatrixForms(FormKind):
    """Forms of learners with a matrix `W`; kept beside their version, since each takes an
    eigendecomposition.

    follows: CARRIED where W, or what of it moves with each step, is the array `W` of the state, so that a
    form can follow it; HELD where W is made anew of several. distance: the learner's raw score is minus a
    distance; normalised, it is the cosine of the same S. familiar: what of the learner shows how much a query
    has in common with what was learned, float32 [dim, dim]; None: W does.
    """

    kept: bool = True
    follows: str = CARRIED
    distance: bool = False
    familiar: Callable[[Any], Float32s] | None = None

    def as_learned(self) -> FormKind:
        """W itself where it is the array `W` of the state, else a matrix that is made of several."""
        own_array = self.follows == CARRIED and self.familiar is None
        return AsLearnedForms(follows=ANEW if own_array else HELD)

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """See `has_matrix`."""
        return has_matrix(config, dim)

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """`make_form` of the learner's W."""
        return self._as_scored(make_form(cast(Any, learner).W, number, config, own), own)

    def is_judged(self, config: ServingConfig, own: Own) -> bool:
        """Where the own ranking is known to give way to, and scores are normalised: beside others a share of
        it would mean another thing for every object."""
        normalised = as_scored(config, own).score == "normalised" and config.psd != "off"
        return config.form == "judged" and own is not None and normalised

    def by_choice(
        self, learner: Learner, number: int, config: ServingConfig, own: OwnRanking
    ) -> FormByChoice:
        """See `by_choice`."""
        alone = config.model_copy(update={"own_share": 0.0})

        @cache
        def at_power(power: float) -> ServingForm:
            made = make_form(cast(Any, learner).W, number, alone.model_copy(update={"power": power}))
            return self._as_scored(made, own)

        @cache
        def familiarity() -> ServingForm | None:
            if self.familiar is None:
                return None
            as_shown = alone.model_copy(update={"power": DEFAULT_POWER})
            return make_form(self.familiar(learner), number, as_shown)

        def of(choice: FormChoice) -> ServingForm:
            made = at_power(choice.power)
            if choice.gives_way:
                return replace(made, familiarity=familiarity())
            return self._as_scored(replace(made, normalised=False), own) if choice.raw else made

        return of

    def read(self, arrays: State, learner: Learner, own: Own = None) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        W = None if "matrix" in arrays else cast(Any, learner).W  # a copy where steps are pending
        form = self._as_scored(ServingForm.from_arrays(arrays, W), own)
        return BackoffForm.from_arrays(arrays, form) if BackoffForm.is_in(arrays) else form

    def account(self, form: ServedForm) -> dict[str, Any]:
        """As `account`, with the share of the own ranking beside."""
        learned = learned_of(form)
        assert isinstance(learned, ServingForm)
        beside = {"own_share": form.share} if isinstance(form, BackoffForm) else {}
        return account(learned) | beside

    def _as_scored(self, form: ServingForm, own: Own) -> ServingForm:
        return replace(form, distance=not form.normalised) if self.distance else with_distance(form, own)


def make_form(W: Float32s, number: int, config: ServingConfig, own: Own = None) -> ServingForm:
    """The serving form of W, by `psd`: `full`, `lanczos`, `auto` (full up to `full_max_dim`) or `off`.

    Version 0 is untrained, W = I: its form is W itself. own: what `own_share` of is mixed into a full
    decomposition. `power` applies where it has a meaning, to the
    normalised score with all eigenvalues at hand; score "raw", psd "off" and psd "lanczos" (also where `auto`
    falls back to it) have power 1, so that each key can be changed alone. Raises UserError when `full` is
    asked above MAX_FULL_DIM.
    """
    dim, normalised = W.shape[0], config.score != "raw"
    if number == 0 or config.psd == "off" or dim == 1:
        return ServingForm(None, np.zeros((dim, 0), np.float32), np.zeros(0, np.float32), normalised, W)
    if config.psd == "full" and dim > MAX_FULL_DIM:
        raise UserError(
            f"serving.psd: a full eigendecomposition of {dim} dimensions takes too long "
            f"(at most {MAX_FULL_DIM})",
            'set serving.psd to "auto" or "lanczos"',
        )
    full_up_to = dim if has_matrix(config, dim) else 0
    pairs = min(config.lanczos_pairs, dim - 1)
    beside = Beside(own.metric, config.own_share) if own is not None and config.own_share else None
    return ServingForm.from_matrix(W, normalised, full_up_to, pairs, config.power, beside=beside)


def has_matrix(config: ServingConfig, dim: int) -> bool:
    """Whether the form of a trained W of this dimension is a second matrix: by a full decomposition."""
    return dim > 1 and (config.psd == "full" or (config.psd == "auto" and dim <= config.full_max_dim))


def power_of(config: ServingConfig) -> float:
    """What the eigenvalues of a full decomposition are raised to."""
    return config.power if config.score != "raw" else 1.0


def account(form: ServingForm) -> dict[str, Any]:
    """How a form was made, for people: psd {full, lanczos, off}, the power that applied, and what was removed
    ({negatives, share of the spectrum's absolute sum, null where unknown}).
    """
    removed = form.removed
    if removed is None:
        return {"psd": "off", "power": 1.0, "negatives": 0, "share": None}
    psd = "lanczos" if form.matrix is None else "full"
    return {"psd": psd, "power": form.power, "negatives": removed.negatives, "share": removed.share}


@dataclass(frozen=True, slots=True)
class LowRankForms(FormKind):
    """Forms of a correction of low rank: that of the shared matrix, made once and kept in memory for all
    models of it, and the pairs of the correction. Cheap, and stored nowhere."""

    follows: str = HELD

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """See `has_matrix`."""
        return has_matrix(config, dim)

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """By `make_form` of the shared matrix, and `low_rank_form` of the rest."""
        made = cast(Loreta, learner)
        form = low_rank_form(_shared_base(made.start, config, own), made.U[: made.rank], made.V[: made.rank])
        return with_distance(form, own)


BASES_KEPT = 4
_bases: OrderedDict[tuple[str, str, str], LowRankBase] = OrderedDict()
_bases_lock = threading.Lock()


def _shared_base(start: Float32s, config: ServingConfig, own: Own) -> LowRankBase:
    """The form of a shared matrix by these settings; the newest few are kept."""
    beside = "" if own is None or not config.own_share else hashlib.sha256(own.metric.tobytes()).hexdigest()
    name = hashlib.sha256(start.tobytes()).hexdigest(), config.model_dump_json(), beside
    with _bases_lock:
        base = _bases.get(name)
        if base is None:
            kept = start.copy()
            base = _bases[name] = LowRankBase.of(make_form(kept, 1, config, own), kept)
        _bases.move_to_end(name)
        while len(_bases) > BASES_KEPT:
            _bases.popitem(last=False)
    return base


@dataclass(frozen=True, slots=True)
class BlocksForms(FormKind):
    """Forms of learners with a matrix for each block; kept beside their version, since each takes an
    eigendecomposition of every block.
    """

    kept: bool = True
    follows: str = HELD

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """The form by `score`, `psd` and `power`; blocks are decomposed whole. Raises UserError where they
        cannot be.
        """
        made = cast(OmksMaps, untethered(learner))
        if config.psd == "lanczos":
            message = 'serving.psd: "lanczos" is no form of omks-maps, whose blocks are decomposed whole'
            raise UserError(message, 'set serving.psd to "auto"')
        psd = config.psd != "off"
        if psd and max(made.config.widths) > MAX_FULL_DIM:
            raise UserError(
                f"a block of {max(made.config.widths)} columns takes too long to decompose "
                f"(at most {MAX_FULL_DIM})",
                "give the view's kernels fewer components, or whiten the view",
            )
        return with_distance(made.form(config.score != "raw", config.power if psd else None), own)

    def read(self, arrays: State, learner: Learner, own: Own = None) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        return with_distance(BlocksForm.from_arrays(arrays), own)

    def account(self, form: ServedForm) -> dict[str, Any]:
        """How many blocks there are."""
        return {"psd": "full", "blocks": len(cast(BlocksForm, form).widths)}


@dataclass(frozen=True, slots=True)
class SupportsForms(FormKind):
    """Forms of learners over a support set; kept beside their version, since making one takes a
    decomposition. None of them folds."""

    kept: bool = True
    follows: str = HELD

    def trained(self, learner: Learner, number: int, config: ServingConfig, own: Own) -> ServedForm:
        """The form by `score`, `psd` and `power`; "off" serves the similarity as it was learned.
        Raises UserError."""
        if config.psd == "lanczos":
            message = 'serving.psd: "lanczos" is no form of oks and omks, which have no matrix'
            raise UserError(message, 'set serving.psd to "auto"')
        power, kept = None if config.psd == "off" else config.power, cast(Omks, learner).support.objects
        if power is not None and kept > MOST_OBJECTS:
            message = f"serving.psd: a form of {kept} kept objects takes too long (at most {MOST_OBJECTS})"
            raise UserError(message, 'lower learner.objects, or set serving.psd to "off"')
        return cast(Omks, learner).form(config.score != "raw", power)

    def read(self, arrays: State, learner: Learner, own: Own = None) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        kind = AsLearned if "triplets" in arrays else SupportsForm
        return kind.from_arrays(arrays, cast(Omks, learner).config)

    def account(self, form: ServedForm) -> dict[str, Any]:
        """Of how many objects, and how many eigenvectors each kernel has."""
        if isinstance(form, AsLearned):
            return {"psd": "off", "objects": form.support.objects}
        made = cast(SupportsForm, form)
        return {"psd": "ends", "objects": len(made.objects), "vectors": made.values.shape[1]}


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
class KeyedForms(FormKind):
    """Forms of learners with one model per key: `inner` makes them for one model, when it is asked for.

    begins_learned: the models begin from what others learned, so that is what answers where a key has none.
    """

    inner: FormKind
    begins_learned: bool = False

    def as_learned(self) -> FormKind:
        """The same of each model."""
        return KeyedForms(self.inner.as_learned(), self.begins_learned)

    def make(
        self,
        learner: Learner,
        number: int,
        config: ServingConfig,
        own: Own = None,
        choice: FormChoice | None = None,
    ) -> KeyedForm:
        """Version 0's form, and the means to make each key's; what all queries tell is no choice for one."""
        inner, keyed = self.inner.served(config), cast(Keyed, learner)
        first = 1 if self.begins_learned else 0
        base = cast(FoldingForm, inner.make(keyed.untrained, first, config, own))

        def form_of(model: Learner) -> FoldingForm:
            return cast(FoldingForm, inner.make(model, max(1, number), config, own))

        return KeyedForm(base, keyed, form_of)
