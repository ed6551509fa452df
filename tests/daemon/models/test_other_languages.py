"""A version read by the text of checkpoints/FORMAT.md alone, and in JavaScript: the same scores."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import playwright
import pytest

from checkpoints import Ledger, LocalStore, VersionMeta, VersionStore
from daemon.catalogs import as_blocks
from daemon.config.schema import ServingConfig
from daemon.versions.contents import pack
from daemon.versions.forms import FormChoice, make_form
from daemon.versions.restore import serving_form
from learners.maps import SpaceMap
from learners.maps.space import ViewConfig
from streams.catalog import load_catalog
from tests.daemon.oasis_versions import OASIS, state_of

ALONE = Path(__file__).with_name("alone.py")
EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "similar.mjs"
OBJECTS = 25
DENSE = {
    "a": ViewConfig("whiten", {"components": 5}),
    "b": ViewConfig("standardise"),
    "c": ViewConfig("unit"),
}
UNNAMED = {"x": ViewConfig("unit")}
WHOLE = ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig("precondition")]})
OWN = {"a": WHOLE, "words": ViewConfig("unit")}
LENGTHS = {"a": ViewConfig("precondition"), "words": ViewConfig("identity")}
COUNTS = {"words": ViewConfig("tfidf")}
MIXED = {"words": ViewConfig("tfidf"), "a": ViewConfig("identity")}


@dataclass(frozen=True)
class Shop:
    """Version 0 is I, version 1 is learned; `expected` by version: scores of all pairs of objects."""

    folder: Path
    objects: Path
    expected: dict[int, Any]

    @property
    def ledger(self) -> Ledger:
        return Ledger(LocalStore(self.folder))

    def says(self, kind: str, version: int | None, alias: str) -> int:
        return self.ledger.append({"kind": kind, "version": version, "alias": alias}).n


def write_objects(path: Path, names: list[str]) -> None:
    rng = np.random.default_rng(5)
    with path.open("w") as file:
        for n in range(OBJECTS):
            views: dict[str, Any] = {}
            for name in names:
                x = rng.standard_normal(8) * (0 if n == 3 and name != names[0] else 1)
                if name == "words":
                    indices = np.sort(rng.choice(30, 4, replace=False)).tolist()
                    views[name] = {"indices": indices, "values": rng.integers(1, 5, 4).tolist()}
                else:
                    views[name] = np.round(x, 4).tolist()
            features = views if list(views) == ["x"] else {"views": views}
            file.write(json.dumps({"id": f"o{n}"} | features) + "\n")


def open_shop(
    root: Path, plan: dict[str, ViewConfig], unit: bool | str, serving: ServingConfig, kept: bool
) -> Shop:
    """kept: whether the serving form lies beside version 1. unit: as in a `SpaceMap`, or the similarity."""
    objects = root / "objects.jsonl"
    write_objects(objects, list(plan))
    catalog = load_catalog(objects)
    views = as_blocks(catalog.views)
    own: Any = {"similarity": unit, "weights": {"words": 2.0}} if isinstance(unit, str) else {"unit": unit}
    space = SpaceMap(plan, **own).fit(views)
    mapped = space.transform(views)
    rng = np.random.default_rng(6)
    learned = np.eye(space.dim) + 0.4 * rng.standard_normal((space.dim, space.dim))
    versions = VersionStore(LocalStore(root / "checkpoints"))
    epoch, expected = versions.claim(), {}
    for number, W in enumerate((np.eye(space.dim, dtype=np.float32), learned.astype(np.float32))):
        meta = VersionMeta(
            learner=OASIS, map={"id": space.id, "spec": space.spec()}, counters={"updated": number}
        )
        versions.publish(epoch, pack(state_of(W), {}, space.arrays(), {}), meta)
        loaded = versions.load(number)
        by_daemon = kept and (number or space.own is not None)
        judged = partial(serving_form, chooser=lambda *_: FormChoice(1.5, 0.0))
        form = judged(versions, loaded, serving) if by_daemon else make_form(W, number, serving)
        expected[number] = form.scores(mapped, mapped)
    return Shop(root / "checkpoints", objects, expected)


def alone(shop: Shop, name: str) -> dict[str, Any]:
    command = [sys.executable, "-I", str(ALONE), str(shop.folder), name, str(shop.objects)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer.pop("imported") == [], "it must stand on the text alone"
    return answer


FORMS = {
    "kept": (DENSE, True, ServingConfig(), True),
    "made by the formula": (DENSE, True, ServingConfig(), False),
    "lanczos": (DENSE, True, ServingConfig(psd="lanczos", lanczos_pairs=3), True),
    "raw, maps not brought to unit length": (DENSE, False, ServingConfig(score="raw"), True),
    "sparse words": (MIXED, True, ServingConfig(), True),
    "not projected": (MIXED, True, ServingConfig(psd="off"), True),
    "one view without a name": (UNNAMED, True, ServingConfig(), True),
    "own cosine": (OWN, "cosine", ServingConfig(), True),
    "own inner product": (LENGTHS, "inner_product", ServingConfig(), True),
    "own distance": (LENGTHS, "euclidean", ServingConfig(), True),
    "own cosine of counts": (COUNTS, "cosine", ServingConfig(), True),
}


@pytest.mark.parametrize("how", FORMS)
def test_the_text_is_enough_to_get_the_same_scores(tmp_path: Path, how: str) -> None:
    shop = open_shop(tmp_path, *FORMS[how])
    for name, number in (("latest", 1), ("stable", 0)):
        answer = alone(shop, name)
        assert answer["version"] == number
        if how.startswith("raw") and number == 0:
            continue  # version 0 has no form beside it that would say so
        expected = shop.expected[number]
        np.testing.assert_allclose(answer["scores"], expected, atol=2e-5 * float(np.abs(expected).max()))


def test_names_are_followed_through_the_ledger(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, *FORMS["kept"])
    assert alone(shop, "stable")["version"] == 0
    shop.says("PROMOTE", 1, "best")
    assert alone(shop, "stable")["version"] == 1
    shop.says("PROMOTE", 0, "stable")
    assert alone(shop, "stable")["version"] == 0
    lost = shop.says("PROMOTE", 1, "stable")
    assert alone(shop, "stable")["version"] == 1
    path = shop.folder / "ledger" / f"{lost:010d}.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 7'))
    assert alone(shop, "stable")["version"] == 0, "the last readable intention"
    shop.says("ROLLBACK", None, "stable")
    assert alone(shop, "stable")["version"] == 1
    assert "no version" in alone(shop, "nobody")["wrong"]


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, *FORMS["kept"])
    (path,) = (shop.folder / "versions" / "0000000001").glob("serving-*.safetensors")
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    assert "serving-" in alone(shop, "latest")["wrong"]
    assert alone(shop, "stable")["version"] == 0


@pytest.fixture
def node() -> str:
    """The machine's node, else the one that playwright brings along: these tests run everywhere."""
    return shutil.which("node") or str(Path(playwright.__file__).parent / "driver" / "node")


