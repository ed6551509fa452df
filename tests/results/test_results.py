"""The protocol of the tables: parts do not meet, choices are of validation alone, runs resume."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from learners import Oasis, OasisConfig
from learners.measures import judge_by_labels
from tests.quality.bench.sets import RawSet, unit
from tests.results import __main__ as command
from tests.results import systems_kernels, systems_rivals
from tests.results.cells import Cell, Row, kept, measure, path_of
from tests.results.data import UNKNOWN, Task, given_test, overlap, parts_of
from tests.results.judge import DEPTH, judge
from tests.results.limited import within
from tests.results.systems import (
    DidNotFinish,
    Fit,
    System,
    best,
    bilinear,
    looks,
    measured,
    trained,
    validate,
)
from tests.results.systems_matrix import SERVED, raw, served
from tests.results.tables import against, cells_of, holm, lines_of, replaced, resampled_p, seeds_told, table


def blobs(seed: int = 0, size: int = 240, classes: int = 4) -> RawSet:
    """Classes apart in two of eight columns."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=size)
    rows = rng.standard_normal((size, 8))
    rows[:, :2] += 2 * np.stack([np.cos(labels * 1.6), np.sin(labels * 1.6)], 1)
    return RawSet("blobs", {"v": unit(rows)}, labels.astype(np.int64))


def load(_: str, seed: int) -> Task:
    return Task(blobs(), seed)


def test_parts_share_no_object_and_leave_none_out():
    for seed in range(5):
        parts = parts_of(blobs(), seed)
        rows = np.concatenate([parts.train, parts.validation, parts.test])
        assert sorted(rows.tolist()) == list(range(240))


def test_another_seed_cuts_otherwise_and_the_same_alike():
    first, again, other = (parts_of(blobs(), seed) for seed in (1, 1, 2))
    assert first.test.tolist() == again.test.tolist() != other.test.tolist()


def test_photos_are_judged_by_the_part_that_their_source_keeps():
    test = given_test("photos")
    assert test is not None
    assert len(test) == 341
    assert given_test("tfidf") is None


def test_the_classes_of_what_is_judged_are_hidden():
    given = load("blobs", 0)
    assert set(given.labels[given.parts.test]) == {UNKNOWN}
    assert UNKNOWN not in given.labels[given.parts.train]


def test_triplets_are_of_the_training_part():
    given = load("blobs", 0)
    q, c, s = given.triplets
    assert np.isin(given.triplets, given.parts.train).all()
    assert (given.truth[q] == given.truth[c]).all()
    assert (given.truth[q] != given.truth[s]).all()


def test_spaces_are_fitted_without_the_objects_that_are_judged():
    given = load("blobs", 0)
    data = blobs()
    data.views["v"][given.parts.test] = unit(np.random.default_rng(9).standard_normal((48, 8)))
    other = Task(data, 0)
    rows = given.parts.train
    assert np.array_equal(
        given.fitted("whiten", components=4).Z[rows], other.fitted("whiten", components=4).Z[rows]
    )


def test_what_is_chosen_does_not_depend_on_the_classes_of_what_is_judged():
    data = blobs()
    mixed = data.labels.copy()
    test = parts_of(data, 0).test
    mixed[test] = np.random.default_rng(3).permutation(mixed[test])

    def chosen(labels: np.ndarray) -> list[tuple[str, float, int | None]]:
        given = Task(RawSet("blobs", data.views, labels), 0)
        fits = [
            trained(given, given.space, Oasis(8, OasisConfig(C=C)), {"W": raw}, 5_000, f"{C}")["W"]
            for C in (0.01, 1.0)
        ]
        return [(one.chosen, one.validation, one.triplets) for one in (best(fits), *fits)]

    assert chosen(data.labels) == chosen(mixed)


def test_the_best_is_that_of_validation():
    nothing = lambda queries, gallery: np.zeros((len(queries), len(gallery)), np.float32)
    fits = [Fit(nothing, validation, f"{validation}") for validation in (0.2, 0.7, 0.5)]
    assert best(fits).chosen == "0.7"
    assert best(fits).grid == {"0.2": 0.2, "0.7": 0.7, "0.5": 0.5}


