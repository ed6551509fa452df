"""How much memory a configuration takes, and how much there is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from checkpoints.entries import LATEST
from daemon.config import Config
from daemon.versions.algorithms import Columns, algorithm_of
from daemon.versions.forms import CARRIED, HELD, VERSIONS, KeyedForms


def mapped_dim(config: Config) -> int:
    """Most dimensions of the views together, after their maps."""
    return sum(width for view in config.space.views.values() for width in view.widths())


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


def form_bytes(config: Config, items: int = 0) -> int:
    """Memory of a version's form besides the learner's state, with what it keeps of so many items."""
    algorithm = algorithm_of(config.learner.algorithm, config.keys)
    kind, dim = algorithm.forms, mapped_dim(config)
    if algorithm.form_bytes is not None and config.serving.psd != "off":
        return algorithm.form_bytes(config.learner, mapped_columns(config), dim, items)
    if kind.has_matrix(config.serving, dim):
        return 4 * dim * dim
    refers_to_none = kind.kept and kind.follows in {HELD, VERSIONS}
    return learner_bytes(config) if refers_to_none else 0  # to none of the learner's arrays


def serving_bytes(config: Config, items: int = 0) -> int:
    """Memory of the buffers of serve: two sides per alias, each the learner's state, its form and what that
    keeps of so many items; and for `latest`, followed by steps, one more state, and what carries a form on or
    is made to take its place. Of single keys the models that are held, each with its form.
    """
    kind = algorithm_of(config.learner.algorithm, config.keys).forms
    state, dim, own = learner_bytes(config), mapped_dim(config), form_bytes(config, items)
    needed = 2 * (state + own) * len(config.serve.aliases)
    if isinstance(kind, KeyedForms):
        one = state // config.keys.slots
        matrix = 4 * dim * dim if kind.inner.has_matrix(config.serving, dim) else 0
        needed += min(config.serve.key_models, config.keys.slots) * (one + matrix)
    if LATEST in config.serve.aliases and config.steps.enabled and kind.follows != VERSIONS:
        needed += state + own * {CARRIED: 2, HELD: 1}.get(kind.follows, 0)
    return needed


def memory_available() -> int | None:
    """Bytes that can be had without swapping, as the kernel estimates; None where it does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None
