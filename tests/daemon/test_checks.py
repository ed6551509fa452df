"""`check` finds what a role would refuse or never reach later."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.responses import JSONResponse

from daemon import checks
from daemon.checks import run_checks
from daemon.config import load_config
from daemon.config.learners import LEARNERS
from daemon.memory.needs import (
    form_bytes,
    learner_bytes,
    mapped_columns,
    mapped_dim,
    need_of,
    needs_of_up,
    serving_bytes,
)
from daemon.memory.room import MemoryBound
from daemon.serve.model_probe import FILE, ModelProbe
from daemon.versions.algorithms import SLOT_BYTES, algorithm_of, untrained
from learners.block import TripletBatch, as_block
from learners.multikernel.form import MOST_OBJECTS
from learners.pending import pending_bytes
from streams.foreign_http import ForeignServer
from tests.harness.embedder import embedding
from tests.harness.schema_registry import RegistryServer
from tests.harness.text_model import write_folder
from tests.learners.examples import triplets


def found(settings: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Every finding that is not plainly ok: key -> (grade, text)."""
    base = {"space.views.x.dim": 3, "http.learn_port": 0, "http.validate_port": 0, "http.serve_port": 0}
    findings = run_checks(load_config(None, {**base, **settings}, {}))
    return {one.key: (one.grade, one.text) for one in findings if one.grade != "ok"}


def test_a_token_that_everybody_can_read_is_noted_with_its_remedy(tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text('[http]\ntoken = "correct-horse-battery"\n')
    for mode, grades in ((0o644, ["note"]), (0o600, [])):
        file.chmod(mode)
        secrets = [one for one in run_checks(load_config(file, {}, {})) if one.key == "secrets"]
        assert [one.grade for one in secrets] == grades
        assert all(one.remedy == f"chmod o-rwx {file}" for one in secrets)


def test_psd_every_needs_few_dimensions_after_the_maps() -> None:
    raw = {"space.views.x.dim": 4000, "space.views.x.map": "unit", "learner.psd_every": 10}
    two = {**raw, "space.views.y.dim": 97, "space.views.y.map": "unit"}
    assert "learner.psd_every" not in found(raw)
    grade, text = found(two)["learner.psd_every"]
    assert (grade, "4,097" in text) == ("error", True)
    assert "learner.psd_every" not in found({**two, "space.views.x.map": "whiten"})
    assert "learner.psd_every" not in found({**two, "learner.psd_every": 0})


def bounded(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """From now on there are so many bytes."""
    room = [MemoryBound("the machine", free, 2 * free)]
    monkeypatch.setattr("daemon.checks.memory_bounds", lambda: room)


def test_a_matrix_larger_than_the_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"space.views.x.dim": 1024, "space.views.x.map": "unit", "learner.algorithm": "oasis"}
    needed = need_of(load_config(None, wide, {}), "learn").nbytes
    assert needed > 4 * 1024**2 + pending_bytes(1024)
    bounded(monkeypatch, needed)
    assert "learner" not in found(wide)
    bounded(monkeypatch, needed - 1)
    grade, text = found(wide)["learner"]
    assert (grade, "W 1,024 x 1,024 4.0 MiB" in text) == ("error", True)
    monkeypatch.setattr("daemon.checks.memory_bounds", list)
    assert "learner" not in found(wide)


def test_roles_that_fit_alone_but_not_together_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"space.views.x.dim": 1024, "space.views.x.map": "unit", "learner.algorithm": "oasis"}
    together = sum(one.nbytes for one in needs_of_up(load_config(None, wide, {})))
    bounded(monkeypatch, together)
    assert "memory" not in found(wide)
    bounded(monkeypatch, together - 1)
    grade, text = found(wide)["memory"]
    assert (grade, "together: learn" in text) == ("note", True)


def test_soml_over_mixed_features_is_noted() -> None:
    view = "space.views.x.map"
    assert found({"learner.algorithm": "soml-da"})[view][0] == "note"
    assert view not in found({"learner.algorithm": "soml-da", view: "standardise"})
    assert view not in found({})


