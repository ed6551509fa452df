"""Each mode of a store is judged by held-out lists, as the store answers, and the verdict is kept."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_OK, EX_USAGE
from daemon.index.verdicts import (
    IndexVerdict,
    JudgedStore,
    KeptVerdicts,
    ModeVerdict,
    choose_mode,
    read_verdict,
)
from daemon.telemetry import ValidateMetrics
from daemon.validate.inputs import open_inputs
from daemon.validate.store_modes import compare_modes
from tests.daemon.index.test_served import units
from tests.daemon.test_own_ranking import DENSE, OBJECTS, Place, given
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.xdist_group("postgres")
STORE = JudgedStore("pgvector judged_items", 200)


class Judged(Place):
    """Users click what is near by the first two coordinates, on lists of five objects in no order."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        super().__init__(folder, "cosine", {"text": 1.0})
        section = f'\n[index]\nstore = "pgvector"\naddress = "{postgres.uri}"\ncollection = "judged_items"\n'
        written = self.file.read_text() + section + 'timeout = "30s"\n'
        held = 'holdout_share = 0.5\nholdout_by = "list"'
        self.file.write_text(written.replace("holdout_share = 0.0", held))
        draw, now = np.random.default_rng(3), int(1000 * time.time())
        taste = given()["text"] @ np.diag([3.0, 3.0, *[0.01] * (DENSE - 2)])
        taste /= np.linalg.norm(taste, axis=1, keepdims=True)
        lines = []
        for number in range(800):
            query, *shown = draw.choice(OBJECTS, 6, replace=False).tolist()
            clicked = int(np.argmax(taste[shown] @ taste[query]))
            one = {"id": f"l{number}", "ts": now, "q": f"o{query}", "shown": [f"o{row}" for row in shown]}
            lines.append(json.dumps({**one, "clicked": [clicked]}))
        (folder / "clicks.jsonl").write_text("\n".join(lines))
        assert main(["feed", str(folder / "clicks.jsonl"), "--config", str(self.file)]) == EX_OK
        assert main(["learn", "--exit-when-caught-up", "--config", str(self.file)]) == EX_OK


