"""status, models and curves over a real version store and ledger."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import Ledger, LedgerEntry, PartitionPosition, VersionMeta, VersionStore
from checkpoints.local import LocalStore
from daemon.cli import main
from daemon.commands import models
from daemon.exits import EX_CANTCREAT, EX_USAGE, UserError
from daemon.look.charts import csv_pieces
from daemon.look.curves import curves_of
from daemon.look.overview import VersionRow
from daemon.replica.view import ModelId, ReplicaStatus
from daemon.serve.metrics import ServeMetrics
from daemon.serve.store import alias_answers
from daemon.telemetry import Health, LearnMetrics, serve_http
from daemon.telemetry.metrics import add_place
from daemon.versions.order import Answering, OrderChoice
from daemon.versions.verdict import Stopped
from streams import source
from streams.open import ensure_topic, open_sink, retain
from streams.source import OutRecord, parse_address
from tests.harness.topics import delete_topic

ORDER = OrderChoice("all", 3.0, 40)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles are waited for: on a busy machine two seconds are soon over."""
    monkeypatch.setattr("daemon.look.live._TIMEOUT_S", 60.0)


def measures(value: float, events: int) -> dict[str, Any]:
    return {
        "events": events,
        "map_full": value,
        "p10_full": value + 0.1,
        "decision_measure": "map_full",
        "guarded": True,
        "version_0": {"map_full": 0.2, "p10_full": 0.3},
    }


@pytest.mark.parametrize(
    ("version", "line", "said"),
    [
        (2, "own", ""),
        (1, "own", ""),
        (7, "own", "latest answers with version 7 of line LINE, which this folder lacks (its newest is 2)"),
        (2, "f" * 16, f"latest answers with version 2 of line {'f' * 16}, which this folder lacks"),
    ],
)
def test_a_server_that_answers_with_what_the_folder_lacks_is_noted(
    home: Path, capsys: pytest.CaptureFixture[str], version: int, line: str, said: str
) -> None:
    """The folder was emptied, or an older copy was put in its place."""
    own = VersionStore(LocalStore(home / "checkpoints")).manifest(2).line
    metrics = ServeMetrics(["latest"])
    add_place(metrics.registry, str(home / "checkpoints"))
    model = ModelId(version, 0, None, 100, own if line == "own" else line)
    states = [ReplicaStatus("latest", model, None, "", "versions")]
    metrics.follow(lambda: states, lambda: None, dict)
    server = serve_http(metrics.registry, Health(), "127.0.0.1", 0)
    try:
        port = ("--set", f"http.serve_port={server.port}")
        problems = json.loads(ask(capsys, "status", "--json", *port))["problems"]
    finally:
        server.close()
    found = [problem for problem in problems if "this folder lacks" in problem]
    assert bool(found) is bool(said)
    assert all(problem.startswith(said.replace("LINE", own)) for problem in found)


def test_a_folder_that_a_role_lost_is_noted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, health = ServeMetrics(["latest"]), Health()
    add_place(metrics.registry, str(home / "checkpoints"))
    states = [ReplicaStatus("latest", None, None, "", "versions", folder="gone", folder_losses={"gone": 1})]
    metrics.follow(lambda: states, lambda: None, dict)
    server = serve_http(metrics.registry, health, "127.0.0.1", 0)
    try:
        port = ("--set", f"http.serve_port={server.port}")
        (problem,) = json.loads(ask(capsys, "status", "--json", *port))["problems"]
        assert problem.startswith("serve: the checkpoint folder is gone: mount it again")
        states[0] = ReplicaStatus("latest", None, None, "", "versions", folder_losses={"gone": 2})
        (problem,) = json.loads(ask(capsys, "status", "--json", *port))["problems"]
        assert problem == "serve: the checkpoint folder was lost 2 times since its start"
        health.started()
        health.set_ready(problem.partition(": ")[2])
        assert json.loads(ask(capsys, "status", "--json", *port))["problems"] == [], "told as its reason"
    finally:
        server.close()


def keep(n: int, version: int, value: float, events: int) -> LedgerEntry:
    return LedgerEntry(n=n, kind="KEEP", version=version, measures=measures(value, events))


