"""From the kernels that [learner] names to those of each view's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from daemon.config.learners import LearnerConfig
from daemon.config.learners.omks import OksKeys, OmksKeys, SupportKeys
from learners.errors import ConfigError
from learners.hedge import HedgeConfig
from learners.multikernel import OmksConfig, ViewKernels


def omks_settings(keys: OmksKeys, columns: Mapping[str, range]) -> OmksConfig:
    """Settings of OMKS. Raises ConfigError for a view that is not there, and for weights that do not fit."""
    return _settings(keys, columns, hedge=keys.hedge())


def oks_settings(keys: OksKeys, columns: Mapping[str, range]) -> OmksConfig:
    """Settings of OKS on the mean of all kernels, or on the one there is. Raises ConfigError."""
    settings = _settings(keys, columns, hedge=HedgeConfig("uniform"))
    return replace(settings, mean=settings.parts > 1)


def kernel_names(keys: LearnerConfig, columns: Mapping[str, range]) -> list[str]:
    """The kernels that a learner weighs, in its order, for people: "text rbf 0.5", or a block of columns; the
    one of OKS on several is their mean."""
    if not isinstance(keys, SupportKeys):
        return list(columns)
    names = [
        f"{name} {one.kind} {one.sigma:g}" if one.kind == "rbf" else f"{name} {one.kind}"
        for name in columns
        for one in keys.kernels
        if not one.views or name in one.views
    ]
    return [f"mean of {len(names)}"] if isinstance(keys, OksKeys) and len(names) > 1 else names


def _settings(keys: SupportKeys, columns: Mapping[str, range], *, hedge: HedgeConfig) -> OmksConfig:
    named = {name for one in keys.kernels for name in one.views}
    for name in sorted(named - set(columns)):
        raise ConfigError(f"learner.kernels: there is no view {name!r}; there are {', '.join(columns)}")
    views = []
    for name, span in columns.items():
        kernels = tuple(one.kernel() for one in keys.kernels if not one.views or name in one.views)
        if kernels:
            views.append(ViewKernels(span.start, span.stop, kernels))
    return OmksConfig(tuple(views), keys.C, keys.triplets, keys.objects, keys.evict, hedge)
