"""What is learned, and on what: the views of an object with their maps, [learner] with the keys of every
algorithm, [caps] and [keys].

Two algorithms may have a key of one name; it then has one type, since environment and command line give a
value as text before the algorithm is known. Whatever imports numba is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from daemon.config.values import Numbers, Section
from learners.kernels.kinds import MAP_KERNELS, KernelName

if TYPE_CHECKING:
    from learners.arms import ArmConfig
    from learners.caps import CapsConfig
    from learners.hedge import HedgeConfig
    from learners.multikernel.config import KernelConfig


Scaling: TypeAlias = Literal[
    "identity", "unit", "standardise", "whiten", "pca", "precondition", "tfidf", "shares", "sqrt"
]

ORDERED_FROM = 2_048
"""Columns of a sparse view from which their order is worth it: W has 16 MB, more than lies near a core."""
GAIN_BY_ORDER = ("oasis", "oasis-averaged", "dissim-oasis")
"""Algorithms whose steps on sparse rows read and write W entry by entry."""

DENSE_ONLY = ("standardise", "whiten", "pca", "precondition")
SPARSE_ONLY = ("tfidf",)

KERNEL_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "identity": (),
    "unit": (),
    "sqrt": (),
    "cosine": (),
    "rff": ("kernel", "components", "sigma", "bandwidth", "seed"),
    "hike": ("levels",),
    "nystroem": ("kernel", "laplacian", "landmarks", "components", "sigma", "bandwidth", "seed"),
    "pcalap": ("directions", "functions", "weighted", "sigma", "bandwidth"),
    "rplap": ("directions", "functions", "weighted", "sigma", "bandwidth", "seed"),
    "addkpca": ("kernel", "landmarks", "functions", "sigma", "bandwidth", "seed"),
}
"""The maps that stand for a kernel, or for smooth functions of the vectors, and their keys."""

DENSE_KERNELS = ("cosine", "pcalap", "rplap")
DIRECTIONS = {"pcalap": 50, "rplap": 1000}
"""Those of `learners.maps.separable`, whose import brings numba in."""


class KernelMapConfig(Section):
    """[[space.views.NAME.kernels]]: a kernel of the view's scaled vectors, as an explicit map."""

    map: Literal[
        "identity", "unit", "sqrt", "cosine", "rff", "hike", "nystroem", "pcalap", "rplap", "addkpca"
    ] = Field(
        description="the map whose dot product is, or approximates, the kernel; pcalap, rplap: smooth"
        " functions along principal or random directions"
    )
    kernel: Literal["", "gaussian", "exponential", "intersection"] = Field(
        "",
        description="rff: gaussian or exponential; nystroem: gaussian or intersection; addkpca: intersection"
        " or gaussian; empty: the first of these",
    )
    components: int = Field(256, ge=1, description="dimensions of rff; most eigenvectors of nystroem")
    sigma: float = Field(1.0, gt=0, description="width of the kernel, times bandwidth")
    bandwidth: float = Field(0.0, ge=0, description="a distance; 0 takes it from the warm-up sample")
    laplacian: bool = Field(False, description="nystroem: the normalised Laplacian's eigenvectors")
    landmarks: int = Field(
        0,
        ge=0,
        description="nystroem: rows of the sample that are kept, 0: 1,000; addkpca: values of each column,"
        " 0: 128",
    )
    directions: int = Field(
        0, ge=0, description="pcalap: principal directions, 0: 50; rplap: random ones, 0: 1,000"
    )
    functions: int = Field(2, ge=1, le=49, description="pcalap, rplap, addkpca: of each direction or column")
    weighted: bool = Field(False, description="pcalap, rplap: the smoothest functions weigh most")
    levels: int = Field(8, ge=1, description="hike: levels of each column's unary code")
    seed: int = Field(0, ge=0, lt=2**63, description="of what is drawn at random")

    @model_validator(mode="after")
    def _keys_belong_to_the_map(self) -> KernelMapConfig:
        known = KERNEL_OPTIONS[self.map]
        for name in sorted(self.model_fields_set - {"map", *known}):
            keys = ", ".join(known) or "no keys"
            raise ValueError(f'{name} is no key of map "{self.map}", which has {keys}; leave it out')
        if self.kernel and self.kernel not in MAP_KERNELS[self.map]:
            raise ValueError(f'map "{self.map}" has the kernels {" and ".join(MAP_KERNELS[self.map])}')
        return self

    def options(self) -> dict[str, Any]:
        """The map's options; what it has a default of its own for is left out."""
        options = {name: getattr(self, name) for name in KERNEL_OPTIONS[self.map]}
        own = {name for name in ("kernel", "landmarks", "directions") if not options.get(name)}
        return {name: value for name, value in options.items() if name not in own}

    def width(self, dim: int) -> int:
        """Most columns of what the map gives for vectors of `dim` columns."""
        directions = self.directions or DIRECTIONS.get(self.map, 0)
        widths = {
            "cosine": dim + 1,
            "rff": self.components,
            "nystroem": self.components,
            "hike": dim * self.levels,
            "pcalap": min(dim, directions) * self.functions,
            "rplap": directions * self.functions,
            "addkpca": dim * self.functions,
        }
        return widths.get(self.map, dim)


