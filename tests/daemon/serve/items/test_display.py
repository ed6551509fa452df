"""The display file: read whole, or refused with the line."""

import pytest

from daemon.exits import UserError
from daemon.serve.items.display import DisplayFile, load_display
from streams.items import Display


def test_a_file_is_looked_up_by_id(tmp_path):
    path = tmp_path / "display.jsonl"
    path.write_text(
        '{"id": "a", "title": "A", "tags": ["x", "y"]}\n\n{"id": "ä", "image": "http://shop/ä.jpg"}\n'
    )
    shown = load_display(path)
    assert len(shown) == 2
    assert shown.of("a") == Display("A", tags=("x", "y"))
    assert shown.of("ä") == Display(image="http://shop/ä.jpg")
    assert shown.of("b") is shown.of("\ud800") is DisplayFile().of("a") is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", 'needs an "id"'),
        ('{"title": "A"}', 'needs an "id"'),
        ('{"id": ""}', 'needs an "id"'),
        ('{"id": "b", "price": 1}', "unknown key 'price'"),
        ('{"id": "b", "title": 1}', "title is not a text"),
        ('{"id": "b", "title": ""}', "title is empty"),
        ('{"id": "b", "tags": "x"}', "tags is not a list"),
        ('{"id": "b", "tags": [["x"]]}', "a tag is not a text"),
        ('{"id": "b", "tags": ["x", "x"]}', "twice"),
        ('{"id": "b", "text": "\\ud800"}', "half a character"),
        ('{"id": "a"}', "was there before"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, line, problem):
    path = tmp_path / "display.jsonl"
    path.write_text('{"id": "a"}\n' + line + "\n")
    with pytest.raises(UserError) as refused:
        load_display(path)
    assert "line 2" in str(refused.value)
    assert problem in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.jsonl"):
        load_display(tmp_path / "none.jsonl")