STOPPED = Stopped(20_412, 8, 0.002, wait=20_000, end=200)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three versions of 0, 100 and 200 events, 1 best, stopped; a log of 230 records in two partitions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    text = "[stream]\npartitions = 2\n[space.views.x]\ndim = 2\n[http]\n"
    ports = "learn_port = 0\nvalidate_port = 0\nserve_port = 0\n"
    (tmp_path / "tripletd.toml").write_text(text + ports)
    address = parse_address(f"log:{tmp_path}/clicks.log")
    identity = ensure_topic(address, 2)
    sink = open_sink(address)
    sink.send([OutRecord(b"x", partition=i % 2) for i in range(230)])
    sink.close()
    store = LocalStore(tmp_path / "checkpoints")
    versions, ledger = VersionStore(store), Ledger(store)
    epoch = versions.claim()
    for number, events in enumerate((0, 100, 200)):
        meta = VersionMeta(
            parent=number - 1 if number else None,
            counters={"updated": events - 5 if events else 0, "passive": 5 if events else 0},
            positions={p: PartitionPosition(events // 2) for p in (0, 1)},
            stream=asdict(identity),
            learner={"name": "omks", "config": {"kernels": [{"kind": "rbf", "sigma": 0.5}], "weights": []}},
        )
        versions.publish(epoch, {"W": np.eye(2, dtype=np.float32)}, meta)
        value = (0.2, 0.4, 0.3)[number]
        ledger.append({"kind": "KEEP", "version": number, "measures": measures(value, events)})
    ledger.append({"kind": "PROMOTE", "version": 1, "alias": "best"})
    stop = {"kind": "STOP", "version": 1, "reason": STOPPED.reason, "measures": STOPPED.to_json()}
    ledger.append(stop)
    return tmp_path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_status_tells_versions_best_stop_and_lag(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = json.loads(ask(capsys, "status", "--json"))
    assert picture["versions"] == [0, 1, 2]
    assert (picture["newest"]["number"], picture["newest"]["events"]) == (2, 200)
    assert (picture["best"]["number"], picture["best"]["measures"]["map_full"]) == (1, 0.4)
    assert (picture["stopped_by"], picture["stopped_at"], picture["judged"]) == (STOPPED.reason, 1, 3)
    assert (picture["stream"]["lag"], [p["lag"] for p in picture["stream"]["partitions"]]) == (30, [15, 15])
    assert picture["live"] == {"learn": None, "validate": None, "serve": None}
    assert picture["problems"] == []
    text = " ".join(ask(capsys, "status").split())
    assert (
        "STOPPED at version 1: no gain of .002 in 20,412 events and 8 judged versions; 30 events wait" in text
    )
    assert "goes on by itself after 19,970 more events, or when what users click changes" in text
    assert "`tripletd resume` continues now" in text
    assert "30 of 230 events of the stream came after the newest version" in text


def test_status_tells_dead_letters_and_why_the_newest_is_not_best(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "dead letters" not in ask(capsys, "status")
    store = LocalStore(home / "checkpoints")
    versions, ledger = VersionStore(store), Ledger(store)
    meta = VersionMeta(parent=2, counters={"updated": 7, "rejected": 1, "poison": 11})
    number = versions.publish(versions.claim(), {"W": np.eye(2, dtype=np.float32)}, meta).number
    why = "map_full 0.3000, version 0 0.2000; not best: the window cannot decide"
    ledger.append({"kind": "KEEP", "version": number, "reason": why, "measures": measures(0.3, 8)})
    picture = json.loads(ask(capsys, "status", "--json"))
    assert (picture["newest"]["dead_letters"], picture["newest"]["verdict"]) == (12, why)
    text = " ".join(ask(capsys, "status").split())
    assert "8 events, 12 dead letters" in text
    assert "not best: the window cannot decide" in text


def test_latest_is_said_to_be_unproven_where_it_is_not_what_was_judged_best(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = " ".join(ask(capsys, "models", "list").split())
    assert "latest (not shown to be better than your ranking)" in table
    served = ServeMetrics(["stable", "latest"])
    states = [
        ReplicaStatus("stable", ModelId(1), 1.0, "", "versions", answers=Answering(ORDER, reach=False)),
        ReplicaStatus("latest", ModelId(1, 3, 5, 3), 1.0, "", "steps", answers=Answering(ORDER)),
    ]
    served.follow(lambda: states, lambda: None, dict)
    add_place(served.registry, str(home / "checkpoints"))
    server = serve_http(served.registry, Health(), "127.0.0.1", 0)
    try:
        lines = ask(capsys, "status", "--set", f"http.serve_port={server.port}").splitlines()
    finally:
        server.close()
    (latest,) = (line for line in lines if line.startswith("latest"))
    assert "version 1 (not shown to be better than your ranking)" in latest, "steps were learned since"
    how = "re-ranks your own top 40: shown to order lists better; not shown to search better"
    assert f"answers with version 1 ({how})" in " ".join(" ".join(lines).split())
    assert alias_answers(states[1], 1)["note"] == "not shown to be better than your ranking"
    assert alias_answers(states[0], 1)["note"] == how


def test_status_asks_a_running_role_whether_it_is_ready(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    health = Health()
    server = serve_http(LearnMetrics().registry, health, "127.0.0.1", 0)
    try:
        health.started()
        health.set_ready("stalled: 5 records wait")
        port = ("--set", f"http.learn_port={server.port}")
        told = " ".join(ask(capsys, "status", *port).split())
        assert "running, 0 events since its start; not ready: stalled: 5 records wait" in told
        health.set_ready(None)
        assert "not ready" not in ask(capsys, "status", *port)
    finally:
        server.close()


def test_another_tripletd_is_not_taken_for_this_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, own = LearnMetrics(), LearnMetrics()
    add_place(metrics.registry, "/elsewhere/checkpoints")
    add_place(own.registry, str(home / "checkpoints"))
    for page, told in ((metrics, "with /elsewhere/checkpoints"), (own, "running, 0 events since its start")):
        server = serve_http(page.registry, Health(), "127.0.0.1", 0)
        try:
            port = ("--set", f"http.learn_port={server.port}")
            text = " ".join(ask(capsys, "status", *port).split())
            live = json.loads(ask(capsys, "status", "--json", *port))["live"]["learn"]
        finally:
            server.close()
        assert told in text
        assert (live is None) == (page is metrics)


def test_a_pipe_gets_whole_lines(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    why = "not best: " + "the window cannot decide, " * 8 + "to this last word"
    ledger = Ledger(LocalStore(home / "checkpoints"))
    ledger.append({"kind": "KEEP", "version": 2, "reason": f"said; {why}", "measures": measures(0.3, 8)})
    (row,) = [line for line in ask(capsys, "status").splitlines() if line.startswith("newest")]
    assert row.rstrip().endswith(why)


def test_status_of_nothing_at_all_is_an_answer_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    picture = json.loads(
        ask(
            capsys,
            *("status", "--json", "--set", "http.learn_port=0"),
            *("--set", "http.validate_port=0", "--set", "http.serve_port=0"),
        )
    )
    assert (picture["versions"], picture["newest"], len(picture["problems"])) == ([], None, 2)
    assert list(tmp_path.iterdir()) == []


def test_status_goes_on_past_a_damaged_version(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (manifest,) = (home / "checkpoints").glob("versions/*2/manifest.json")
    manifest.chmod(0o600)
    manifest.write_bytes(b"{}")
    picture = json.loads(ask(capsys, "status", "--json"))
    assert picture["newest"]["number"] == 1
    assert "manifest.json" in picture["problems"][0]


def test_a_recreated_topic_has_no_lag_that_could_be_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = parse_address(f"log:{home}/clicks.log")
    delete_topic(address)
    ensure_topic(address, 2)
    assert "another topic of this name" in ask(capsys, "status")


def test_a_log_that_is_slow_to_give_records_leaves_the_lag_with_its_gaps(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WHOLE_SECONDS", -1.0)
    stream = json.loads(ask(capsys, "status", "--json"))["stream"]
    assert (stream["lag"], [p["lag"] for p in stream["partitions"]]) == (30, [15, 15])


def test_one_damaged_manifest_and_one_damaged_verdict_hide_nothing_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "checkpoints" / "versions" / "0000000002" / "manifest.json").write_bytes(b"{}")
    entry = sorted((home / "checkpoints" / "ledger").iterdir())[0]
    entry.unlink()
    entry.write_bytes(b"{}")
    for arguments in (("models", "list"), ("models", "show", "1"), ("curves", "--csv", "-")):
        assert main(list(arguments)) == 0
        out, err = capsys.readouterr()
        assert f"ledger/{entry.name}" in err
        assert "1" in out
    assert main(["models", "list"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["0", "0"], ["1", "100"], ["2", "damaged"]]
    assert "0000000002" in err
    assert "best" in out
    rows = json.loads(ask(capsys, "models", "list", "--json"))
    assert [bool(row["damaged"]) for row in rows] == [False, False, True]
    noted = json.loads(ask(capsys, "status", "--json"))["problems"]
    assert len(noted) == 3
    assert noted[2].startswith("stable is in doubt: ledger entries that cannot be read (1)")
    assert "best is in doubt" not in ask(capsys, "status")  # it was moved after the lost entry


@pytest.mark.parametrize("columns", [34, 50, 80, 100, 200])
def test_a_list_of_versions_has_whole_names_and_headings_at_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ("best", "monday-before-the-sale", "latest")
    measures = {"map_full": 0.5, "p10_full": 0.25, "position_balanced": 0.5, "clicked_vs_random": 0.125}
    written = "2026-01-31T12:00:00+00:00"
    models._print_list([VersionRow(12, 11, written, 1, 1_234_567, 3 << 20, None, names, measures)])
    out = capsys.readouterr().out
    assert {"version", "names", *(f"{name}," for name in names[:2]), "latest"} <= set(out.split())
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= columns
    assert ("1,234,567" in out, "0.500" in out, "written" in out) == (
        columns >= 50,
        columns >= 80,
        columns >= 80,
    )


def test_models_list_and_show(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(ask(capsys, "models", "list", "--json"))
    assert [(row["number"], row["events"], row["aliases"]) for row in rows] == [
        (0, 0, ["own"]),
        (1, 100, ["best", "stable"]),
        (2, 200, ["latest"]),
    ]
    assert "best" in ask(capsys, "models", "list")
    for name, number in (("best", 1), ("stable", 1), ("latest", 2), ("0", 0)):
        assert json.loads(ask(capsys, "models", "show", name, "--json"))["number"] == number
    text = ask(capsys, "models", "show", "best")
    assert "partition 0 at 50, partition 1 at 50" in text
    assert "updated 95, passive 5" in text
    assert "kernels (kind rbf, sigma 0.5), weights []" in text


def test_models_show_of_an_unknown_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "monday"]) == EX_USAGE
    assert "versions: 0 to 2" in capsys.readouterr().err


def test_curves_in_the_terminal_as_csv_and_as_a_picture(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "version 0 0.200, best 0.400" in ask(capsys, "curves")
    rows = list(csv.DictReader(io.StringIO(ask(capsys, "curves", "--csv", "-"))))
    assert [(row["version"], row["events"], row["map_full"]) for row in rows] == [
        ("0", "0", "0.2"),
        ("1", "100", "0.4"),
        ("2", "200", "0.3"),
    ]
    assert {row["map_full.version_0"] for row in rows} == {"0.2"}
    ask(capsys, "curves", "--out", "curve.png")
    assert (home / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_curves_refuse_what_they_cannot_write(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curves", "--out", "curve.txt"]) == EX_USAGE
    assert main(["curves", "--out", "none/curve.png"]) == EX_CANTCREAT
    assert main(["curves", "--csv", "none/curve.csv"]) == EX_CANTCREAT
    assert "curve.csv: cannot be written" in capsys.readouterr().err


def test_curves_take_the_newest_judgment_and_leave_out_refused_versions() -> None:
    entries = [keep(1, 0, 0.2, 0), keep(2, 1, 0.9, 100), keep(3, 1, 0.4, 100)]
    entries.append(LedgerEntry(n=4, kind="KEEP", version=2, measures={"refused": True, "events": 200}))
    entries.append(LedgerEntry(n=5, kind="PROMOTE", version=1, alias="best", measures=measures(0.9, 100)))
    curves = curves_of([], entries)
    assert [(point.version, point.measures["map_full"]) for point in curves.judged] == [(0, 0.2), (1, 0.4)]
    series = curves.current.series("map_full")
    assert (series.events, series.values, series.reference) == ([0, 100], [0.2, 0.4], [0.2, 0.2])
    best = curves.best_point()
    assert best is not None
    assert best.version == 1
    assert curves.kinds() == ["map_full", "p10_full"]
    assert "guarded" not in "".join(csv_pieces(curves))


def test_status_tells_records_that_are_gone_unlearned(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = parse_address(f"log:{home}/clicks.log")
    assert "were dropped" not in ask(capsys, "status", "--json")
    retain(address, None, 2)  # the newest version stands at 100 of 115 in each partition
    (first, second) = json.loads(ask(capsys, "status", "--json"))["problems"]
    assert first.startswith("partition 0: 14 records were dropped")
    assert second.startswith("partition 1: 14 records were dropped")


def test_the_store_is_never_made_by_looking(tmp_path: Path) -> None:
    from daemon.config import load_config
    from daemon.versions.storage import open_for_reading

    config = load_config(None, {"checkpoints.path": str(tmp_path / "none")}, {})
    with pytest.raises(UserError, match="no such folder"):
        open_for_reading(config)
    assert list(tmp_path.iterdir()) == []