class ViewKeys(Section):
    """[space.views.NAME]: one named feature vector of an object and the maps it goes through."""

    kind: Literal["dense", "sparse"] = Field("dense", description="how the view's vectors are written")
    dim: int = Field(ge=1, le=100_000_000, description="dimensions of the view")
    map: Scaling | list[Scaling] = Field(
        "unit",
        description="scaling before learning, one or several; default precondition when dense, which loses"
        " nothing, unit when sparse, where more than 2,048 dense columns come together, and where another"
        " view names a map, components or kernels; whiten in a view that names components or kernels itself,"
        ' and with view_weights = "effective"',
    )
    weight: float = Field(1.0, gt=0, description="of this view in your own ranking, relative to the others")
    epsilon: float = Field(
        1.0,
        gt=0,
        description="precondition: how much of the mean second moment each direction is given; less, such as"
        " 0.1, where triplets come from labels",
    )
    components: int = Field(100, ge=1, description="most dimensions kept by whiten or pca")
    idf: Literal["smooth", "plain"] = Field(
        "smooth",
        description="tfidf: smooth, ln((1 + n) / (1 + n_j)) + 1, or plain, -ln(n_j / n), as the papers have"
        " it",
    )
    kernels: list[KernelMapConfig] = Field(
        default_factory=list, description="kernels of the scaled vectors, side by side; none: as they are"
    )
    column_order: Literal["auto", "given", "frequency"] = Field(
        "auto",
        description="of a sparse view inside W: as given, or by how many objects have a column, for faster"
        " steps; auto: by frequency from 2,048 columns on, for algorithms that gain by it, where there is a"
        " catalog to count",
    )

    @model_validator(mode="before")
    @classmethod
    def _map_by_kind(cls, data: Any) -> Any:
        # of a view that names components or kernels, or beside view_weights; else `SpaceConfig` has chosen
        if isinstance(data, dict) and "map" not in data and data.get("kind", "dense") == "dense":
            return {**data, "map": "whiten"}
        return data

    @model_validator(mode="after")
    def _map_suits_kind(self) -> ViewKeys:
        if not self.scalings:
            raise ValueError('map names none; use "identity" to change nothing')
        for name in self.scalings:
            if self.kind == "sparse" and name in DENSE_ONLY:
                raise ValueError(
                    f'map "{name}" needs a dense view; for sparse use "tfidf", "unit" or "identity"'
                )
            if self.kind == "dense" and name in SPARSE_ONLY:
                raise ValueError(
                    f'map "{name}" needs a sparse view; for dense use "precondition", "whiten" or "unit"'
                )
        if self.kind == "dense" and self.column_order == "frequency":
            raise ValueError('column_order = "frequency" needs a sparse view; leave it out')
        if self.kernels and self.column_order == "frequency":
            raise ValueError("kernels make other columns, whose order is theirs; leave column_order out")
        if self.kind == "sparse" and "components" in self.model_fields_set:
            raise ValueError("components belongs to whiten and pca, which need a dense view; leave it out")
        for one in self.kernels:
            if self.kind == "sparse" and one.map in DENSE_KERNELS:
                raise ValueError(
                    f'map "{one.map}" needs a dense view; for sparse use "unit", "nystroem" or "addkpca"'
                )
            if self.kind == "sparse" and one.map == "addkpca" and one.kernel == "gaussian":
                raise ValueError(
                    'map "addkpca" has the kernel gaussian for dense views alone; for sparse use intersection'
                )
        return self

    @property
    def scalings(self) -> list[str]:
        """The scalings in order."""
        return [self.map] if isinstance(self.map, str) else list(self.map)

    @property
    def needs_sample(self) -> bool:
        """Whether a map is fitted to objects, or draws on their distances."""
        fitted = {*DENSE_ONLY, *SPARSE_ONLY}
        by_kernel = any(
            one.map in {"hike", "nystroem", *DIRECTIONS, "addkpca"}
            or (one.map == "rff" and one.bandwidth == 0)
            for one in self.kernels
        )
        return by_kernel or bool(fitted & set(self.scalings)) or self.column_order == "frequency"

    def widths(self) -> list[int]:
        """Most columns of each block that the maps give."""
        scaled = min(self.dim, self.components) if {"whiten", "pca"} & set(self.scalings) else self.dim
        return [one.width(scaled) for one in self.kernels] or [scaled]


