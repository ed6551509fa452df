"""Lists that people clicked: read as their files say, split by time, measured as by hand; and nothing
of the lists that judge gets to the product.
"""

from __future__ import annotations

import io
import json
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.quality.bench.cells import NEWEST, OURS, YOURS
from tests.quality.bench.sets import unit
from tests.quality.real import materials, wikispeedia
from tests.quality.real.clones import CloneLacks, GitClone
from tests.quality.real.lists import RealSet, clicked_lists, learned_count
from tests.quality.real.measures import clustered_error, list_measures, never_asked, scores_of
from tests.quality.real.measuring import Judge, RealResult, alone_without, labelled_queries
from tests.quality.real.plain import PAIRS, in_hindsight, triplets
from tests.quality.real.running import DaemonRun, schedule, settings_text
from tests.quality.real.sources import NotPrepared, prepare, prepared
from tests.quality.real.tables import BEGIN, END, section, with_section


def make_clone(folder: Path, files: dict[str, bytes]) -> GitClone:
    """A git repository of these files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "all")):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
    return GitClone(folder)


def test_files_of_a_clone_are_read_and_what_it_lacks_is_said(tmp_path):
    clone = make_clone(tmp_path / "one", {"a.txt": b"a\n", "d/x": b"\0x\n\n", "d/y": b"", "d/deeper/z": b"z"})
    assert clone.read("a.txt") == b"a\n"
    assert clone.folder("d") == {"x": b"\0x\n\n", "y": b""}
    bare = tmp_path / "bare"
    subprocess.run(["git", "clone", "-q", "--bare", str(clone.path), str(bare)], check=True)
    assert GitClone(bare).folder("d") == clone.folder("d")
    assert GitClone(bare).commit() == clone.commit()
    with pytest.raises(CloneLacks, match=r"b\.txt"):
        clone.read("b.txt")
    with pytest.raises(CloneLacks, match="no files in e"):
        clone.folder("e")
    blob = subprocess.run(
        ["git", "-C", str(clone.path), "rev-parse", "HEAD:d/x"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (clone.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    assert clone.folder("d") == {"y": b""}, "listed, but not there"


WORDS = ("stone", "river", "wheel", "music", "bread", "cloud", "glass", "horse")
"""Each in three articles: neither too rare nor too frequent for a term."""


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> GitClone:
    """Articles A to L of an encyclopedia; A mentions C, then B; its link to Fig is not in its text."""
    texts = {name: f"{WORDS[at // 3]} and {WORDS[4 + at % 4]}" for at, name in enumerate("ABCDEFGHIJKL")}
    texts["A"] = "first c then b, " + texts["A"]
    links = [
        ("A", "B"),
        ("A", "C"),
        ("A", "Fig_(fruit)"),
        ("B", "A"),
        ("B", "C"),
        ("C", "A"),
        ("Fig_(fruit)", "B"),
    ]
    paths = [
        "h1\t20\t9\tA;B;<;C\tL\ttimeout",  # to B, back, and to C
        "h2\t10\t9\tB;C;A\tFig_%28fruit%29\trestart",  # from C there is one link alone
        "h3\t30\t9\tA;B\tunknown\trestart",
        "h4\t40\t9\tA;L;B\tK\trestart",  # A has no link to L, and L has none
        "h5\t50\t9\tA;C\tC\ttimeout",
    ]
    subjects = ["A\tsubject.Art.Music", "A\tsubject.People", "B\tsubject.Art.Music", "C\tsubject.People"]
    graph = {
        "links": [f"{page}\t{to}".replace("(", "%28").replace(")", "%29") for page, to in links],
        "categories": subjects,
        "paths_unfinished": paths,
        "paths_finished": ["h6\t1\t9\tA;B\tC\t5"],
    }
    files = {
        f"{wikispeedia.ARTICLES}/{name}.txt": text.encode() for name, text in texts.items() if name != "F"
    }
    files[f"{wikispeedia.ARTICLES}/Fig_%28fruit%29.txt"] = texts["F"].encode()
    for name, lines in graph.items():
        files[f"{wikispeedia.GRAPH}/{name}.tsv"] = "\n".join(["# comment", "", *lines, ""]).encode()
    return make_clone(tmp_path_factory.mktemp("games"), files)


def test_a_click_on_the_way_to_an_article_is_a_list_of_its_page(games):
    data = wikispeedia.read(games)
    ids, lists = data.ids, data.lists
    shown = [
        [ids[row] for row in lists.shown[a:b]] for a, b in zip(lists.starts, lists.starts[1:], strict=False)
    ]
    links_of_a = ["C", "B", "Fig_(fruit)"]
    assert [ids[row] for row in lists.queries] == ["Fig_(fruit)", "L", "L", "C"]
    assert shown == [["A", "C"], links_of_a, links_of_a, links_of_a]
    assert lists.clicked.tolist() == [1, 1, 0, 0]
    assert lists.times.tolist() == [10_000, 20_000, 20_002, 50_000], "in order of time, not of the file"
    assert (data.cut, learned_count(1_000)) == (3, 800), "by number"
    assert data.labels[[ids.index(name) for name in "ABCL"]].tolist() == [0, 0, 1, -1]
    np.testing.assert_allclose(np.linalg.norm(data.views["text"], axis=1), 1, atol=1e-6)


def png(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> GitClone:
    files = {
        f"{materials.PICTURES}/{name}.png": png(at)
        for at, name in enumerate(("chalk", "brass", "wax", "tin"))
    }
    train = {"answers": [[0, 1, 2], [3, 2, 1]], "agreement": [[30, 10], [0, 4]]}
    test = {"answers": [[1, 0, 3]], "agreement": [[2, 1]]}
    for part, found in (("train", train), ("test", test)):
        files[materials.ANSWERS.format(part)] = json.dumps(found).encode()
    return make_clone(tmp_path_factory.mktemp("answers"), files)


def test_every_vote_is_a_list_and_the_test_part_judges(answers):
    data = materials.read(answers)
    assert data.ids == ["brass", "chalk", "tin", "wax"]
    assert {name: view.shape for name, view in data.views.items()} == {
        "colour": (4, 256),
        "brightness": (4, 32),
        "edges": (4, 48),
        "thumbnail": (4, 192),
    }
    assert (data.cut, len(data.judged)) == (44, 3)

    def chosen(lists):
        rows = lists.shown.reshape(-1, 2)
        best = rows[np.arange(len(rows)), lists.clicked]
        pairs, counts = np.unique(np.stack([lists.queries, best]), axis=1, return_counts=True)
        return dict(zip(map(tuple, pairs.T.tolist()), counts.tolist(), strict=True))

    assert chosen(data.learned) == {(0, 1): 30, (0, 2): 10, (3, 1): 4}
    assert chosen(data.judged) == {(1, 0): 2, (1, 3): 1}
    assert 10 < data.learned.clicked.sum() < 34, "either side"
    assert (np.diff(data.lists.times) > 0).all()


def test_a_set_is_kept_and_one_that_is_not_says_what_to_do(answers, tmp_path):
    made = prepare("materials", answers.path, tmp_path)
    kept = prepared("materials", tmp_path)
    assert (kept.name, kept.ids, kept.cut, kept.about) == (made.name, made.ids, made.cut, made.about)
    for name, array in vars(made.lists).items():
        np.testing.assert_array_equal(getattr(kept.lists, name), array)
    joined = prepared("materials-as-one-view", tmp_path)
    np.testing.assert_allclose(
        joined.views["x"] @ joined.views["x"].T, made.joined() @ made.joined().T, atol=1e-6
    )
    with pytest.raises(NotPrepared, match="prepare wikispeedia CLONE"):
        prepared("wikispeedia", tmp_path)


def test_parts_of_lists_are_those_lists():
    lists = clicked_lists([(1, 5, [1, 2], 0), (2, 6, [3, 4, 5], 2), (3, 5, [7, 8], 1)])
    part = lists.part(1, 3)
    assert (part.queries.tolist(), part.clicked.tolist(), part.times.tolist()) == ([6, 5], [2, 1], [2, 3])
    assert (part.shown.tolist(), part.starts.tolist()) == ([3, 4, 5, 7, 8], [0, 3, 5])
    assert part.of.tolist() == [0, 0, 0, 1, 1]
    assert part.ranks.tolist() == [0, 1, 2, 0, 1]
    ids = [f"o{row}" for row in range(9)]
    assert [json.loads(line) for line in part.lines(ids, first=1)] == [
        {"id": "list-1", "ts": 2, "q": "o6", "shown": ["o3", "o4", "o5"], "clicked": [2]},
        {"id": "list-2", "ts": 3, "q": "o5", "shown": ["o7", "o8"], "clicked": [1]},
    ]


def test_measures_of_lists_by_hand():
    lists = clicked_lists([(0, 0, [1, 2, 3], 1), (1, 0, [1, 2], 0), (2, 0, [1, 2], 1), (3, 0, [1, 2], 1)])
    scores = np.array([1.0, 3, 3, 5, 4, 1, 2, 2, 1])
    found = list_measures(scores, lists)
    np.testing.assert_allclose(found.auc, [0.75, 1, 1, 0])
    np.testing.assert_allclose(found.reciprocal, [1 / 1.5, 1, 1, 1 / 2])
    # ranks 1 and 2: the upper clicked with weight 1 (right), the lower with 1/2, 1 (right) and 1 (wrong);
    # each outcome then has 2 * 1 * 2.5 / 3.5; of ranks 2 and 3 only the upper one was ever clicked
    np.testing.assert_allclose(found.balanced, (1 * 2.5 + 1.5 * 1) / (2 * 2.5))


def by_rank_alone(lists: int, objects: int, rng: np.random.Generator) -> RealSet:
    """Clicks that depend on the rank and on nothing else, in lists that a ranking made."""
    X = unit(rng.standard_normal((objects, 6)))
    rows = []
    for number in range(lists):
        query = int(rng.integers(objects))
        shown = rng.choice(objects, 8, replace=False)
        shown = shown[np.argsort(-(X[shown] @ X[query]), kind="stable")]
        chance = 1 / np.arange(1, 9)
        rows.append((number, query, shown.tolist(), int(rng.choice(8, p=chance / chance.sum()))))
    return RealSet(
        "x", [f"o{n}" for n in range(objects)], {"x": X}, clicked_lists(rows), lists, np.zeros(0, int), {}
    )


def test_clicks_by_rank_alone_confirm_nobody():
    rng = np.random.default_rng(0)
    data = by_rank_alone(6_000, 60, rng)
    X, lists = data.joined(), data.lists
    shown_by = list_measures(scores_of(lambda rows: X[rows] @ X.T, lists), lists)
    assert shown_by.auc.mean() > 0.65, "whoever made the lists is confirmed"
    assert shown_by.balanced == pytest.approx(0.5, abs=1e-9)
    other = rng.standard_normal((60, 60)) + 0.5 * X @ X.T
    assert list_measures(scores_of(lambda rows: other[rows], lists), lists).balanced == pytest.approx(
        0.5, abs=0.01
    )
    liked = other.copy()
    liked[lists.queries, lists.shown[lists.starts[:-1] + lists.clicked]] += 1
    assert list_measures(scores_of(lambda rows: liked[rows], lists), lists).balanced > 0.55


def test_scores_are_of_each_lists_query():
    rng = np.random.default_rng(1)
    lists = clicked_lists(
        [(n, int(rng.integers(300)), rng.integers(0, 300, 2 + n % 3).tolist(), 0) for n in range(900)]
    )
    table = rng.standard_normal((300, 300))
    np.testing.assert_array_equal(
        scores_of(lambda rows: table[rows], lists), table[lists.queries[lists.of], lists.shown]
    )


def test_errors_are_of_queries_and_new_ones_are_told_apart():
    values, queries = np.array([1.0, 1, 3, 3]), np.array([7, 7, 9, 9])
    assert clustered_error(values, queries) == pytest.approx(np.sqrt(2 * 2**2) / 4)
    assert clustered_error(values, np.arange(4)) == pytest.approx(np.sqrt(4) / 4)
    judged = clicked_lists([(0, 1, [2, 3], 0), (1, 4, [2, 3], 0)])
    assert never_asked(judged, clicked_lists([(0, 1, [5, 6], 0)])).tolist() == [False, True]


def test_labels_judge_on_classes_of_some_size():
    labels = np.array([0, 0, 0, 1, 1, -1, -1])
    assert labelled_queries(labels).tolist() == [0, 1, 2]
    alone = alone_without(labels)
    assert alone[:5].tolist() == labels[:5].tolist()
    assert len(set(alone[5:].tolist()) - {0, 1}) == 2
    assert not len(labelled_queries(np.zeros(0, np.int64)))


def test_pairs_of_the_reference_are_of_the_click_and_what_else_was_shown():
    lists = clicked_lists([(0, 50, list(range(9)), 3), (1, 51, [10, 11], 1)])
    rows = triplets(lists, np.random.default_rng(0))
    assert rows.shape == (3, PAIRS + 1)
    assert rows[:2, :PAIRS].T.tolist() == [[50, 3]] * PAIRS
    assert len(set(rows[2, :PAIRS].tolist()) - {3}) == PAIRS
    assert rows[:, -1].tolist() == [51, 11, 10]
    below = {row for seed in range(20) for row in triplets(lists, np.random.default_rng(seed))[2].tolist()}
    assert below == set(range(9)) - {3} | {10}


def liking(rng: np.random.Generator, lists: int, objects: int = 40) -> RealSet:
    """Clicks on what a metric that has to be learned likes best."""
    X = unit(rng.standard_normal((objects, 6)))
    rows = []
    for number in range(lists):
        query, shown = int(rng.integers(objects)), rng.choice(objects, 4, replace=False)
        best = int(np.argmax((X[shown] * [5, 1, 0, 0, 0, 0]) @ X[query]))
        rows.append((1_500_000_000_000 + number, query, shown.tolist(), best))
    views, ids = {"x": X}, [f"o{n}" for n in range(objects)]
    return RealSet("liked", ids, views, clicked_lists(rows), int(0.8 * lists), np.arange(objects) % 3, {})


def test_the_product_gets_the_first_lists_alone_and_no_setting(tmp_path):
    data = liking(np.random.default_rng(2), 500)
    told = tomllib.loads(settings_text(data))
    assert told == {
        "stream": {"address": "log:clicks.log"},
        "catalog": {"path": "objects.npz"},
        "space": {"views": {"x": {"kind": "dense", "dim": 6}}},
    }
    run = DaemonRun(data, tmp_path / "run")
    run.go_on(data.cut)
    fed = (tmp_path / "run" / "lists.jsonl").read_text().splitlines(keepends=True)
    assert fed == list(data.lists.lines(data.ids))[: data.cut]
    newest, judge = run.newest(), Judge(data)
    row = judge.row(NEWEST, 400, newest.description, newest.scores)
    assert row.answering.startswith("version ")
    assert row.auc > judge.row(YOURS, 0, "", judge.own).auc + 0.1
    with pytest.raises(IndexError):
        run.go_on(data.cut + 1)


def test_the_reference_learns_what_was_clicked():
    data = liking(np.random.default_rng(2), 500)
    judge = Judge(data)
    rows = [
        judge.row(name, 400, "", scores) for name, scores in in_hindsight(data.joined(), data.learned).items()
    ]
    yours = judge.row(YOURS, 0, "", judge.own)
    assert (yours.error, yours.unseen) == (0, None)
    assert all(row.auc > yours.auc + 0.1 and row.error > 0 for row in rows)
    other = replace(
        data, lists=replace(data.lists, clicked=np.where(np.arange(500) < 400, data.lists.clicked, 0))
    )
    for before, after in zip(
        in_hindsight(data.joined(), data.learned).values(),
        in_hindsight(other.joined(), other.learned).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(before(np.arange(5)), after(np.arange(5)))


def test_versions_are_written_up_to_all_lists():
    assert schedule(700, [500]) == [250, 500, 700]
    assert schedule(1_000, [800, 2_000]) == [250, 500, 750, 800, 1_000]


def test_tables_say_what_answers_and_change_nothing_else_of_the_page():
    data = liking(np.random.default_rng(2), 500)
    result, judge = RealResult.of(data), Judge(data)
    result.rows = [
        judge.row(YOURS, 0, "", judge.own),
        judge.row("other", 400, "", judge.own),
        judge.row(OURS, 400, YOURS, judge.own),
        judge.row(NEWEST, 400, "version 3: power 1", judge.own),
    ]
    result.stopped = [400]
    lines = list(section(result))
    names = [line.split(" | ")[1] for line in lines if line.startswith("| ")]
    assert names == ["ranking", YOURS, OURS, NEWEST, "other"]
    (head,) = (line for line in lines if line.startswith("| lists learned"))
    assert "by labels" in head
    assert "new queries" not in head, "an empty column"
    assert f"- After 400 lists: {YOURS} is served; the newest is version 3: power 1." in lines
    result.rows[2] = replace(result.rows[2], answering="version 3: power 1")
    assert "- After 400 lists: version 3: power 1 is the newest, and served." in list(section(result))
    assert any("STOP" in line and "400" in line for line in lines)
    page = f"head\n{BEGIN}\nold\n{END}\ntail\n"
    assert with_section(page, "new\n") == f"head\n{BEGIN}\nnew\n{END}\ntail\n"