def test_a_mode_is_judged_as_the_store_answers(
    tmp_path: Path, postgres: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Judged(tmp_path, postgres)
    postgres.table("judged_items", units(), index="vector_ip_ops")
    number, words = place.newest().number, ["index", "judge", "latest", "--config", str(place.file)]
    kept = KeptVerdicts(place.versions, STORE, every_s=0.0)
    assert kept.mode_of(number).mode == "own"
    capsys.readouterr()
    assert main([*words, "--dry-run", "--json"]) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert read_verdict(place.versions, number, STORE) is None
    assert told["modes"]["rescored"]["queries"] == OBJECTS
    assert told["modes"]["rescored"]["mean"] > 3 * told["modes"]["rescored"]["error"] > 0
    assert main(words) == EX_OK
    assert "rescored: holds, +0." in capsys.readouterr().out
    notes = {path.name for path in (tmp_path / "checkpoints/in-hand").iterdir()}
    assert "learn.note" in notes
    assert "validate.note" not in notes, "that is of a `validate` which runs meanwhile"
    verdict = read_verdict(place.versions, number, STORE)
    assert verdict is not None
    assert verdict.to_meta() | {"at": 0} == {name: told[name] for name in verdict.to_meta()} | {"at": 0}
    assert kept.mode_of(number).mode == told["mode"] in ("rescored", "folded")
    assert kept.mode_of(number + 7).mode == told["mode"]  # of a later version that has none of its own
    assert kept.mode_of(number - 1).mode == "own"
    fewer = KeptVerdicts(place.versions, replace(STORE, candidates=20), every_s=0.0).mode_of(number)
    assert (fewer.mode, "with 20 candidates" in fewer.why) == ("own", True)
    # Of a store that lacks nearly all objects every ranking is the same.
    postgres.execute("DELETE FROM judged_items WHERE id <> 'o1'")
    assert main(words) == EX_OK
    assert "+0.0000 (error 0.0000)" in capsys.readouterr().out
    assert main([*words, "--set", "index.store="]) == EX_USAGE
    assert "no store is configured" in capsys.readouterr().err


def test_a_store_of_exported_vectors_is_judged_against_your_own_ranking_of_the_catalog(
    tmp_path: Path, postgres: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Judged(tmp_path, postgres)
    number, out = place.newest().number, tmp_path / "items.npy"
    assert main(["models", "export", "latest", "--out", str(out), "--config", str(place.file)]) == EX_OK
    ids = json.loads(Path(f"{out}.json").read_text())["ids"]
    postgres.table("judged_items", np.load(out), ids, index="vector_ip_ops")
    words = ["index", "judge", "--config", str(place.file), "--json", "--set", f"index.version={number}"]
    capsys.readouterr()
    assert main([*words, "latest"]) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert (list(told["modes"]), told["mode"]) == (["embedded"], "embedded")
    assert told["modes"]["embedded"]["mean"] > 3 * told["modes"]["embedded"]["error"] > 0
    kept = KeptVerdicts(place.versions, replace(STORE, exported=True), every_s=0.0)
    assert [kept.mode_of(one).mode for one in (number, number + 1)] == ["embedded", "catalog"]
    assert KeptVerdicts(place.versions, STORE, every_s=0.0).mode_of(number).mode == "own"
    # The vectors of all objects go around by one: what is found has nothing to do with what is asked.
    postgres.table("judged_items", np.load(out), [*ids[1:], ids[0]], index="vector_ip_ops")
    assert main([*words, "latest"]) == EX_OK
    assert json.loads(capsys.readouterr().out)["mode"] == "catalog"
    assert kept.mode_of(number).mode == "catalog"
    assert main([*words, "0"]) == EX_USAGE
    assert f"the store holds vectors of version {number}, not of version 0" in capsys.readouterr().err


def test_a_ranking_that_users_like_less_does_not_hold(tmp_path: Path, postgres: Postgres) -> None:
    place = Judged(tmp_path, postgres)
    with ExitStack() as stack:
        inputs = open_inputs(stack, load_config(place.file), ValidateMetrics(), newest_lists=True)
        while not inputs.holdout.caught_up():
            inputs.holdout.poll(0.2, lambda seconds, error: True)
        inputs.candidates.open(0)
        panel = inputs.judge().panel([held.impression for held in inputs.holdout.window])
    liked: list[list[str]] = [[] for _ in panel.queries]
    skipped: list[list[str]] = [[] for _ in panel.queries]
    for row, one in enumerate(panel.impressions):
        for place_shown, ref in enumerate(one.shown):
            side = liked if place_shown in one.clicked else skipped
            side[int(panel.group[row])].append(str(ref.id))
    better, worse = compare_modes(panel, liked, skipped), compare_modes(panel, skipped, liked)
    assert (better.holds, worse.holds) == (True, False)
    assert better.mean > 5 * better.error
    assert worse.mean <= 0


def test_which_mode_is_taken() -> None:
    def verdict(**means: float) -> IndexVerdict:
        return IndexVerdict(
            "s", 200, 4, {name: ModeVerdict(mean, 0.01, 300) for name, mean in means.items()}, 1.0
        )

    store = JudgedStore("s", 200)
    assert choose_mode(None, store).mode == "own"
    assert choose_mode(verdict(rescored=0.05, folded=0.055), store).mode == "rescored"
    assert choose_mode(verdict(rescored=0.05, folded=0.07), store).mode == "folded"
    assert choose_mode(verdict(rescored=0.05, folded=-0.02), store).mode == "rescored"
    assert choose_mode(verdict(rescored=-0.05, folded=-0.005), store).mode == "folded"
    assert choose_mode(verdict(rescored=-0.02, folded=-0.02), store).mode == "own"
    assert not ModeVerdict(0.5, 0.01, 49).holds
    found = IndexVerdict.of_meta(verdict(rescored=0.1).to_meta())
    assert found == verdict(rescored=0.1)
    assert IndexVerdict.of_meta({"format": 2}) is None
    exported = JudgedStore("s", 200, exported=True)
    assert choose_mode(None, exported).mode == "catalog"
    assert choose_mode(verdict(embedded=0.05), exported).mode == "embedded"
    assert choose_mode(verdict(embedded=-0.05), exported).mode == "catalog"
    on = [
        one for one in (store, exported, replace(store, candidates=100)) if verdict(rescored=0.1).is_on(one)
    ]
    assert on == [store]
    assert verdict(embedded=0.1).is_on(exported)
