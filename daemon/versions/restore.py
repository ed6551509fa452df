"""A loaded version's map, its learner, and the form in which it is judged and served.

What takes long to make is made once per version, off the learner, so that checkpoints stay small and the
learner's memory flat: it is stored as the derived file `serving` of its version, with the settings it was
made with, and read back later; for other settings it is made in memory.

Which form that is, where forms are judged, is kept with it, whatever a later release or later judgments
take. A version that was not judged yet, and what a replica has learned behind it, has the form of the newest
version before it that was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import structlog
from numpy.typing import NDArray

from checkpoints.encoding import fresh
from checkpoints.manifest import Manifest
from checkpoints.store import CheckpointError, KeyExists
from checkpoints.versions import Version, VersionStore
from daemon.config.schema import ServingConfig
from daemon.versions.algorithms import algorithm_of, columns_of, keys_of, learner_config_of, map_of, restored
from daemon.versions.contents import MAP_PREFIX, learner_arrays
from daemon.versions.forms import FormByChoice, FormChoice, as_scored
from learners.base import Learner
from learners.errors import LearnerError, StateError
from learners.forms.quadratic import ServedForm
from learners.maps import FittedSpaceMap
from learners.maps.base import OwnRanking
from learners.maps.queries import QueryMaps

DERIVED = "serving"
"""Name of the file with a version's form, next to the version."""
CHOSEN = "chosen"
"""In the description of that file: what was chosen, and why."""


def read_map(versions: VersionStore, number: int) -> tuple[Manifest, FittedSpaceMap]:
    """A version's manifest and map; of its other arrays nothing is kept. Raises Damaged, and MapError as
    `map_of`.
    """
    version = versions.load(number, lambda spec: fresh(spec) if spec.name.startswith(MAP_PREFIX) else None)
    return version.manifest, map_of(version)


def queries_of(versions: VersionStore) -> QueryMaps:
    """What takes queries of other models to the space, by the newest version that can be read; its other
    arrays are read only where it has any. Empty without a version, or a folder."""
    try:
        manifest = versions.newest_manifest()
        if manifest is None or "queries" not in manifest.map.get("spec", {}):
            return {}
        return read_map(versions, manifest.number)[1].queries
    except (CheckpointError, LearnerError) as error:
        log.warning("the maps of queries cannot be read", error=str(error))
        return {}


log = structlog.get_logger("tripletd.serving_form")


ChoosesForm: TypeAlias = Callable[[FormChoice | None, FormByChoice, OwnRanking], FormChoice]
"""The form of a version that has none yet: by the last choice, what was learned, and the own ranking."""


def serving_form(
    versions: VersionStore,
    version: Version,
    config: ServingConfig,
    keep: bool = True,
    chooser: ChoosesForm | None = None,
) -> ServedForm:
    """The serving form of a loaded version: read when it was made with these settings, else made and, unless
    `keep` is false, kept where its learner's forms are. chooser: asked where forms are judged and none is
    kept; None: what was chosen last for an earlier version is taken, and not kept for this one.

    Raises StateError for arrays that are missing or not finite, UserError for settings its dimension does not
    allow. A form that cannot be read or written (damage, full disk) is made in memory and the trouble is
    logged.
    """
    manifest = version.manifest
    kind = algorithm_of(manifest.learner["name"], keys_of(manifest)).forms.served(config)
    fitted = map_of(version)
    learner, own = learner_of(version, fitted), fitted.own
    number, scored, judged = manifest.number, as_scored(config, own), kind.is_judged(config, own)
    if not kind.kept or (number == 0 and own is not None):
        return kind.make(learner, number, config, own)
    choice = choice_at(versions, number) if judged else None
    try:
        kept = versions.attached(number, DERIVED)
    except CheckpointError as error:
        log.warning("serving form cannot be read; recomputed", version=number, error=str(error))
        return kind.make(learner, number, config, own, choice)
    if kept is not None:
        arrays, meta = kept
        if stands(meta, scored, judged):
            return kind.read(arrays, learner, own)
    if judged and kept is None and chooser is not None and own is not None:
        learned_by = kind.by_choice(learner, number, scored, own)
        choice = chooser(choice, learned_by, own)
        form = choice.beside(learned_by(choice), own)
    else:
        form = kind.make(learner, number, config, own, choice)
    if kept is None and keep and (chooser is not None or not judged):
        description = described(scored, choice)
        made = {"settings_digest": digest_of(description), "made": kind.account(form)}
        _keep(versions, number, kind.arrays(form), description | made)
    return form


def learner_of(version: Version, fitted: FittedSpaceMap | None = None) -> Learner:
    """The learner of a loaded version, on its arrays; fitted: its map, where it was read already. Raises
    StateError for what is none."""
    try:
        config, keys = learner_config_of(version.manifest), keys_of(version.manifest)
    except (KeyError, ValueError) as error:
        raise StateError(f"the version's learner is not described: {error}") from error
    space = map_of(version) if fitted is None else fitted
    return restored(config, learner_arrays(version.arrays), columns_of(space), keys, own=space.own)


def _keep(versions: VersionStore, number: int, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
    try:
        versions.attach(number, DERIVED, arrays, meta)
    except KeyExists:
        pass  # another validator made the same form of the same version
    except CheckpointError as error:
        log.warning("serving form not kept", version=number, error=str(error))


def described(config: ServingConfig, choice: FormChoice | None = None) -> dict[str, Any]:
    """What stands beside a form of how it was made; config: `as_scored`. What says nothing is left out, so
    that forms kept before it was known stand.
    """
    settings = config.model_dump(exclude={"form"})
    if config.score == "auto":
        settings["score"] = "normalised"  # as it is wherever nothing is known of the user's own ranking
    if choice is not None:
        settings |= {"power": choice.power, "own_share": 0.0}
    description = {"settings": {name: one for name, one in settings.items() if one or name != "own_share"}}
    return description if choice is None else description | {CHOSEN: choice.to_json()}


def digest_of(record: Mapping[str, Any]) -> str:
    """sha256 over what `described` says of the settings, and of the choice where there is one."""
    said = record["settings"] if CHOSEN not in record else [record["settings"], record[CHOSEN]]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def settings_digest(config: ServingConfig) -> str:
    """sha256 over the settings that a form without a choice depends on; config: `as_scored`."""
    return digest_of(described(config))


def stands(meta: Mapping[str, Any], config: ServingConfig, judged: bool) -> bool:
    """Whether a kept form is still that of its version. judged: `FormKind.is_judged`; then the form that its
    validator made stands, in whichever form that was; else one that was made with these settings.
    """
    if meta.get("settings_digest") == settings_digest(config):
        return True
    kept = meta.get("settings")
    return judged and isinstance(kept, Mapping) and _lasting(kept) == _lasting(described(config)["settings"])


def _lasting(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in {"power", "own_share"}}


def choice_of(versions: VersionStore, number: int) -> FormChoice | None:
    """What was chosen for version `number` itself; None where nothing was, or where it cannot be read."""
    try:
        meta = versions.attached_meta(number, DERIVED)
        return None if meta is None or CHOSEN not in meta else FormChoice.from_json(meta[CHOSEN])
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None


def choice_at(versions: VersionStore, number: int) -> FormChoice | None:
    """What was chosen for version `number`, else for the newest one before it; None where nothing was."""
    numbers = (one for one in reversed(versions.versions()) if one <= number)
    return next((found for one in numbers if (found := choice_of(versions, one)) is not None), None)