@pytest.mark.parametrize(
    "how", [name for name in FORMS if name not in {"made by the formula", "not projected"}]
)
@pytest.mark.parametrize("number", [0, 1])
def test_the_example_in_javascript_gives_the_same_answers(
    tmp_path: Path, node: str, how: str, number: int
) -> None:
    if number == 0 and how.startswith("raw"):
        return  # version 0 has no form beside it that would say so
    shop = open_shop(tmp_path, *FORMS[how])
    expected = shop.expected[number][3].astype(np.float64)
    expected[3] = -np.inf
    name = ("stable", "latest")[number]
    command = [node, str(EXAMPLE), str(shop.folder), name, str(shop.objects), "o3", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    assert answer["version"] == number
    best, hits = np.sort(expected)[::-1][:7], answer["results"]
    scale = 2e-5 * float(np.abs(best).max())
    np.testing.assert_allclose([hit["score"] for hit in hits], best, atol=scale)
    np.testing.assert_allclose(
        [expected[int(hit["id"][1:])] for hit in hits], best, atol=scale
    )  # but for ties
    assert len({hit["id"] for hit in hits}) == 7


def test_the_example_follows_and_keeps_what_it_has(tmp_path: Path, node: str) -> None:
    shop = open_shop(tmp_path, *FORMS["kept"])
    shop.says("PROMOTE", 1, "best")
    shop.says("PROMOTE", 0, "stable")
    command = [node, str(EXAMPLE), str(shop.folder), "stable", str(shop.objects), "o3", "1", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stderr is not None
            assert json.loads(running.stdout.readline())["version"] == 0
            shop.says("PROMOTE", 9, "stable")
            assert "no version that is there" in running.stderr.readline()
            shop.says("PROMOTE", 1, "stable")
            assert json.loads(running.stdout.readline())["version"] == 1
        finally:
            running.kill()


def test_the_example_believes_no_altered_file(tmp_path: Path, node: str) -> None:
    shop = open_shop(tmp_path, *FORMS["kept"])

    def ask(name: str) -> subprocess.CompletedProcess[str]:
        command = [node, str(EXAMPLE), str(shop.folder), name, str(shop.objects), "o3", "1"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    lost = shop.says("PROMOTE", 1, "stable")
    path = shop.folder / "ledger" / f"{lost:010d}.json"
    path.write_bytes(path.read_bytes().replace(b'"reason": ""', b'"reason": "?"'))
    done = ask("stable")
    assert json.loads(done.stdout)["version"] == 0
    assert "passed over" in done.stderr
    (state,) = (shop.folder / "versions" / "0000000001").glob("state-*.safetensors")
    data = bytearray(state.read_bytes())
    data[-3] ^= 4
    state.write_bytes(data)
    done = ask("latest")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not the bytes that were written" in done.stderr
