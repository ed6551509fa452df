"""What each role needs, by configuration alone, in parts that people know by name. Pure.

Upper bounds of what a role comes to hold once every name has a version and every slot is used; what is read
from files that are mapped (catalogs, states on their way to a disk) can be dropped and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from checkpoints.entries import LATEST
from daemon.config import Config
from daemon.config.learners import LoretaKeys, SupportKeys
from daemon.config.objects import is_object_address
from daemon.text import size
from daemon.versions.algorithms import Columns, algorithm_of
from daemon.versions.forms import AS_LEARNED, CARRIED, HELD, VERSIONS, KeyedForms, MatrixForms
from daemon.versions.race import arms_of
from learners.arms import arm_bytes

RoleName: TypeAlias = Literal["learn", "merge", "validate", "serve", "backfill"]

PROGRAM = 130 << 20
"""Of any role before it has an array of its own: the interpreter, libraries, compiled kernels."""
ID_BYTES = 40
"""Of each event id that is remembered, at most (`streams.ids.IdWindow`)."""
UNDER_WAY = 64 << 20
"""Of events between the log and the learner: some batches of `daemon.learn.reader.POLL_BYTES`, as they are
read, decoded and mapped."""
MODEL_BYTES = 2304
"""Of the objects of a model by key, besides its arrays and its line in the directory."""
JUDGED = 2
"""Versions besides version 0 that validate holds a form of: the best, and the one it judges."""


@dataclass(frozen=True, slots=True)
class NeededPart:
    """What needs how many bytes. later: they are not taken at the start, but once there is something to keep:
    the second side of a name, a form that is judged."""

    what: str
    nbytes: int
    later: bool = False

    def __str__(self) -> str:
        return f"{self.what} {size(self.nbytes)}"


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a role needs, in parts; the program itself is one of them."""

    role: RoleName
    parts: tuple[NeededPart, ...]

    @property
    def nbytes(self) -> int:
        """All parts together."""
        return sum(part.nbytes for part in self.parts)

    @property
    def at_once(self) -> MemoryNeed:
        """What it cannot start without."""
        return MemoryNeed(self.role, tuple(part for part in self.parts if not part.later))

    def __str__(self) -> str:
        least = max(1 << 20, self.nbytes // 100)
        told = [str(part) for part in self.parts if part.nbytes >= least]
        return ", ".join(told or [str(part) for part in self.parts])


def mapped_dim(config: Config) -> int:
    """Most dimensions of the views together, after their maps."""
    return sum(sum(view.widths()) for view in config.space.views.values())


def mapped_columns(config: Config) -> Columns:
    """The columns of each view, or of each kernel of a view where it has several, at their widest."""
    columns: dict[str, range] = {}
    start = 0
    for name, view in config.space.views.items():
        widths = view.widths()
        for place, width in enumerate(widths):
            columns[name if len(widths) == 1 else f"{name}/{place}"] = range(start, start + width)
            start += width
    return columns


def learner_bytes(config: Config) -> int:
    """Memory of the learner's state. Raises ConfigError for settings that do not suit the views."""
    algorithm, columns = algorithm_of(config.learner.algorithm, config.keys), mapped_columns(config)
    algorithm.settings(config.learner, columns)
    return algorithm.state_bytes(config.learner, columns, mapped_dim(config))


def learned_bytes(config: Config) -> int:
    """Memory of what a version has learned: the learner's state and the arms. Raises ConfigError, and
    UserError for arms that cannot be."""
    return learner_bytes(config) + arms_bytes(config)


def arms_bytes(config: Config) -> int:
    """Memory of the arms. Raises UserError for arms that cannot be."""
    return sum(arm_bytes(one, mapped_dim(config)) for one in arms_of(config))


def form_bytes(config: Config, items: int = 0) -> int:
    """Memory of a version's form besides the learner's state, with what it keeps of so many items."""
    algorithm = algorithm_of(config.learner.algorithm, config.keys)
    kind, dim = algorithm.forms.served(config.serving), mapped_dim(config)
    as_learned = config.serving.psd == "off" or config.serving.form == AS_LEARNED
    if algorithm.form_bytes is not None and not as_learned:
        return algorithm.form_bytes(config.learner, mapped_columns(config), dim, items)
    if kind.has_matrix(config.serving, dim):
        shows = isinstance(kind, MatrixForms) and kind.familiar is not None  # a second matrix
        return 4 * dim * dim * (1 + shows)
    refers_to_none = kind.follows == HELD or (kind.kept and kind.follows == VERSIONS)
    return learner_bytes(config) if refers_to_none else 0  # to none of the learner's arrays


def order_bytes(config: Config) -> int:
    """Memory of the largest arm by which a version may order lists; 0 where no arms are learned."""
    dim = mapped_dim(config)
    sizes = (max(arm_bytes(one, dim), 4 * dim * dim * one.of_kind.is_matrix) for one in arms_of(config))
    return max(sizes, default=0)


def serving_bytes(config: Config, items: int = 0) -> int:
    """Memory of the buffers of serve: two sides per alias, each the learner's state, its form and what that
    keeps of so many items; and for `latest`, followed by steps, one more state, and what carries a form on or
    is made to take its place. Of single keys the models that are held, each with its form.
    """
    return sum(part.nbytes for part in _buffers(config, items))


def need_of(config: Config, role: RoleName, items: int = 0) -> MemoryNeed:
    """What one process of a role needs, with so many items in its catalog. Raises ConfigError for settings
    that do not suit the views."""
    made = {
        "learn": _learning,
        "merge": _merging,
        "validate": _judging,
        "serve": lambda config: _buffers(config, items),
        "backfill": _learning_history,
    }[role](config)
    of_items = () if role == "merge" else _mapped(config, items)
    of_models = _models(config, 2 * len(config.serve.aliases)) if role == "serve" else ()
    return MemoryNeed(role, (*made, *of_items, *of_models, NeededPart("the program itself", PROGRAM)))


def needs_of_up(config: Config, items: int = 0, serves: bool = True) -> list[MemoryNeed]:
    """What the processes need that `tripletd up` starts. serves: whether anybody is to be answered."""
    shards = config.shards.count
    needs = [need_of(config, "learn", items)] * max(1, shards)
    needs += [need_of(config, "merge")] if shards else []
    needs += [need_of(config, "validate", items)]
    return needs + [need_of(config, "serve", items)] * (config.serve.processes if serves else 0)


def _arms(config: Config) -> Iterator[NeededPart]:
    if arms := len(arms_of(config)):
        yield NeededPart(f"{arms} arms of the race", arms_bytes(config))


def _learning(config: Config) -> Iterator[NeededPart]:
    yield from state_parts(config)
    yield from _arms(config)
    if period := getattr(config.learner, "psd_every", 0):  # LAPACK's copy of W and its eigenvectors
        yield NeededPart(f"a projection every {period} events", 12 * mapped_dim(config) ** 2, True)
    if is_object_address(config.checkpoints.path):
        yield NeededPart("the copy that goes to the bucket", learned_bytes(config), later=True)
    yield NeededPart("ids of events", ID_BYTES * config.learner.dedupe_window, later=True)
    yield NeededPart("events under way", UNDER_WAY, later=True)
    yield from _models(config, 1)


def _merging(config: Config) -> Iterator[NeededPart]:
    state, count = learned_bytes(config), config.shards.count
    yield NeededPart("the merged version and the one made of it", 2 * state)
    yield NeededPart(f"versions of {count} shards and what they went on from", 2 * count * state, later=True)


def _judging(config: Config) -> Iterator[NeededPart]:
    own = form_bytes(config) or learner_bytes(config)
    yield NeededPart(f"the forms of {JUDGED} versions", JUDGED * own, later=True)
    yield NeededPart("a version that is read", learned_bytes(config))


def _models(config: Config, copies: int) -> Iterator[NeededPart]:
    if slots := config.keys.slots:
        yield NeededPart(f"objects of {slots:,} models", copies * MODEL_BYTES * slots, later=True)


def _mapped(config: Config, items: int) -> Iterator[NeededPart]:
    """The catalog in the learner's space; of sparse views nobody knows beforehand how much they have."""
    if items and not any(view.kind == "sparse" for view in config.space.views.values()):
        yield NeededPart(f"{items:,} objects", 4 * items * mapped_dim(config))


def _learning_history(config: Config) -> Iterator[NeededPart]:
    """Of each shard's process; what merges them holds as much again."""
    yield from state_parts(config)
    yield from _arms(config)
    yield NeededPart("what it is merged with", learned_bytes(config), later=True)
    yield NeededPart("events under way", UNDER_WAY, later=True)
    yield from _models(config, 2)


def _buffers(config: Config, items: int) -> Iterator[NeededPart]:
    kind = algorithm_of(config.learner.algorithm, config.keys).forms.served(config.serving)
    state, dim, own = learner_bytes(config), mapped_dim(config), form_bytes(config, items)
    names = len(config.serve.aliases)
    of_names = f"{names} name{'s' if names > 1 else ''}"
    yield NeededPart(f"what was learned, for {of_names}", names * state)
    yield NeededPart(f"second sides of {of_names}", names * (state + own), later=True)
    if own:
        yield NeededPart(f"forms of {of_names}", names * own)
    if ordered := order_bytes(config):  # of both sides, and one that is being made
        yield NeededPart(f"what orders lists, for {of_names}", (2 * names + 1) * ordered, later=True)
    if isinstance(kind, KeyedForms):
        one = state // config.keys.slots
        matrix = 4 * dim * dim if kind.inner.has_matrix(config.serving, dim) else 0
        held = min(config.serve.key_models, config.keys.slots)
        yield NeededPart(f"{held:,} models by key", held * (one + matrix), later=True)
    if LATEST in config.serve.aliases and config.steps.enabled and kind.follows != VERSIONS:
        ahead = state + own * {CARRIED: 2, HELD: 1}.get(kind.follows, 0)
        yield NeededPart(f"what {LATEST} is carried on by", ahead, later=True)


def state_parts(config: Config) -> list[NeededPart]:
    """The learner's state: the matrices that grow with the square of the dimensions, and the rest. Raises
    ConfigError for settings that do not suit the views."""
    dim, whole, slots = mapped_dim(config), learner_bytes(config), config.keys.slots or 1
    square, times = 4 * dim * dim, f"{dim:,} x {dim:,}"
    of_keys = f"{slots:,} times " if config.keys.slots else ""
    learner = config.learner
    named: dict[str, int] = {}
    if isinstance(learner, LoretaKeys):
        named = {f"W_0 {times}": square}
        rest = f"{of_keys}a correction of rank {learner.rank}"
    elif isinstance(learner, SupportKeys):
        rest = f"{learner.objects:,} objects and {learner.triplets:,} triplets of the support set"
    elif entries := getattr(learner, "entries", 0):
        rest = f"{min(entries, dim * dim):,} touched entries of W"
    elif learner.algorithm in _MATRICES:
        named = {f"{of_keys}{name} {times}": slots * square for name in _MATRICES[learner.algorithm]}
        rest = _RESTS.get(learner.algorithm, "steps that wait to be added")
    elif learner.algorithm == "omks-maps":
        rest = f"{of_keys}a matrix of each of {len(mapped_columns(config))} blocks of columns"
    else:
        rest = f"{of_keys}{dim:,} weights"
    parts = [NeededPart(name, nbytes) for name, nbytes in named.items()]
    left = whole - sum(part.nbytes for part in parts)
    return [*parts, NeededPart(rest, left)] if left > 0 else parts


_MATRICES = {
    "oasis": ("W",),
    "oasis-averaged": ("W", "the sum of all W"),
    "oasis-softmax": ("W", "A", "the mean of its gradients", "the mean of their squares"),
    "dissim-oasis": ("W",),
    "lego": ("W",),
    "lego-pairs": ("W",),
}
_RESTS = {"oasis-softmax": "pairs that are kept"}