NEVER_ARMS: Mapping[str, str] = {
    **dict.fromkeys(("dissim-oasis", "lego", "lego-pairs"), "learns a distance"),
    "oasis-sparse": "is for sparse vectors",
    "omks-maps": "learns a matrix for each view",
    **dict.fromkeys(("oks", "omks"), "begins with a sample of objects"),
}
"""Algorithms that no arm can have, and why."""
OasisKinds: TypeAlias = Literal["oasis", "oasis-averaged", "oasis-softmax", "oasis-diagonal"]


def _arm_kind(given: Any) -> Any:
    if isinstance(given, str) and given in NEVER_ARMS:
        raise ValueError(f"{given} {NEVER_ARMS[given]}; an arm scores q^T W p of dense vectors: take oasis")
    return given


class ArmKeys(Section):
    """[[learner.race.arms]]: a further learner on the same events, for the order of given lists."""

    name: str = Field(max_length=64, pattern=r"^[a-z0-9_-]+$", description="lower-case letters, digits, _ -")
    kind: Annotated[
        Literal[OasisKinds, "soml-tg", "soml-da", "loreta", "adapter", "memory"], BeforeValidator(_arm_kind)
    ] = Field(
        "oasis",
        description="what learns: an algorithm of [learner]; adapter: a softmax of each clicked object"
        " against all objects of its minibatch; memory: of clicks by query, where queries come again: how"
        " many of the ten nearest remembered queries took an object",
    )
    pairs: Literal["all", "above"] = Field(
        "all", description="what it learns: every pair, or all but those below the click"
    )
    random: bool = Field(True, description="whether it learns pairs that were drawn at random")
    C: float = Field(
        0.05, gt=0, description="of an algorithm that has it: aggressiveness, the largest step size tau"
    )
    geometry: Literal["own", "space"] = Field(
        "own",
        description="all but memory: of its rows. own: unit rows whose inner product is your own cosine;"
        " space: as mapped",
    )
    queries: int = Field(
        4096,
        ge=1,
        le=1 << 20,
        description="memory: pairs of a query and a clicked object that are kept, each once; the oldest leave"
        " first",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="the other settings of its kind, by their names in [learner] and with their defaults;"
        " adapter: temperature 0.2, rate 0.001 (of Adam), batch 64 (events that are set against each other)",
    )

    @model_validator(mode="after")
    def _keys_are_of_its_kind(self) -> ArmKeys:
        if wrong := sorted(self.model_fields_set & self.arm().of_kind.foreign):
            raise ValueError(f"{', '.join(wrong)}: not of arms of kind {self.kind}; leave it out")
        return self

    def arm(self) -> ArmConfig:
        """The arm itself. Raises ConfigError."""
        from learners.arms import ArmConfig  # brings numba in, which most commands do without

        return ArmConfig.of({name: getattr(self, name) for name in type(self).model_fields})

    def shown(self) -> dict[str, Any]:
        """What is shown of it: the keys of its kind."""
        return self.model_dump(exclude=self.arm().of_kind.foreign)


MOST_ARMS = 7
ARMS_HELP = f'"auto", "none", or at most {MOST_ARMS} tables, each with a name of its own'


