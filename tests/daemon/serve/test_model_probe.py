"""An upstream that begins to give another model's vectors is noticed, whatever their size."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from daemon.serve.model_probe import FILE, LEAST_COSINE, TEXT, ModelProbe, ModelWatch
from streams.foreign_http import ForeignError, ForeignServer
from tests.harness.embedder import embedding


@pytest.mark.parametrize("kept", [True, False], ids=["in a file", "in memory"])
def test_another_model_behind_the_same_address_shows(tmp_path: Path, kept: bool) -> None:
    rows = [3.0, 4.0, 0.0]
    with embedding(lambda text: rows) as upstream:
        settings = ForeignServer(upstream.url)
        probe = ModelProbe(settings, ["texts", "texts"], tmp_path / FILE if kept else None)
        assert probe.models == ("texts",)
        assert probe.compare("texts") == (1.0, 3)
        assert upstream.asked[0][0] == {"model": "texts", "input": [TEXT]}
        if kept:
            probe = ModelProbe(settings, ["texts"], tmp_path / FILE)
        rows = [3.001, 4.0, 0.001]
        assert probe.compare("texts")[0] > LEAST_COSINE
        rows = [4.0, -3.0, 0.0]
        assert probe.compare("texts")[0] == pytest.approx(0.0)
        rows = [3.0, 4.0, 0.0, 0.0]
        assert probe.compare("texts") == (0.0, 4)
        rows = [3.0, 4.0, 0.0]
        assert probe.compare("texts") == (pytest.approx(1.0), 3)


def test_what_serve_does_not_have_leave_to_write_is_remembered(tmp_path: Path) -> None:
    rows = [1.0, 0.0]
    with embedding(lambda text: rows) as upstream:
        probe = ModelProbe(ForeignServer(upstream.url), ["texts"], tmp_path / "no-folder" / FILE)
        probe.compare("texts")
        rows = [0.0, 1.0]
        assert probe.compare("texts")[0] == 0.0


def test_who_removes_the_file_accepts_the_new_model_without_a_restart(tmp_path: Path) -> None:
    rows = [1.0, 0.0]
    with embedding(lambda text: rows) as upstream:
        probe = ModelProbe(ForeignServer(upstream.url), ["texts"], tmp_path / FILE)
        probe.compare("texts")
        rows = [0.0, 1.0]
        assert probe.compare("texts")[0] == 0.0
        (tmp_path / FILE).unlink()
        assert probe.compare("texts")[0] == 1.0
        assert probe.compare("texts")[0] == 1.0
        assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_model_that_is_refused_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = list[tuple[str, float]]()
    with embedding(lambda text: [1.0, 0.0]) as upstream:
        probe = ModelProbe(ForeignServer(upstream.url), ["gone", "texts"], None)
        upstream.answers.append(JSONResponse({}, 404))
        ModelWatch(probe, lambda model, cosine: measured.append((model, cosine))).look()
    assert measured == [("texts", 1.0)]
    assert "404 for the model gone" in "".join(capsys.readouterr())


def test_serve_says_so_in_its_log_and_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, measured = [1.0, 0.0], list[tuple[str, float]]()
    with embedding(lambda text: rows) as upstream:
        probe = ModelProbe(ForeignServer(upstream.url), ["texts"], tmp_path / FILE)
        watch = ModelWatch(probe, lambda model, cosine: measured.append((model, cosine)))
        watch.look()
        assert "other vectors" not in "".join(capsys.readouterr())
        rows = [0.0, 1.0]
        watch.look()
        assert "gives other vectors for texts than before" in "".join(capsys.readouterr())
        assert measured == [("texts", 1.0), ("texts", 0.0)]
        upstream.answers.append(JSONResponse({}, 503))
        watch.look()
        assert "was not compared" in "".join(capsys.readouterr())
        upstream.answers.append(JSONResponse({}, 401))
        with pytest.raises(ForeignError, match="401"):
            probe.compare("texts")