def test_caps_of_what_events_do_not_name_are_noted(tmp_path: Path) -> None:
    assert not [key for key in found({}) if key.startswith("caps")]
    assert found({"caps.source": 10})["caps.source"][0] == "note"
    assert found({"caps.query": 10, "caps.item": 5})["caps.query"][0] == "note"
    assert found({"caps.item": 5})["caps.item"][0] == "note"
    (tmp_path / "objects.jsonl").write_text('{"id": "a", "f": {"x": [1.0, 2.0, 3.0]}}\n')
    assert "caps.item" not in found({"caps.item": 5, "catalog.path": str(tmp_path / "objects.jsonl")})


def test_without_judgments_it_is_told_what_decides() -> None:
    config = load_config(None, {"space.views.x.dim": 3, "validate.min_impressions": 100}, {})
    (told,) = (one for one in run_checks(config) if one.key == "validate.judgments")
    assert (told.grade, "from 100 lists on, error 0.05" in told.text) == ("ok", True)
    assert "validate.window" not in found({})
    assert "2500" in found({"validate.min_impressions": 2500})["validate.window"][1]
    assert "validate.min_delta" not in found({})
    assert "comes from the data" in found({"validate.min_delta": 0.002})["validate.min_delta"][1]


def test_with_keys_their_own_clicks_decide() -> None:
    keyed = {"keys.slots": 100, "validate.window": 6000, "validate.min_impressions": 200}
    config = load_config(None, {"space.views.x.dim": 3, **keyed}, {})
    (told,) = (one for one in run_checks(config) if one.key == "validate.judgments")
    assert (told.grade, "at most 30 keys" in told.text) == ("ok", True)
    assert found({**keyed, "validate.judgments": "labels:x.tsv"})["validate.judgments"][0] == "error"


def test_a_stream_that_cannot_be_opened_comes_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "clicks.log").write_bytes(b"no log" * 100)
    config = load_config(None, {"stream.address": f"log:{tmp_path}/clicks.log", "space.views.x.dim": 3}, {})
    (finding,) = (one for one in run_checks(config) if one.key == "stream.address")
    assert finding.grade == "error"
    assert "stream.address" in finding.remedy


def test_dimensions_after_the_maps() -> None:
    views: dict[str, object] = {"space.views.x.dim": 7, "space.views.y.dim": 9000}
    assert mapped_dim(load_config(None, views, {})) == 7 + 9000
    config = load_config(None, {**views, "space.views.y.map": "whiten"}, {})
    assert mapped_dim(config) == 7 + config.space.views["y"].components


def test_the_buffers_of_serve_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"space.views.x.dim": 1024, "space.views.x.map": "unit", "learner.algorithm": "oasis"}
    wide |= {"serve.aliases": ["stable", "latest"]}
    config = load_config(None, wide, {})
    W, waiting = 4 * 1024**2, pending_bytes(1024)
    order = (W + waiting) * (2 * 2 + 1)  # what orders lists, of both sides, and one that is being made
    assert serving_bytes(config) == W * (2 * 2 * 2 + 3) + waiting * (2 * 2 + 1) + order
    wider = load_config(None, {**wide, "space.views.x.dim": 8192}, {})
    large = 4 * 8192**2 + pending_bytes(8192)
    assert serving_bytes(wider) == large * (2 * 2 + 1)  # such a form has no matrix
    alone = load_config(None, {**wide, "serve.aliases": ["stable"]}, {})
    assert serving_bytes(alone) == W * 4 + waiting * 2 + (W + waiting) * 3
    held = load_config(None, {**wide, "learner.algorithm": "omks", "learner.objects": 64}, {})
    assert serving_bytes(held) == learner_bytes(held) * 5 + form_bytes(held) * 5 + order  # one for `latest`
    learned = load_config(None, {**wide, "learner.algorithm": "omks", "serving.psd": "off"}, {})
    assert form_bytes(learned, 1000) == learner_bytes(learned)  # it is the support set itself
    both = load_config(None, {**wide, "learner.algorithm": "oasis-softmax"}, {})
    assert form_bytes(both) == 2 * W  # and what shows how familiar queries are
    by_key = load_config(None, {**wide, "keys.slots": 3, "serve.key_models": 2}, {})
    models = 2 * (2 * W + waiting + SLOT_BYTES)  # of two models W and its form
    assert serving_bytes(by_key) == learner_bytes(by_key) * (2 * 2 + 1) + models  # followed by steps
    bounded(
        monkeypatch, need_of(load_config(None, {**wide, "serve.aliases": ["stable"]}, {}), "serve").nbytes
    )
    assert found(wide)["serve.aliases"][0] == "error"
    assert "serve.aliases" not in found({**wide, "serve.aliases": ["stable"]})