def test_a_row_is_that_of_its_best_look_and_stops_when_out_of_patience():
    given = load("blobs", 0)
    found = trained(given, given.space, Oasis(8), {"W": raw, SERVED: served}, 80_000)
    for fit in found.values():
        heights = [height for _, height in fit.curve]
        assert fit.validation == max(heights)
        assert fit.triplets == fit.curve[heights.index(max(heights))][0]
        assert len(heights) - 1 - heights.index(max(heights)) <= 2
        assert validate(given, fit.scores) == fit.validation, "later learning changed what was kept"


def test_looks_end_at_the_limit():
    assert list(looks(9_000)) == [2_500, 5_000, 9_000]


def test_measures_are_those_of_the_library():
    data = blobs()
    every = np.arange(len(data))
    scores = bilinear(data.views["v"])
    found = judge(scores, data.labels, every, every)
    public = judge_by_labels(
        lambda rows: scores(rows, every), data.labels, every, k=DEPTH, ties="relevant last"
    )
    assert found.map == pytest.approx(public.map)
    assert found.macro == pytest.approx(public.macro_map)
    assert found.at(DEPTH) == pytest.approx(public.mean_precision)


def test_ties_go_to_the_wrong_objects_and_a_query_is_no_candidate():
    labels = np.array([0, 0, 1, 1])
    same = lambda queries, gallery: np.ones((len(queries), len(gallery)), np.float32)
    every = np.arange(4)
    found = judge(same, labels, every, every)
    assert found.map == pytest.approx(1 / 3)
    assert found.at(1) == 0


def test_a_fit_that_takes_too_long_is_ended_and_named():
    def forever() -> None:
        while True:
            pass

    with pytest.raises(DidNotFinish, match="did not finish in 1 s of a processor"):
        within(1, forever)


