"""`tripletd check` asks the store of [index], and says what is not as it is configured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_OK
from tests.daemon.index.test_served import units
from tests.daemon.test_own_ranking import OBJECTS, Place
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.xdist_group("postgres")


def test_check_asks_the_store(tmp_path: Path, postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path, "cosine", {"text": 1.0})
    ids = [f"o{number}" for number in range(OBJECTS)]
    tags = [["even"] for _ in ids]
    postgres.table("checked_items", units(), ids, tags=tags, index="vector_ip_ops", more={"sku": ids[::-1]})
    section = f'\n[index]\nstore = "pgvector"\naddress = "{postgres.uri}"\ncollection = "checked_items"\n'
    place.file.write_text(place.file.read_text() + section + 'tags = "tags"\ntimeout = "30s"\n')

    def checked(*settings: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        words = [word for one in settings for word in ("--set", one)]
        code = main(["check", "--json", "--config", str(place.file), *words])
        findings = json.loads(capsys.readouterr().out)["findings"]
        (found,) = [one for one in findings if one["key"] == "index"]
        return code, found

    code, found = checked()
    assert (code, found["grade"]) == (EX_OK, "ok")
    assert f"{OBJECTS} of {OBJECTS} objects that it found are in the catalog" in found["text"]
    for wrong, said in (
        ("index.collection=no_items", "no_items"),
        ("index.tags=labels", "labels"),
        ("index.vector=vectors", "vectors"),
    ):
        code, found = checked(wrong)
        assert (code, found["grade"]) == (EX_CONFIG, "error")
        assert said in found["text"]
    postgres.execute("UPDATE checked_items SET sku = 'sku-' || sku")
    code, found = checked("index.id=sku")
    assert (code, found["grade"]) == (EX_CONFIG, "error")
    assert f"0 of {OBJECTS} objects" in found["text"]
    code, found = checked("index.version=1")
    assert (code, "it was not asked" in found["text"]) == (EX_OK, True)