@pytest.mark.parametrize("algorithm", ["oks", "omks"])
def test_what_a_form_of_kernels_keeps_of_itself_and_of_each_item_is_counted(algorithm: str) -> None:
    settings: dict[str, Any] = {"learner.algorithm": algorithm, "learner.objects": 3, "learner.triplets": 99}
    settings["serve.aliases"] = ["stable", "latest"]
    config = load_config(None, {"space.views.x.dim": 40, "space.views.x.map": "unit", **settings}, {})
    learner: Any = untrained(config.learner, 40, mapped_columns(config))
    learner.learn_many(triplets(3, 99, 40, "dense"))
    form = learner.form(True, 1.5)
    own = form.features(np.eye(40, dtype=np.float32)).nbytes
    assert form_bytes(config, 40) - form_bytes(config) == own
    assert serving_bytes(config, 40) - serving_bytes(config) == own * (2 * 2 + 1)
    assert (
        form_bytes(config) == form.vectors.nbytes + 2 * form.kept[0].nbytes
    )  # objects as they are, and in tiles


def test_the_items_of_a_catalog_are_counted(tmp_path: Path) -> None:
    lines = [json.dumps({"id": str(n), "x": [1.0, n]}) for n in range(5000)]
    (tmp_path / "items.jsonl").write_text("\n".join(lines))
    told = {}
    for path in ("", f"{tmp_path}/items.jsonl"):
        settings = {"space.views.x.dim": 2, "learner.algorithm": "omks", "catalog.path": path}
        findings = run_checks(load_config(None, settings, {}))
        told[path] = next(one.text for one in findings if one.key == "serve.aliases")
    assert told[""] != told[f"{tmp_path}/items.jsonl"]


@pytest.mark.parametrize("algorithm", sorted(LEARNERS))
@pytest.mark.parametrize("views", [{"x": 40}, {"x": 40, "y": 56}])
def test_what_a_learner_takes_is_what_its_arrays_take(algorithm: str, views: dict[str, int]) -> None:
    spans = {f"space.views.{name}.{key}": v for name, dim in views.items() for key, v in _view(dim).items()}
    config = load_config(None, {"learner.algorithm": algorithm, **spans}, {})
    columns = mapped_columns(config)
    assert [len(one) for one in columns.values()] == list(views.values())
    learner: Any = untrained(config.learner, mapped_dim(config), columns)
    there = sum(array.nbytes for array in learner.state().values())
    if learner.GROWS:  # until it has touched all there is
        rng = np.random.default_rng(0)
        while learner.entries < learner.dim**2:
            rows = rng.standard_normal((3, 50, learner.dim)) * (rng.random((3, 50, learner.dim)) < 0.1)
            learner.learn_many(*rows.astype(np.float32))
        there = int(1.6 * learner.tables.nbytes) + learner.diagonal.nbytes  # while they grow
    if hasattr(learner, "support"):  # has arrays that follow from its state
        there += sum(array.nbytes for array in (*learner.support.index, *learner.support.values))
    assert there - 500 <= learner_bytes(config) <= 1.5 * there


@pytest.mark.parametrize("algorithm", ["soml-da", "soml-tg", "oasis"])
def test_what_models_by_key_take_is_counted(algorithm: str) -> None:
    slots, dim = 1000, 4
    space = {f"space.views.x.{key}": v for key, v in _view(dim).items()}
    config = load_config(None, {"learner.algorithm": algorithm, "keys.slots": slots, **space}, {})
    one = algorithm_of(config.learner.algorithm, config.keys)
    settings = one.settings(config.learner, mapped_columns(config))
    rows = as_block(np.random.default_rng(0).standard_normal((slots, dim)).astype(np.float32))
    names = np.array([b"%d" % number for number in range(slots)], "S64")
    batch = TripletBatch(rows, rows, rows, keys=names)
    one.make(settings, dim, None).learn_many(batch)  # what is made once for all
    tracemalloc.start()
    learner: Any = one.make(settings, dim, None)
    learner.learn_many(batch)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(learner.names()) == slots
    assert taken <= learner_bytes(config) <= 4 * taken


