"""Judgment files: what is read, what is relevant, and what a broken file says."""

from __future__ import annotations

import pytest

from daemon.validate.judgments import JudgmentsError, load_judgments


def write(tmp_path, text):
    path = tmp_path / "judgments"
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_same_label_is_relevant_but_not_the_query_itself(tmp_path):
    path = write(tmp_path, "a\tx\nb\tx\n\nc\ty\nz\tx\n")
    bound = load_judgments(f"labels:{path}").bind(["c", "b", "a", "unlabelled"])
    assert bound.relevant_rows("a").tolist() == [1]
    assert bound.relevant_rows("z").tolist() == [1, 2]
    assert bound.relevant_rows("unlabelled").tolist() == []
    assert bound.relevant_rows("c").tolist() == []
    assert bound.label("z") == "x"


def test_qrels_only_positive_grades_are_relevant(tmp_path):
    path = write(tmp_path, "q1 0 a 1\nq1 0 b 0\nq1 0 c 2\nq1 0 gone 1\nq2 0 a -1\nc 0 c 1\nc 0 a 1\n")
    bound = load_judgments(f"qrels:{path}").bind(["a", "b", "c"])
    assert bound.relevant_rows("q1").tolist() == [0, 2]
    assert bound.relevant_rows("q2").tolist() == []
    assert bound.relevant_rows("c").tolist() == [0]
    assert bound.label("q1") is None


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        ("qrels", "q 0 a 1\nq 0 a\n", "line 2"),
        ("qrels", "q 0 a yes\n", "line 1"),
        ("labels", "a x\n", "line 1"),
        ("labels", "a\tx\na\ty\n", "line 2"),
        ("labels", "a\t\n", "line 1"),
        ("labels", "\n\n", "no judgment"),
    ],
)
def test_broken_lines_are_named(tmp_path, kind, text, place):
    path = write(tmp_path, text)
    with pytest.raises(JudgmentsError) as error:
        load_judgments(f"{kind}:{path}")
    assert place in str(error.value)
    assert str(path) in str(error.value)


def test_wrong_addresses_and_missing_files_say_what_to_do(tmp_path):
    with pytest.raises(JudgmentsError, match="qrels:path"):
        load_judgments("csv:x")
    with pytest.raises(JudgmentsError, match="check the path"):
        load_judgments(f"labels:{tmp_path / 'none'}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(JudgmentsError, match="UTF-8"):
        load_judgments(f"labels:{tmp_path / 'binary'}")


def test_queries_in_the_catalog_are_told(tmp_path):
    path = write(tmp_path, "a\tx\nb\tx\nz\tx\n")
    labels = load_judgments(f"labels:{path}").bind(["c", "b", "a"])
    assert sorted(labels.catalog_queries()) == ["a", "b"]
    path = write(tmp_path, "text 0 a 1\nc 0 a 1\n")
    qrels = load_judgments(f"qrels:{path}").bind(["c", "b", "a"])
    assert qrels.catalog_queries() == ["c"]