def _arms(given: Any) -> Any:
    if given is None or given == "auto":
        return None
    arms = [] if given == "none" else given
    tables = arms if isinstance(arms, list) else [None] * (MOST_ARMS + 1)
    names = [str(one["name"]) for one in tables if isinstance(one, dict) and "name" in one]
    if len(tables) > MOST_ARMS or len(set(names)) < len(names):
        raise ValueError(f"expected {ARMS_HELP}")
    return arms


class RaceKeys(Section):
    """[learner.race]: further learners on the same events, of which clicks choose who orders given lists."""

    arms: Annotated[
        list[ArmKeys] | None,
        BeforeValidator(_arms),
        PlainSerializer(lambda arms: "auto" if arms is None else [one.shown() for one in arms]),
    ] = Field(
        None,
        description=f"{ARMS_HELP}; auto: `all` and `above`, of these pairs, where one model of dense vectors"
        " of at most 1,024 dimensions is learned and your own ranking is a cosine; none otherwise",
    )


class LearnerConfig(Section):
    """[learner]: the algorithm and its constants; each algorithm narrows `algorithm` to its name and adds its
    own keys.
    """

    algorithm: str = Field(
        "oasis",
        description="learning algorithm; each is of a paper but oasis-softmax, which is tripletd's own: OASIS"
        " and a softmax over clicked objects",
    )
    dedupe_window: int = Field(
        100_000,
        ge=0,
        le=10_000_000,
        description="newest event ids remembered; a repeated one is dropped; 0 off",
    )
    pairs: Literal["above", "all"] = Field(
        "above",
        description="what is learned of lists: all pairs but those whose skipped object stood below the"
        " click, or every pair; pairs that do not say where it stood are always learned",
    )
    race: RaceKeys = Field(default_factory=lambda: RaceKeys.model_validate({}), description="arms")


class StartKeys(LearnerConfig):
    """What [learner] has for learners that begin from a metric."""

    start: Literal["auto", "identity", "own", "mean"] = Field(
        "auto",
        description="W before any event: the identity, the metric of your own ranking, or their mean; auto:"
        " the mean for one view, the identity for several; version 0 answers by your own ranking anyway",
    )


class ForgetKeys(StartKeys):
    """What [learner] has for learners that forget: see `learners.tether`."""

    pull_every: int = Field(
        0, ge=0, description="pull what is learned to its start after this many accepted events; 0 never"
    )
    decay: float = Field(0.0, ge=0, lt=1, description="share of what is learned that a pull takes away")

    @model_validator(mode="after")
    def _pulls_need_a_time(self) -> ForgetKeys:
        pulls = [name for name in ("decay", "radius") if name in type(self).model_fields]
        if any(getattr(self, name) for name in pulls) and not self.pull_every:
            raise ValueError(f"{' and '.join(pulls)} without pull_every pull nothing: set it, say to 10000")
        if self.pull_every and not any(getattr(self, name) for name in pulls):
            raise ValueError(f"pull_every without {' or '.join(pulls)} does nothing: set one or leave it out")
        return self


class PullKeys(ForgetKeys):
    """What [learner] has for learners of matrices."""

    radius: float = Field(0.0, ge=0, description="largest ||W - W_0||_F after a pull; 0 no ceiling")