def _view(dim: int) -> dict[str, object]:
    return {"dim": dim, "map": "unit"}


def test_kernels_of_a_view_that_is_not_there_are_refused() -> None:
    kernels = [{"kind": "rbf", "views": ["colour"]}]
    grade, text = found({"learner.algorithm": "omks", "learner.kernels": kernels})["learner"]
    assert grade == "error"
    assert "there is no view 'colour'; there are x" in text


def test_more_objects_than_a_form_is_made_of_are_refused() -> None:
    many = {"learner.algorithm": "oks", "learner.objects": MOST_OBJECTS + 1}
    assert found(many)["learner.objects"][0] == "error"
    assert "learner.objects" not in found({**many, "learner.objects": MOST_OBJECTS})
    assert "learner.objects" not in found({**many, "serving.psd": "off"})


def test_what_serve_reads_is_read(tmp_path: Path) -> None:
    (tmp_path / "shown.jsonl").write_text('{"id": "a", "text": "one"}\n{"no": "id"}\n')
    grade, text = found({"serve.display": str(tmp_path / "shown.jsonl")})["serve"]
    assert (grade, "line 2" in text) == ("error", True)
    grade, text = found({"serve.catalog": str(tmp_path / "none.jsonl")})["serve"]
    assert (grade, "none.jsonl" in text) == ("error", True)


def test_a_text_model_is_opened_and_compared_with_the_view(tmp_path: Path) -> None:
    told = {"embeddings.folder": str(write_folder(tmp_path / "tiny", dim=4))}
    assert found(told)["embeddings"] == ("error", "the model has 4 dimensions, the view x 3")
    assert "embeddings" not in found(told | {"space.views.x.dim": 4})
    two = found(told | {"space.views.y.dim": 4})["embeddings"]
    assert two == ("error", "the space has 2 views")
    (tmp_path / "tiny" / "modules.json").unlink()
    assert "has no modules.json" in found(told)["embeddings"][1]


def test_weights_by_position_are_read(tmp_path: Path) -> None:
    file = tmp_path / "bias.toml"
    told = {"feed.position_weights": str(file)}
    assert found(told)["feed.position_weights"][1].endswith("bias.toml: No such file or directory")
    file.write_text("examination = [1.0, 0.5]\nshown = [10, 10]\nclicks = [4, 2]\n")
    assert "feed.position_weights" not in found(told)


def test_an_upstream_is_asked_and_its_key_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = {"embeddings.upstream": "http://127.0.0.1:1/v1"}
    assert found(told)["embeddings"][0] == "error"
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    grade, text = found(told | {"embeddings.key_env": "NO_SUCH_KEY"})["embeddings"]
    assert (grade, "NO_SUCH_KEY, which is not set" in text) == ("error", True)
    with embedding(lambda text: [1.0, 0.0]) as upstream:
        told = {"embeddings.upstream": upstream.url, "checkpoints.path": str(tmp_path)}
        assert "embeddings" not in found(told)
        named = told | {"embeddings.models": {"shop": "texts"}}
        assert "embeddings" not in found(named)
        assert [body["model"] for body, _ in upstream.asked] == ["texts"]
        upstream.answers.append(JSONResponse({"error": "bad key"}, 401))
        assert found(named)["embeddings"][0] == "error"
        ModelProbe(ForeignServer(upstream.url), ["texts"], tmp_path / FILE).compare("texts")
        upstream.embed = lambda text: [0.0, 1.0]
        grade, text = found(named)["embeddings"]
        assert (grade, "texts now gives another vector for the same text" in text) == ("error", True)


def test_a_schema_registry_that_answers_and_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RegistryServer()
    try:
        told = {"feed.follow.registry.url": server.url}
        assert "feed.follow.registry" not in found(told)
        assert server.asked == ["/schemas/types"]
        monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "fastavro" else name)
        assert found(told)["feed.follow.registry"] == ("note", "fastavro is not installed")
        server.failing = 503
        grade, text = found(told)["feed.follow.registry"]
        assert grade == "error"
        assert "503" in text
    finally:
        server.stop()
    assert found(told)["feed.follow.registry"][0] == "error"
