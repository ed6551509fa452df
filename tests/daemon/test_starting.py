"""A role that is starting says what it is at, to health checks as in its log."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.learn import reader as learning
from daemon.runtime.runtime import open_runtime_without_server
from daemon.telemetry import ValidateMetrics
from daemon.validate import inputs as validating
from streams import catalog_cache


@pytest.mark.parametrize("role", ["learn", "validate"])
def test_how_far_objects_are_read(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_cache, "TELL_SECONDS", 0.0)
    objects = tmp_path / "items.jsonl"
    objects.write_text("".join(f'{{"id": "a{n}", "x": [1, {n}]}}\n' for n in range(3)))
    settings = {
        "stream.address": f"log:{tmp_path}/clicks.log",
        "space.views.x.dim": 2,
        "catalog.path": str(objects),
        "checkpoints.path": str(tmp_path / "checkpoints"),
    }
    config = load_config(None, settings, {})
    with ExitStack() as stack:
        runtime = open_runtime_without_server(stack, config, None)
        assert runtime.health.startup() == "starting"
        if role == "learn":
            learning.open_inputs(stack, config, runtime.starting)
        else:
            validating.open_inputs(stack, config, ValidateMetrics(), runtime.starting)
        told = runtime.health.readiness()
        assert told is not None
        assert told.startswith("starting: read 3 objects in 0 s")
        runtime.started()
        assert runtime.health.readiness() is None
