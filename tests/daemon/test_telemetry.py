"""Metrics, health and the HTTP server, read over a real socket."""

from __future__ import annotations

import http.client
import json
import socket
import time
import warnings
from http import HTTPStatus

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.look import live
from daemon.look.live import LearnStatus, RoleStatus, is_of, role_status
from daemon.runtime import logs
from daemon.telemetry import Health, LearnMetrics, ValidateMetrics, serve_http, version
from daemon.telemetry.metrics import ArrayHistogram, add_place
from daemon.telemetry.server import status_of
from learners import CompileNotice

HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statuses are waited for as the other pages are: two seconds may be too short on a busy machine."""
    monkeypatch.setattr(live, "_TIMEOUT_S", 5.0)


def samples(registry: CollectorRegistry) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for one in family.samples:
            found[one.name + "".join(f"|{key}={value}" for key, value in sorted(one.labels.items()))] = (
                one.value
            )
    return found


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_batch_is_counted_by_outcome_with_loss_and_tau() -> None:
    metrics = LearnMetrics()
    outcome = np.array([0, 0, 1, 2, 3], dtype=np.uint8)
    loss = np.array([0.5, 2.5, 0.0, 0.7, np.nan], dtype=np.float32)
    tau = np.array([0.1, 0.05, 0.0, 0.0, np.nan], dtype=np.float32)
    metrics.record_batch(outcome, loss, tau, seconds=0.0005)
    found = samples(metrics.registry)
    counted = [
        found[f"tripletd_events_total|outcome={n}"] for n in ("updated", "passive", "degenerate", "rejected")
    ]
    assert counted == [2, 1, 1, 1]
    assert found["tripletd_loss_count"] == 4
    assert found["tripletd_loss_sum"] == pytest.approx(3.7)
    assert found["tripletd_tau_count"] == 2
    assert found["tripletd_step_seconds_count"] == 5
    assert found["tripletd_step_seconds_bucket|le=0.0001"] == 5
    assert found["tripletd_step_seconds_bucket|le=3e-05"] == 0


def test_a_float32_value_on_an_edge_falls_into_its_bucket() -> None:
    metrics = LearnMetrics()
    tau = np.full(3, 0.1, dtype=np.float32)
    metrics.record_batch(np.zeros(3, dtype=np.uint8), tau, tau, 0.0)
    assert samples(metrics.registry)["tripletd_tau_bucket|le=0.1"] == 3


def test_array_histogram_equals_counting_one_by_one() -> None:
    registry = CollectorRegistry()
    edges = (0.0, 1.0, 2.0)
    histogram = ArrayHistogram("h", "help", edges, registry)
    values = np.array([-1.0, 0.0, 0.5, 1.0, 1.5, 9.0, np.inf, np.nan])
    histogram.observe_many(values[:4])
    histogram.observe_many(values[4:])
    histogram.observe_many(np.zeros(0))
    histogram.observe_mean(0.0, 0)
    found = samples(registry)
    finite = [float(v) for v in values if np.isfinite(v)]
    for edge in edges:
        assert found[f"h_bucket|le={edge}"] == sum(v <= edge for v in finite)
    assert found["h_bucket|le=+Inf"] == found["h_count"] == len(finite)
    assert found["h_sum"] == sum(finite)


def test_phases_dead_letters_lag_and_checkpoints() -> None:
    metrics = LearnMetrics()
    with metrics.phase("poll"):
        time.sleep(0.002)
    metrics.add_phase("decode", 1.5)
    metrics.record_dead_letters({"not_finite": 2})
    metrics.record_lag(3, 17, 2.5)
    metrics.record_checkpoint(4, 0.02, 1000)
    metrics.checkpoint_failures.inc()
    found = samples(metrics.registry)
    assert found["tripletd_loop_seconds_total|phase=poll"] >= 0.002
    assert found["tripletd_loop_seconds_total|phase=decode"] == 1.5
    assert found["tripletd_loop_seconds_total|phase=idle"] == 0
    assert found["tripletd_dead_letters_total|reason=not_finite"] == 2
    assert found["tripletd_lag_events|partition=3"] == 17
    assert found["tripletd_lag_seconds|partition=3"] == 2.5
    assert (found["tripletd_version"], found["tripletd_checkpoint_bytes"]) == (4, 1000)
    assert found["tripletd_checkpoint_failures_total"] == 1
    assert found["tripletd_checkpoint_age_seconds"] < 60


def test_validate_measures_by_kind_and_role() -> None:
    metrics = ValidateMetrics()
    metrics.record_measures("best", 7, {"map_full": 0.4, "decision": 0.4, "map_clicks": None})
    metrics.record_skipped({"no_click": 3})
    found = samples(metrics.registry)
    assert found["tripletd_holdout_map|kind=map_full|which=best"] == 0.4
    assert found["tripletd_holdout_decision|which=best"] == 0.4
    assert found["tripletd_judged_version|which=best"] == 7
    assert "tripletd_holdout_map|kind=map_clicks|which=best" not in found
    assert found["tripletd_skipped_impressions_total|reason=no_click"] == 3


def test_two_roles_in_one_process_do_not_clash() -> None:
    first, second = LearnMetrics(), LearnMetrics()
    first.version.set(1)
    assert samples(second.registry)["tripletd_version"] == 0


def test_health_goes_from_starting_to_ready_to_stuck() -> None:
    stuck: list[str] = ["the reader thread has not moved for 31 s (poll)"]
    health = Health(lambda: stuck[0] if stuck else None)
    assert health.startup() == health.readiness() == "starting"
    health.starting("reading objects 12,000 of 63,666")
    assert health.startup() == health.readiness() == "starting: reading objects 12,000 of 63,666"
    assert health.liveness() is None  # a slow start is not a stuck loop
    said = stuck.pop()
    health.started()
    assert (health.startup(), health.liveness(), health.readiness()) == (None, None, None)
    health.set_ready("lag")
    assert (health.readiness(), health.liveness()) == ("lag", None)
    stuck.append(said)
    assert health.readiness() == health.liveness() == said
    stuck.clear()
    assert health.liveness() is None


def test_no_page_is_taken_for_another_type() -> None:
    server = serve_http(LearnMetrics().registry, Health(), HOST, 0)
    try:
        for path in ("/metrics", "/status", "/livez", "/nowhere"):
            connection = http.client.HTTPConnection(HOST, server.port, timeout=5)
            connection.request("GET", path)
            assert connection.getresponse().headers["x-content-type-options"] == "nosniff"
            connection.close()
    finally:
        server.close()


def test_every_page_over_http() -> None:
    metrics, health = LearnMetrics(), Health()
    server = serve_http(metrics.registry, health, HOST, 0)
    try:
        assert get(server.port, "/startupz") == (503, "starting\n")
        assert get(server.port, "/livez") == (200, "ok\n")
        health.started()
        health.set_ready("waiting")
        assert get(server.port, "/readyz") == (503, "waiting\n")
        assert said(server.port).not_ready == "waiting"
        health.set_ready(None)
        assert get(server.port, "/readyz?verbose") == (200, "ok\n")
        assert said(server.port).not_ready is None
        status, text = get(server.port, "/metrics")
        assert status == 200
        assert "tripletd_build_info" in text
        assert get(server.port, "/../../etc/passwd")[0] == 404
        add_place(metrics.registry, "/here")
        status, text = get(server.port, "/status")
        assert (status, json.loads(text)["version"]) == (200, version())
        assert [is_of(said(server.port), role, "/here") for role in ("learn", "validate")] == [True, False]
        assert not is_of(said(server.port), "learn", "/elsewhere")
        metrics.record_stepless(3, 0, 2)
        metrics.record_lag(0, 4, 0.5)
        metrics.record_lag(1, 3, 2.5)
        told = said(server.port)
        assert isinstance(told, LearnStatus)
        assert (told.events["duplicate"], told.lag_events, told.lag_seconds) == (3, 7, 2.5)
        assert "tripletd" not in get(server.port, "/status")[1]  # fields of its own, not names of metrics
    finally:
        server.close()
    assert role_status(HOST, server.port) is None
    assert role_status(HOST, 0) is None


def said(port: int) -> RoleStatus:
    found = role_status(HOST, port)
    assert found is not None
    return found


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"role": "learn"}'])
def test_another_program_at_the_port_is_no_role(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = (HTTPStatus.OK, body, "application/json")
    monkeypatch.setattr("daemon.telemetry.server.answer", lambda *about: answered)
    server = serve_http(LearnMetrics().registry, Health(), HOST, 0)
    try:
        assert role_status(HOST, server.port) is None
    finally:
        server.close()


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/livez", 200), ("/nothing", 404)])
def test_head_is_the_answer_without_its_body(path: str, status: int) -> None:
    server = serve_http(LearnMetrics().registry, Health(), HOST, 0)
    try:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=5)
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (status, b"")
        assert int(answer.headers["Content-Length"]) > 0
        connection.close()
    finally:
        server.close()


def test_a_silent_client_does_not_block_the_others() -> None:
    server = serve_http(LearnMetrics().registry, Health(), HOST, 0)
    try:
        with socket.create_connection((HOST, server.port)):
            assert get(server.port, "/livez")[0] == 200
    finally:
        server.close()


def test_a_taken_port_names_the_port_and_the_remedy() -> None:
    server = serve_http(LearnMetrics().registry, Health(), HOST, 0)
    try:
        with pytest.raises(UserError, match=str(server.port)) as caught:
            serve_http(LearnMetrics().registry, Health(), HOST, server.port)
    finally:
        server.close()
    assert caught.value.code == EX_UNAVAILABLE
    assert "another port" in caught.value.remedy


def test_an_address_that_is_not_ours_is_a_configuration_mistake() -> None:
    with pytest.raises(UserError) as caught:
        serve_http(LearnMetrics().registry, Health(), "192.0.2.1", 0)
    assert caught.value.code == EX_CONFIG


def log_lines(capsys: pytest.CaptureFixture[str], level: str, format: str) -> tuple[str, str]:
    from daemon.runtime.logs import configure, get_logger

    configure(level, format, "learn")
    get_logger().debug("quiet")
    get_logger(version=3).info("written", path="/x")
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_log_lines_are_json_on_stderr_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = log_lines(capsys, "info", "auto")
    assert out == ""
    line = json.loads(err)
    assert (line["event"], line["level"], line["role"], line["version"]) == ("written", "info", "learn", 3)


def test_log_lines_are_text_when_asked_and_plain_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    _, err = log_lines(capsys, "debug", "console")
    assert [word in err for word in ("quiet", "written", "path=/x")] == [True] * 3
    assert "\x1b" not in err


def test_no_color_wins_over_force_color(monkeypatch: pytest.MonkeyPatch) -> None:
    from daemon.runtime.logs import wants_colour

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour()


def test_keys_are_told_when_they_are_read() -> None:
    metrics, used = LearnMetrics(), [1]
    assert samples(metrics.registry)["tripletd_keys_used"] == 0
    metrics.keys.follow(5, lambda: len(used))
    metrics.keys.evicted.inc(2)
    used.append(2)
    found = samples(metrics.registry)
    assert [found[f"tripletd_keys_{name}"] for name in ("slots", "used", "evicted_total")] == [5, 2, 2]


def test_kernels_that_are_compiled_are_a_line_of_the_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(logs, "_shown_by_python", lambda message, *_place: others.append(message))
    logs.configure(format="json", role="learn")
    for text, category in (("compiling the kernels", CompileNotice), ("another", UserWarning)):
        warnings.showwarning(text, category, __file__, 1)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["detail"], line["role"]) == ("compiling", "compiling the kernels", "learn")
    assert others == ["another"]


def test_a_lost_folder_is_a_metric_and_in_the_status_of_every_role() -> None:
    metrics = LearnMetrics()
    told = []
    for how, losses in (
        ("", {}),
        ("gone", {"gone": 1}),
        ("", {"gone": 1}),
        ("lacks", {"gone": 1, "lacks": 1}),
    ):
        metrics.folder.record(how, losses)
        metrics.folder.record(how, losses)
        found, status = samples(metrics.registry), status_of(metrics.registry, Health())
        lost = {how: found[f"tripletd_folder_lost|how={how}"] for how in ("gone", "lacks")}
        assert lost == {one: float(one == how) for one in lost}
        assert sum(found[f"tripletd_folder_losses_total|how={how}"] for how in lost) == sum(losses.values())
        told.append(status.folder_message())
    assert told[0] is None
    assert told[1] is not None
    assert told[1].startswith("the checkpoint folder is gone: mount it again")
    assert told[2] == "the checkpoint folder was lost once since its start"
    assert told[3] is not None
    assert "an older copy was put in its place" in told[3]