def test_a_fit_within_its_limit_gives_what_it_found_and_its_time():
    found, took = within(5, lambda: sum(range(1_000_000)))
    assert found == 499_999_500_000
    assert 0 < took < 5
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        within(5, lambda: 1 // 0)


def views() -> Task:
    """Two descriptors of each object."""
    one, other = blobs(), blobs(1)
    labels = one.labels
    rows = other.views["v"] + one.views["v"][:, ::-1]
    return Task(RawSet("two", {"v": one.views["v"], "w": unit(rows)}, labels), 0)


@pytest.mark.parametrize("mean", [False, True])
def test_scores_of_a_support_set_are_those_of_the_library(mean):
    given = views()
    space = systems_kernels.described(given)
    learner = systems_kernels.learner_of(given, space, 1.0, "share", mean)
    learner.learn_many(*(space.rows(rows) for rows in given.triplets[:, :300]))
    supports = systems_kernels.Supports.of(learner)
    q, g = given.parts.validation[:10], given.parts.validation
    found = systems_kernels.weighed(space, supports, learner.theta)(q, g)
    assert found == pytest.approx(learner.similarity(space.dense[q], space.dense[g]), abs=2e-3)
    assert np.abs(found).max() > 0.3


def test_ridge_tells_the_settings_that_validation_liked_best():
    given = load("blobs", 0)
    (fit,) = systems_rivals.ridge(given).values()
    assert fit.validation == max(fit.grid.values()) == fit.grid[fit.chosen]
    assert fit.validation > validate(given, bilinear(given.X)) + 0.05


class Counted:
    """A system that counts how often it is fitted."""

    def __init__(self, limit: bool = False) -> None:
        self.fits, self.limit = 0, limit
        self.system = System("cosine", ("cosine",), self.fit, ("blobs",))

    def fit(self, given: Task) -> dict[str, Fit]:
        self.fits += 1
        if self.limit:
            raise DidNotFinish("did not finish in 1 s")
        return {"cosine": measured(given, bilinear(given.X), "as it is")}


def test_a_cell_is_measured_once(tmp_path):
    counted = Counted()
    first = measure(counted.system, "blobs", 0, tmp_path, load)
    assert (
        measure(counted.system, "blobs", 0, tmp_path, load)
        == first
        == kept("blobs", counted.system, 0, tmp_path)
    )
    assert counted.fits == 1
    measure(counted.system, "blobs", 1, tmp_path, load)
    assert counted.fits == 2


def test_a_cell_of_another_meaning_is_measured_again(tmp_path):
    counted = Counted()
    measure(counted.system, "blobs", 0, tmp_path, load)
    path = path_of("blobs", "cosine", 0, tmp_path)
    path.write_text(path.read_text().replace('"version": ', '"version": 9'))
    measure(counted.system, "blobs", 0, tmp_path, load)
    assert counted.fits == 2


def test_a_cell_of_another_edition_is_measured_again_and_in_no_table(tmp_path):
    counted = Counted()
    measure(counted.system, "blobs", 0, tmp_path, load)
    changed = replace(counted.system, edition=2)
    assert lines_of("blobs", [changed], tmp_path) == []
    measure(changed, "blobs", 0, tmp_path, load)
    assert counted.fits == 2
    assert len(lines_of("blobs", [changed], tmp_path)) == 1


def test_what_did_not_finish_is_said_and_not_tried_again(tmp_path):
    counted = Counted(limit=True)
    for _ in range(2):
        assert measure(counted.system, "blobs", 0, tmp_path, load).unfinished == "did not finish in 1 s"
    assert counted.fits == 1


def row(found: float, **other: object) -> Row:
    return Row(found, found, [found] * DEPTH, {"0": found}, found, **other)


def written(folder, name: str, heights: list[float], **other: object) -> System:
    for seed, height in enumerate(heights):
        Cell({name: row(height, **other)}).write(path_of("blobs", name, seed, folder))
    return System(name, (name,), lambda given: {}, ("blobs",))


def test_tables_tell_mean_deviation_lead_and_seeds(tmp_path):
    heights = [0.5, 0.52, 0.51, 0.5, 0.52]
    systems = [
        written(tmp_path, SERVED, heights, chosen="C = 1", triplets=5_000, zeros=0.25, seconds=2.0),
        written(tmp_path, "rival", [0.40, 0.43, 0.41, 0.4, 0.42], chosen="rho = 1"),
        written(tmp_path, "alike", [0.51, 0.51, 0.51]),
    ]
    lines = lines_of("blobs", systems, tmp_path)
    text = list(table(lines, 0.25))
    assert text[2].startswith(f"| {SERVED} | 0.510 ± 0.010 | 0.510 | 0.510 |")
    assert text[2].endswith("| 25.0 % | 5,000 | 2.0 | C = 1 | 0-4 |")
    assert "| **-0.098 (p < 0.001)** |" in text[3]
    assert "| +0.000 |" in text[4], "three seeds are too few for a test"
    assert list(cells_of(lines[2], None))[-1] == "0-2"
    assert "p " not in "".join(table(lines)), "the same objects are judged by every seed"


def test_p_values_are_corrected_over_all_rows(tmp_path):
    ps = [0.01, 0.04, 0.03, 0.5]
    assert holm(ps) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    first = [0.5, 0.52, 0.51, 0.5, 0.53]
    alone = [written(tmp_path, SERVED, first), written(tmp_path, "rival", [0.4, 0.43, 0.41, 0.42, 0.4])]
    p = against(lines_of("blobs", alone, tmp_path), 0.25)["rival"][1]
    more = [*alone, written(tmp_path, "other", [0.5, 0.53, 0.5, 0.5, 0.52])]
    assert against(lines_of("blobs", more, tmp_path), 0.25)["rival"][1] == pytest.approx(2 * p)


def test_p_values_of_splits_that_share_objects_promise_no_more_than_they_keep():
    """Differences of objects that are 0 in the mean, judged by five splits of a fifth each: the plain t-test
    calls more than a twentieth of such sets sure, the corrected one does not."""
    rng, size = np.random.default_rng(0), 100
    sets = rng.standard_normal((2_000, size))
    splits = np.stack([rng.permuted(np.tile(np.arange(size), (2_000, 1)), axis=1)[:, :20] for _ in range(5)])
    leads = np.take_along_axis(sets[None], splits, axis=2).mean(axis=2).T
    sure = [np.mean([resampled_p(one, ratio) < 0.05 for one in leads]) for ratio in (0.0, 0.25)]
    assert sure[0] > 0.08
    assert sure[1] == pytest.approx(0.05, abs=0.015)
    assert overlap("photos") is None
    parts = parts_of(blobs(), 0)
    assert overlap("tfidf") == pytest.approx(len(parts.test) / len(parts.train), abs=0.01)


def test_only_what_is_between_the_markers_of_a_section_changes():
    page = "a\n<!-- begin: tables -->\nold\n<!-- end: tables -->\nb\n"
    once = replaced(page, "tables", ["new"])
    assert once == "a\n<!-- begin: tables -->\n\nnew\n\n<!-- end: tables -->\nb\n"
    assert replaced(once, "tables", ["new"]) == once
    with pytest.raises(ValueError, match="begin: ridge"):
        replaced(page, "ridge", [])


def test_the_page_has_the_markers_that_the_command_fills():
    page = command.PAGE.read_text(encoding="utf-8")
    for name in {"tables", *command.SECTIONS} - {"freshness"}:  # which has a page of its own
        assert "\nonce\n" in replaced(page, name, ["once"])


def test_who_measures_a_section_leaves_the_tables_of_the_sets(tmp_path, monkeypatch):
    page = tmp_path / "results.md"
    page.write_text(
        "".join(f"<!-- begin: {one} -->\nold\n<!-- end: {one} -->\n" for one in ("tables", "regime"))
    )
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(
        command, "_section", lambda name: [SimpleNamespace(__name__=name, lines=lambda: ["new"])]
    )
    assert command.main(["--systems", "--sections", "regime", "--draw-only", "--write"]) == 0
    before, after = page.read_text().split("<!-- end: tables -->")
    assert before == "<!-- begin: tables -->\nold\n"
    assert "new" in after
    assert "old" not in after


def test_seeds_are_told_in_few_words():
    assert [seeds_told(one) for one in ([0], [0, 1, 2], [0, 2])] == ["0", "0-2", "0, 2"]


def test_names_of_systems_and_rows_are_told_apart():
    names = [one.name for one in command.SYSTEMS]
    rows = [row for one in command.SYSTEMS for row in one.rows]
    assert len(set(names)) == len(names)
    assert len(set(rows)) == len(rows)
    assert SERVED in rows


SET_NAMES = {"photos": "photos", "tf-idf": "tfidf", "sentences": "sentences", "Fashion-MNIST": "fashion"}


def tables_of(page: str, name: str) -> list[set[str]]:
    """Figures of three digits that each table of a page has for a set: below its heading, in rows that begin
    with its name, and in tables whose first line names it."""
    found, heading, head = [set[str]()], "", ""
    for line in page.splitlines():
        heading = line if line.startswith("#") else heading
        before, head = head, "" if not line.startswith("|") else head or line
        if head != before:
            found.append(set())
        if heading.strip("# ") == name or line.startswith(f"| {name} ") or re.search(rf"\b{name}\b", head):
            found[-1] |= set(re.findall(r"(?<=\.)\d{3}(?!\d)", line))
    return found


def cited_by(page: str) -> list[tuple[str, set[str]]]:
    """(set, figures) of what follows the name of a set, up to the next name or the end of what is said."""
    names = "|".join(SET_NAMES)
    parts = [part for line in page.splitlines() for part in re.split(rf"(?=\b(?:{names})\b)", line)]
    told = [
        (found[0], re.split(r";|\||\. |: ", part)[0]) for part in parts if (found := re.match(names, part))
    ]
    figures = [(name, set(re.findall(r"(?<![\d+-])\.(\d{3})(?!\d)", text))) for name, text in told]
    return [one for one in figures if one[1]]


def test_figures_that_verdicts_give_for_a_set_are_in_one_table_of_it():
    """`photos .561` is in a table of photos, with whatever else is said of photos there: a page has so many
    figures that a wrong one would often be in some table."""
    assert cited_by("photos .561 (.226), tf-idf .564; .2 s") == [
        ("photos", {"561", "226"}),
        ("tf-idf", {"564"}),
    ]
    page = command.PAGE.read_text(encoding="utf-8")
    cited = cited_by(command.PAGE.with_name("verdicts.md").read_text(encoding="utf-8"))
    assert len(cited) > 20
    of = {name: tables_of(page, ours) for name, ours in SET_NAMES.items()}
    assert [one for one in cited if not any(one[1] <= table for table in of[one[0]])] == []