class DissimKeys(PullKeys):
    """[learner] with algorithm = "dissim-oasis"."""

    algorithm: Literal["dissim-oasis"] = Field("dissim-oasis", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")
    psd_every: int = Field(0, ge=0, description="project W to PSD every this many steps; 0 never")


class LegoKeys(PullKeys):
    """[learner] with algorithm = "lego"."""

    algorithm: Literal["lego"] = Field("lego", description="learning algorithm")
    eta: float = Field(0.01, gt=0, le=1e18, description="weight of the loss against the LogDet divergence")


class LegoPairsKeys(PullKeys):
    """[learner] with algorithm = "lego-pairs"."""

    algorithm: Literal["lego-pairs"] = Field("lego-pairs", description="learning algorithm")
    eta: float = Field(0.01, gt=0, le=1e18, description="weight of the loss against the LogDet divergence")
    similar: float = Field(0.0, ge=0, description="squared distance that query and clicked are brought to")
    dissimilar: float = Field(2.0, gt=0, description="squared distance that query and skipped are brought to")

    @model_validator(mode="after")
    def _similar_are_nearer(self) -> LegoPairsKeys:
        if not self.similar < self.dissimilar:
            raise ValueError("similar must be below dissimilar: both are squared distances")
        return self


MAX_AVERAGED_C = 1e6
"""That of `learners.averaged`, whose import brings numba in."""


class OasisKeys(PullKeys):
    """[learner] with algorithm = "oasis"."""

    algorithm: Literal["oasis"] = Field("oasis", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")
    symmetric: Literal["off", "online"] = Field("off", description="online keeps W symmetric after each step")
    psd_every: int = Field(0, ge=0, description="project W to PSD every this many steps; 0 never")


class OasisDiagonalKeys(ForgetKeys):
    """[learner] with algorithm = "oasis-diagonal"."""

    algorithm: Literal["oasis-diagonal"] = Field("oasis-diagonal", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")


class AveragedKeys(StartKeys):
    """[learner] with algorithm = "oasis-averaged"."""

    algorithm: Literal["oasis-averaged"] = Field("oasis-averaged", description="learning algorithm")
    C: float = Field(0.1, gt=0, le=MAX_AVERAGED_C, description="aggressiveness: largest step size tau")
    symmetric: Literal["off", "online"] = Field("off", description="online keeps W symmetric after each step")


class LoretaKeys(StartKeys):
    """[learner] with algorithm = "loreta"."""

    algorithm: Literal["loreta"] = Field("loreta", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")
    rank: int = Field(
        16,
        ge=1,
        le=256,
        description="loreta: of the correction that a model makes to the matrix it begins from; its state is"
        " 2 x dimensions x rank numbers",
    )


class HedgeKeys(LearnerConfig):
    """How kernels are weighed."""

    combine: Literal["hedge", "share", "discount", "margins", "uniform", "given"] = Field(
        "share", description="weights of the kernels: hedge as printed, or a rule that never ends in a corner"
    )
    beta: float = Field(0.99, gt=0, lt=1, description="hedge, share, discount: factor of a mistake")
    horizon: int = Field(
        0,
        ge=0,
        le=2**53,
        description="hedge, share, discount: how many triplets T there will be, where that is known; beta is"
        " then sqrt(T) / (sqrt(T) + sqrt(ln m)) of m kernels; 0 not known",
    )
    share: float = Field(1e-3, ge=0, le=1, description="share: what every weight gives away each round")
    discount: float = Field(0.999, gt=0, le=1, description="discount: memory of mistakes per round")
    theta_C: float = Field(0.1, gt=0, description="margins: largest step of the weights")
    weights: Numbers = Field(default_factory=list, description="given: one weight per kernel")

    @model_validator(mode="after")
    def _weights_belong_to_given(self) -> HedgeKeys:
        self.hedge()
        if self.horizon and self.beta != type(self).model_fields["beta"].default:
            raise ValueError("horizon and beta both say what beta is: leave one of them out")
        return self

    def hedge(self) -> HedgeConfig:
        """The learner's own settings. Raises ConfigError."""
        from learners.hedge import HedgeConfig  # brings numba in, which most commands do without

        rule = (self.combine, self.beta, self.share, self.discount, self.theta_C)
        return HedgeConfig(*rule, tuple(self.weights), self.horizon)


class OmksMapsKeys(HedgeKeys, PullKeys):
    """[learner] with algorithm = "omks-maps"."""

    algorithm: Literal["omks-maps"] = Field("omks-maps", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")


class KernelKeys(Section):
    """[[learner.kernels]]: a kernel of each view, or of those that are named."""

    kind: KernelName = Field(description="which kernel of two vectors")
    sigma: float = Field(1.0, ge=1e-3, le=1e3, description="rbf: width, times the mean distance of objects")
    scale: float = Field(1.0, ge=1e-3, le=1e3, description="polynomial: (scale x^T y + shift)^degree")
    shift: float = Field(1.0, ge=0, le=1e3, description="polynomial: see scale")
    degree: int = Field(2, ge=1, le=16, description="polynomial: see scale")
    centred: bool = Field(
        False, description="rbf and cosine: less what unrelated objects have, 1 for equal ones; learns more"
    )
    views: list[str] = Field(default_factory=list, description="of these views alone; none: of every view")

    def kernel(self) -> KernelConfig:
        """The learner's own settings."""
        # brings numba in, which most commands do without
        from learners.multikernel.config import KernelConfig

        return KernelConfig(self.kind, self.sigma, self.scale, self.shift, self.degree, self.centred)


def _printed() -> list[KernelKeys]:
    from learners.multikernel.config import PRINTED  # brings numba in, which most commands do without

    return [KernelKeys.model_validate({"kind": one.kind, "sigma": one.sigma}) for one in PRINTED]


class SupportKeys(LearnerConfig):
    """What [learner] has for learners over a support set."""

    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")
    kernels: list[KernelKeys] = Field(
        default_factory=_printed, min_length=1, description="kernels; a view that none names plays no part"
    )
    triplets: int = Field(5_000, ge=1, le=10_000_000, description="budget: most triplets kept")
    objects: int = Field(5_000, ge=3, le=30_000_000, description="budget: most distinct objects kept")
    evict: Literal["oldest", "smallest"] = Field(
        "oldest", description="which triplet goes: longest untouched, or of the least taus"
    )
    joined: bool = Field(
        False, description="kernels of all views joined into one vector of unit length, not of each view"
    )

    @model_validator(mode="after")
    def _joined_are_all(self) -> SupportKeys:
        if self.joined and any(one.views for one in self.kernels):
            raise ValueError("kernels of joined views are of all of them: leave views out, or joined")
        return self


class OksKeys(SupportKeys):
    """[learner] with algorithm = "oks"."""

    algorithm: Literal["oks"] = Field("oks", description="learning algorithm")


class OmksKeys(SupportKeys, HedgeKeys):
    """[learner] with algorithm = "omks"."""

    algorithm: Literal["omks"] = Field("omks", description="learning algorithm")


class OasisSparseKeys(StartKeys):
    """[learner] with algorithm = "oasis-sparse"."""

    algorithm: Literal["oasis-sparse"] = Field("oasis-sparse", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")
    entries: int = Field(
        16_000_000,
        ge=64,
        le=4_000_000_000,
        description="budget: most entries of W kept, 8 bytes each in a version and at most 32 in memory; "
        "beyond it the half of smallest magnitude goes",
    )


class SomlTgKeys(ForgetKeys):
    """[learner] with algorithm = "soml-tg"."""

    algorithm: Literal["soml-tg"] = Field("soml-tg", description="learning algorithm")
    eta: float = Field(1.0, gt=0, le=1e18, description="learning rate")
    lam: float = Field(1e-5, ge=0, le=1e18, description="lambda, the weight of the L1 norm; 0 keeps all")


class SomlDaKeys(ForgetKeys):
    """[learner] with algorithm = "soml-da"."""

    algorithm: Literal["soml-da"] = Field("soml-da", description="learning algorithm")
    gamma: float = Field(1e-2, gt=0, le=1e18, description="inertia: w grows as 1 / gamma (1e-4 for labels)")
    rho: float = Field(1.0, ge=0, le=1e18, description="sparsity that fades as 1 / sqrt(events)")
    lam: float = Field(1e-6, ge=0, le=1e18, description="lambda, sparsity that stays")


class OasisSoftmaxKeys(StartKeys):
    """[learner] with algorithm = "oasis-softmax"."""

    algorithm: Literal["oasis-softmax"] = Field("oasis-softmax", description="learning algorithm")
    C: float = Field(0.1, gt=0, description="aggressiveness: largest step size tau")
    temperature: float = Field(
        0.7,
        ge=1e-3,
        le=1e3,
        description="what cosines are divided by: less looks at the nearest objects alone",
    )
    rate: float = Field(
        0.4, gt=0, le=1, description="of Adam: how far a step moves A at most, in the spectral norm"
    )
    anneal: int = Field(
        200,
        ge=0,
        description="steps after which the rate has fallen to 0.7, and then as 1 / sqrt; 0 keeps it",
    )
    batch: int = Field(128, ge=1, description="pairs of a minibatch, each against the objects of all others")
    every: int = Field(
        8, ge=1, description="new pairs between two steps at first; each is learned batch / every times"
    )
    memory: int = Field(4096, ge=1, le=1 << 24, description="newest pairs kept to be learned again")

    @model_validator(mode="after")
    def _sizes_fit(self) -> OasisSoftmaxKeys:
        if not self.every <= self.batch <= self.memory:
            raise ValueError(
                f"every <= batch <= memory must hold: every is {self.every}, batch {self.batch}, memory "
                f"{self.memory}"
            )
        return self


DEFAULT, OF_EMBEDDINGS = "oasis", "oasis-softmax"
"""The algorithm where none is named, and where the space is one view of embeddings (`default_algorithm`)."""
EMBEDDING_COLUMNS = range(64, 1537)
"""Fewer columns were not measured; with more a minibatch takes more of a core than most have to spare."""

LEARNERS: Mapping[str, type[LearnerConfig]] = {
    "oasis": OasisKeys,
    "oasis-averaged": AveragedKeys,
    "oasis-diagonal": OasisDiagonalKeys,
    "oasis-sparse": OasisSparseKeys,
    "dissim-oasis": DissimKeys,
    "lego": LegoKeys,
    "lego-pairs": LegoPairsKeys,
    "soml-tg": SomlTgKeys,
    "soml-da": SomlDaKeys,
    "oasis-softmax": OasisSoftmaxKeys,
    "loreta": LoretaKeys,
    "omks-maps": OmksMapsKeys,
    "oks": OksKeys,
    "omks": OmksKeys,
}
"""Algorithm -> its keys."""


def default_algorithm(table: Any, columns: int) -> str:
    """The algorithm of a table [learner] that names none. columns: of the one view of a space that keeps
    the user's own cosine; 0 for any other space."""
    names = set(table) if isinstance(table, Mapping) else set()
    suits = columns in EMBEDDING_COLUMNS and names <= set(OasisSoftmaxKeys.model_fields)
    return OF_EMBEDDINGS if suits else DEFAULT


def learner_keys(table: Any, default: str = DEFAULT) -> type[LearnerConfig]:
    """The keys that a table [learner] is checked with: those of its algorithm, the default's without one."""
    named = table.get("algorithm", default) if isinstance(table, Mapping) else default
    return LEARNERS.get(named, LEARNERS[DEFAULT]) if isinstance(named, str) else LEARNERS[DEFAULT]


def owner(name: str) -> type[Section] | None:
    """The keys in which a key of [learner] stands first; None when no algorithm has it."""
    return next((keys for keys in LEARNERS.values() if name in keys.model_fields), None)


def owners(name: str) -> list[str]:
    """The algorithms that have a key."""
    return [algorithm for algorithm, keys in LEARNERS.items() if name in keys.model_fields]


def all_keys() -> list[str]:
    """Every key of every algorithm, each once, in order."""
    return list(dict.fromkeys(name for keys in LEARNERS.values() for name in keys.model_fields))


Cap = Annotated[float, Field(ge=0, le=1e9)]


class CapsKeys(Section):
    """[caps]: steps summed up over the newest events; what exceeds a cap is not learned but a dead letter."""

    window: int = Field(
        100_000, ge=1, le=10_000_000, description="newest events, of those let in, that a cap sums over"
    )
    source: Cap = Field(0.0, description="most full steps (tau = C) of the events of one src; 0 no cap")
    query: Cap = Field(0.0, description="most full steps of the events with one query; 0 no cap")
    item: Cap = Field(0.0, description="most full steps that click or skip one item; 0 no cap")

    @property
    def as_learned(self) -> CapsConfig:
        """What the learner goes by: without any cap, the window means nothing."""
        from learners.caps import CapsConfig  # brings numba in, which most commands do without

        caps = CapsConfig(self.window, self.source, self.query, self.item)
        return caps if caps.any else CapsConfig()


class KeysConfig(Section):
    """[keys]: with slots above 0, each event is learned by the model of its field `key`, and by no other."""

    slots: int = Field(0, ge=0, le=100_000, description="most models at once; 0: one model for all events")
    when_full: Literal["refuse", "evict"] = Field(
        "refuse", description="a new key when all slots are taken: refuse it, or evict the one silent longest"
    )
    evict_after: int = Field(
        100_000,
        ge=0,
        le=2**53,
        description="evict: events of all keys that must follow the last one of the evicted key",
    )
    start: str = Field(
        "",
        description="loreta: the version whose learned matrix and maps all keys begin from, as FOLDER:VERSION"
        " (a number or a name such as best) of a folder learned without keys; read once, for version 0;"
        " empty: from learner.start",
    )
