"""Objects that stay where they live: read once for who learns, as they are now for who serves."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.catalogs import learner_catalog, serving_catalog
from daemon.cli import main
from daemon.config import Config, load_config
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_OK, EX_UNAVAILABLE, UserError, report
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.start import run as run_learn
from daemon.validate.role import ValidateOptions
from daemon.validate.role import run as run_validate
from streams.objects.from_postgres import PostgresRows
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord
from tests.daemon.kept import Kept
from tests.harness.kafka.control import fresh_topic
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.xdist_group("postgres")
DIM, OBJECTS = 4, 60
CONFIG = """
[stream]
address = "log:clicks.log"
[space.views.x]
dim = 4
[catalog]
path = "{place}"
[catalog.columns]
x = "embedding"
[feed]
holdout_share = 0.3
[validate]
min_impressions = 2
[http]
learn_port = 0
validate_port = 0
"""


class Shop(Kept):
    """A shop whose objects are the rows of a table."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.file = folder, folder / "tripletd.toml"
        self.file.write_text(CONFIG.format(place=place))

    @property
    def config(self) -> Config:
        return load_config(self.file, environ={})

    def lists(self, name: str, ids: list[str]) -> str:
        """A file of shown lists over the objects of these ids, all with a click."""
        drawn = np.random.default_rng(1)
        path = self.folder / f"{name}.jsonl"
        with path.open("w") as file:
            for number in range(60):
                query, *shown = drawn.choice(ids, 6, replace=False).tolist()
                line = {"id": f"{name}{number}", "ts": 1_700_000_000_000 + number, "q": query}
                file.write(json.dumps({**line, "shown": shown, "clicked": [2]}) + "\n")
        return str(path)

    def learn(self) -> int:
        code = run_learn(self.config, LearnOptions(exit_when_caught_up=True))
        return code or run_validate(self.config, ValidateOptions(exit_when_caught_up=True))


@pytest.fixture
def shop(tmp_path: Path, postgres: Postgres) -> Shop:
    drawn = np.random.default_rng(0).standard_normal((OBJECTS, DIM)).astype(np.float32)
    postgres.table("live", drawn)
    return Shop(tmp_path, f"{postgres.uri}#live")


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every time that objects were read from the database."""
    read: list[str] = []
    batches = PostgresRows.batches
    monkeypatch.setattr(PostgresRows, "batches", lambda *given: read.append("") or batches(*given))
    return read


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """What a command printed, as one line however it was wrapped."""
    return " ".join(capsys.readouterr().out.split())


def test_roles_share_what_was_read_once_and_a_change_reaches_serve_alone(
    shop: Shop, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = asked(monkeypatch)
    config = ["--config", str(shop.file)]
    ids = [f"o{row}" for row in range(OBJECTS)]
    assert main(["check", *config]) == EX_OK
    assert "60 objects, digest" in told(capsys)
    assert main(["feed", shop.lists("first", ids), *config]) == EX_OK
    assert shop.learn() == EX_OK
    served = serving_catalog(shop.config)
    assert served is not None
    assert served.digest == shop.newest().catalog_digest
    assert len(read) == 1
    postgres.execute("INSERT INTO live VALUES ('o99', '[1,2,3,4]', '{}')", "DELETE FROM live WHERE id = 'o7'")
    assert main(["feed", shop.lists("second", ids), *config]) == EX_OK
    assert shop.learn() == EX_OK  # with what its versions were learned with
    assert shop.newest().catalog_digest == served.digest
    assert len(read) == 1
    now = serving_catalog(shop.config)
    assert now is not None
    assert set(ids) ^ set(now.ids) == {"o99", "o7"}
    assert len(read) == 2
    capsys.readouterr()
    assert main(["check", *config]) == EX_OK
    assert "60 objects now, with which serve answers" in told(capsys)
    assert len(read) == 2
    # A copy of the folder, put back elsewhere, of a database that has moved.
    shutil.copytree(shop.folder / "checkpoints", shop.folder / "copy" / "checkpoints")
    copy = Shop(shop.folder / "copy", "postgresql://me@127.0.0.1:1/postgres#live")
    learned = learner_catalog(copy.config)
    assert learned is not None
    assert learned.digest == served.digest


def test_a_database_that_is_away_ends_who_needs_it_with_another_try(
    tmp_path: Path, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    learner_catalog(shop.config)
    (tmp_path / "other").mkdir()
    away = Shop(tmp_path / "other", "postgresql://me@127.0.0.1:1/shop#items")
    for opening in (learner_catalog, serving_catalog):
        with pytest.raises(Exception, match="does not answer") as found:
            opening(away.config)
        assert report(found.value, debug=False) == EX_UNAVAILABLE
    missing = Shop(tmp_path / "other", f"{shop.config.catalog.path}_not_there")
    with pytest.raises(Exception, match="does not exist") as found:
        learner_catalog(missing.config)
    assert report(found.value, debug=False) == EX_DATAERR
    capsys.readouterr()


@pytest.mark.parametrize("kind", ["log", "kafka"])
def test_a_topic_is_read_once_and_what_it_gained_reaches_serve(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Also of a broker that the stream is not on."""
    place = "log:objects.log#objects"
    if kind == "kafka":
        place = request.getfixturevalue("kafka").address(fresh_topic())
    shop = Shop(tmp_path, place)
    if kind == "kafka":
        shop.file.write_text(shop.file.read_text() + '[stream.kafka]\nclient_id = "shop"\n')
    address = shop.config.stream.reached(shop.config.catalog.path)
    config = ["--config", str(shop.file)]
    assert main(["check", *config]) != EX_OK
    assert re.search("there is no (such )?(topic|log)", told(capsys))
    ensure_topic(address, 2)

    def put(number: int, value: object) -> None:
        with closing(open_sink(address)) as sink:
            sink.send([OutRecord(None if value is None else json.dumps(value).encode(), b"o%d" % number)])

    for number in range(30):
        put(number, {"embedding": [number, 1.0, 2.0, 3.0]})
    assert main(["check", *config]) == EX_OK
    assert "30 objects, digest" in told(capsys)
    ids = [f"o{number}" for number in range(30)]
    assert main(["feed", shop.lists("first", ids), *config]) == EX_OK
    put(30, {"embedding": [30, 1.0, 2.0, 3.0]})
    put(7, None)
    learned, served = learner_catalog(shop.config), serving_catalog(shop.config)
    assert learned is not None
    assert served is not None
    assert set(learned.ids) == set(ids)
    assert set(served.ids) == {*ids, "o30"} - {"o7"}
    assert shop.config.serve.catalog == ""
    assert main(["check", *config]) == EX_OK
    assert "30 objects now, with which serve answers" in told(capsys)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("kafka://host:9092", "name the topic of objects"),
        ("kafka://me:secret@host:9092/items", "holds no user and no password"),
        ("log:items.log", "name the topic of objects"),
        ("postgresql://me:secret@host/shop#items", "give it in catalog.secret"),
        ("postgresql://me@host/shop?password=secret#items", "give it in catalog.secret"),
        ("postgresql://me@host/shop", "postgresql://USER@HOST/DATABASE#TABLE"),
    ],
)
def test_an_address_holds_a_table_and_no_password(tmp_path: Path, place: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as found:
        Shop(tmp_path, place).config
    assert found.value.code == EX_CONFIG
    assert "secret@" not in str(found.value)
    assert "=secret" not in str(found.value)
