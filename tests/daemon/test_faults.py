"""What is said of a mistake: foreign names lead to ours, no library's English, no password of an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core._pydantic_core import list_all_errors

from daemon.config import load_config
from daemon.config.faults import FOREIGN_KEYS, FOREIGN_SECTIONS, field_of, syntax_error
from daemon.config.learners import all_keys
from daemon.config.schema import SECTIONS
from daemon.config.values import holds_password, masked
from daemon.exits import UserError
from daemon.schema_errors import sentence
from daemon.serve.http.errors import from_validation


def complaint(folder: Path, text: str) -> str:
    """What loading a file with this text says."""
    file = folder / "tripletd.toml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(file, environ={})
    return str(caught.value)


@pytest.mark.parametrize("error", list_all_errors(), ids=lambda error: error["type"])
def test_no_error_of_pydantic_is_said_in_its_words(error: Any) -> None:
    found = {"type": error["type"], "ctx": error.get("example_context") or {}}
    said = sentence(found)  # type: ignore[arg-type]
    theirs = error["example_message_python"]
    assert said
    assert "{" not in said
    assert "Input should" not in said
    ours = ("value_error", "assertion_error")  # what a validator of ours says
    assert error["type"] in ours or said != theirs


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    on: bool = False
    count: int = 0


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"text": "lamp"}, "text: unknown field"),
        ({"on": "yes"}, "on: expected true or false"),
        ({"count": 1.5}, "count: expected a whole number"),
    ],
)
def test_a_request_is_refused_in_the_words_of_the_configuration(sent: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Strict.model_validate(sent)
    assert from_validation(caught.value).message == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[validate]\npatience = 3\n", "patience_events counts events, by default 20,000"),
        ("[validate]\nearly_stopping = 3\n", "unknown key; did you mean patience_events?"),
        ('[learner]\nkind = "oasis_softmax"\n', "learner.kind: unknown key; did you mean algorithm?"),
        ("[learner]\nlr = 0.1\n", "learner.lr: unknown key; did you mean C?"),
        ("[space.views.x]\nsize = 3\ndim = 3\n", "space.views.x.size: unknown key; did you mean dim?"),
        ('[catalog.columns]\nvector = "v"\n', "catalog.columns.vector: unknown key; did you mean x?"),
        ("[http]\nport = 3\n", "http.port: unknown key; did you mean serve_port?"),
        ("[model]\nC = 3\n", "model: unknown section; did you mean learner?"),
        ("[server]\nC = 3\n", "server: unknown section; did you mean serve?"),
        ('[feed]\nprequential = "yes"\n', 'found "yes"; expected true or false ('),
    ],
)
def test_a_name_of_other_programs_leads_to_ours(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


def test_every_foreign_name_leads_to_a_key_that_there_is() -> None:
    for ours in FOREIGN_SECTIONS.values():
        head, _, inner = ours.partition(".")
        assert head in SECTIONS
        assert not inner or inner in SECTIONS[head].model_fields, ours
    for table, names in FOREIGN_KEYS.items():
        path = (*table.split("."), "x") if table == "space.views" else tuple(table.split("."))
        for foreign, ours in names.items():
            assert field_of((*path, ours)), (table, ours)
            assert not (foreign in all_keys() if table == "learner" else field_of((*path, foreign))), foreign


def test_a_syntax_error_shows_its_line(tmp_path: Path) -> None:
    said = complaint(tmp_path, '[checkpoints]\nevery = 30s\n[http]\nhost = "::1"\n')
    assert "(at line 2, column 11)\n  every = 30s\n            ^" in said


@pytest.mark.parametrize(
    "text",
    [
        '[http]\ntoken = "hunter2\n',
        'token = """\nhunter2\n[[[\n',
        "address = postgresql://u:hunter2@h/db\n",
    ],
)
def test_a_line_that_may_hold_a_secret_is_not_shown(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in complaint(tmp_path, text)
    assert "hunter2" not in syntax_error(text, "Invalid value (at line 2, column 3)")


PASSWORDS = ["hunter2", "hun/ter2", "hun@ter2", "hun?ter2", "hun#ter2", "12/hunter2", "hun:ter2", "hu//nter2"]
PLACES = [
    "postgresql://u:{}@h/db#items",
    "postgres://u:{}@h:5432/db#SELECT 'a:b@c'",
    "https://u:{}@h:1/v1",
    "http://:{}@h",
    "kafka://u:{}@h:9092/t",
    "s3://u:{}@bucket/path",
    "redis://u:{}@h",
    "postgresql://u@h/db?password={}#t",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_in_an_address_is_seen_and_never_shown(tmp_path: Path, place: str, password: str) -> None:
    address = place.format(password)
    parts = [one for one in ("hunter2", "hun", "ter2", "nter2") if one in password]
    if "?password=" not in place:
        assert not any(one in masked(address) for one in parts)
    assert holds_password(address)
    for key in (
        "[catalog]\npath",
        "[serve]\ncatalog",
        "[stream]\naddress",
        "[checkpoints]\npath",
        "[checkpoints]\nendpoint",
        "[embeddings]\nupstream",
        '[index]\nstore = "qdrant"\naddress',
        "[feed.follow.registry]\nurl",
        "[validate]\njudgments",
    ):
        said = complaint(
            tmp_path, f"{key} = {address!r}\n" if "'" not in address else f'{key} = "{address}"\n'
        )
        assert "password" in said.partition("; ")[2] or "judgments" in key, said
        assert "catalog" not in key or "postgres" not in place or "give it in catalog.secret" in said
        if "?password=" not in place:
            assert not any(one in said for one in parts), said
    said = complaint(tmp_path, f'[feed.follow]\nsources = ["a.jsonl", "{address}"]\n')
    assert "holds no password" in said
    assert "?password=" in place or not any(one in said for one in parts), said


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://shop@db.example.org/shop#SELECT * FROM t WHERE mail = 'a:b@c'",
        "postgresql://h1:5432,h2:5433/shop#public.items",
        "postgresql://db/shop#SELECT 'x@y'",
        "https://models.example.org/publishers/x/models/text@001",
        "https://[::1]:8443/v1",
        "http://127.0.0.1:6333",
        "kafka://broker:9092/topic",
        "s3://bucket/path@2",
        "log:clicks.log#events",
        "clicks@home/log.sqlite",
        "qrels:judged@home.txt",
    ],
)
def test_an_address_without_a_password_is_one(address: str) -> None:
    assert not holds_password(address)
