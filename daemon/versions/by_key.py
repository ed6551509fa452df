"""An algorithm with one model per key, and the [keys] that a version was learned with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from checkpoints.manifest import Manifest
from daemon.config.keys import KeysConfig
from daemon.versions.algorithm import Algorithm, Columns
from daemon.versions.keyed_form import KeyedForms
from learners.errors import ConfigError
from learners.keyed import CLOCK, KEY_ARRAYS, Keyed, KeyedConfig

KEYS = "keys"
"""Their name among the learner's settings in a manifest, which has none where there is one model."""
SLOT_BYTES = 1024
"""What a slot takes beside its model's arrays: a line in the directory, and the objects of a learner."""
ONE_MODEL = KeysConfig.model_validate({})
"""One model for all events."""


def keys_in(settings: Mapping[str, Any]) -> KeysConfig:
    """The keys among the learner's settings of a manifest. ValueError for what is no record."""
    return KeysConfig.model_validate(settings.get(KEYS, {}))


def keys_of(manifest: Manifest) -> KeysConfig:
    """The [keys] of a version, as `keys_in`."""
    return keys_in(manifest.learner.get("config", {}))


def by_key(one: Algorithm, keys: KeysConfig) -> Algorithm:
    """The algorithm with a model for each of at most `keys.slots` keys; its settings raise ConfigError where
    models cannot be made one by one."""

    def settings(own: Any, columns: Columns) -> KeyedConfig:
        if one.needs_sample:
            raise ConfigError(
                "[keys] needs an algorithm that begins without a sample of objects: set keys.slots to 0, or "
                "take another learner.algorithm"
            )
        inner = one.settings(own, columns)
        return KeyedConfig(
            lambda dim: one.make(inner, dim, None),
            lambda arrays: one.restore(arrays, inner),
            keys.slots,
            keys.when_full,
            keys.evict_after,
        )

    return replace(
        one,
        settings=settings,
        make=lambda settings, dim, _sample: Keyed(dim, settings),
        restore=lambda arrays, settings: Keyed.from_state(arrays, settings, copy=False),
        forms=KeyedForms(one.forms),
        state_bytes=lambda own, columns, dim: keys.slots * (one.state_bytes(own, columns, dim) + SLOT_BYTES),
    )


def compared(followed: tuple[str, ...], names: Iterable[str]) -> list[str]:
    """The arrays by which copies that took the same steps are compared: `followed` of one model or all of its
    arrays, and what tells whose models they are, but not how many events were refused since."""
    given = list(names)
    one = followed or [name for name in given if name not in KEY_ARRAYS]
    return [*one, *(name for name in given if name in KEY_ARRAYS and name != CLOCK)]
