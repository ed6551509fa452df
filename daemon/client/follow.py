"""Beginning to follow: from a checkpoint folder alone, or by the learner's configuration.

What it takes to follow is imported by the first call, so that a program that only may follow starts at once.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoints import VersionStore
    from daemon.client.model import Model
    from daemon.config.schema import Config, ServingConfig

LOOK_S = 0.05
"""Between two looks while waiting for a first answer."""


def follow(place: str | Path, alias: str = "stable", *, wait_s: float = 30.0) -> Model:
    """Follow `alias` (latest, best, stable, own, a pinned name, a version's number); returns once it answers.

    place: the checkpoint folder, or the configuration file that its learner runs with. From the folder alone,
    the form of versions is the validator's, and they are followed one by one; a configuration says the form
    itself, and where the steps are that `latest` is followed by. wait_s: longest wait for a first answer.
    Raises UserError where the place cannot be used, NotServing with the reason when the time is over.
    """
    from daemon.client.model import Model
    from daemon.replica.settings import VersionSource, read_space, step_log_of
    from daemon.replica.view import NotServing
    from daemon.versions.storage import open_existing

    _log_as_libraries_do()
    deadline = time.monotonic() + wait_s
    config = _config(Path(place))
    folder = place if config is None else config.checkpoints.path
    remedy = "name the learner's checkpoint folder, or its configuration file"
    stored = open_existing(folder, ", so there are no versions to follow", remedy)
    versions = stored.versions
    while (found := read_space(versions)) is None:
        if time.monotonic() > deadline:
            raise NotServing(f"{folder}: no version yet; start `tripletd learn`")
        time.sleep(LOOK_S)
    space, fitted = found
    serving = _settings(versions) if config is None else config.serving
    steps = None if config is None else step_log_of(config, alias)
    model = Model(VersionSource(versions, stored.ledger, space, serving), fitted, alias, steps)
    while model.status().model is None:
        if time.monotonic() > deadline:
            why = model.status().why_not_newer
            model.close()
            raise NotServing(f"{alias} does not answer within {wait_s:g} s: {why or 'it is being loaded'}")
        time.sleep(LOOK_S)
    return model


def _log_as_libraries_do() -> None:
    """Messages go to `logging`, under names below "tripletd", as the program sets it up, not to its stdout.

    A program that has configured structlog gets them its own way.
    """
    import structlog

    if not structlog.is_configured():
        structlog.configure(
            processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )


def _config(place: Path) -> Config | None:
    if not place.is_file():
        return None
    from daemon.config import load_config

    return load_config(place, {})


def _settings(versions: VersionStore) -> ServingConfig:
    """[serving] as the validator has it, by the newest form that it stored with a version; else the
    defaults."""
    from checkpoints.store import CheckpointError
    from daemon.config.schema import ServingConfig
    from daemon.versions.restore import CHOSEN, DERIVED

    for number in reversed(versions.versions()):
        try:
            meta = versions.attached_meta(number, DERIVED)
            if meta is not None:
                judged = {"form": "judged"} if CHOSEN in meta else {}
                return ServingConfig.model_validate(meta["settings"] | judged)
        except (CheckpointError, KeyError, ValueError):
            continue  # the next older one tells it as well
    return ServingConfig.model_validate({})
