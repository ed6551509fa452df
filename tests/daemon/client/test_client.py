"""Following a name from a user's own process: three lines, swaps under threads, refusals that keep what
answers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import daemon.client
from checkpoints import Ledger, LocalStore, VersionMeta, VersionStore
from daemon.client import Model, NotServing, follow
from daemon.config.schema import ServingConfig
from daemon.exits import UserError
from daemon.replica.vectors import NoVectorsError, VectorMaker
from daemon.replica.view import ModelId, View
from daemon.versions.contents import pack
from daemon.versions.forms import make_form
from daemon.versions.restore import serving_form
from learners.block import DenseBlock
from learners.errors import LearnerError
from learners.forms.quadratic import IdentityForm
from learners.maps import FittedSpaceMap, SpaceMap
from learners.maps.space import ViewConfig
from tests.daemon.models.moves import promote, rollback, unpin
from tests.daemon.oasis_versions import OASIS, state_of
from tests.harness.waiting import until
from tests.learners.door.layouts import BAD_ROW, BAD_VALUES, LAYOUTS, NO_ROWS, exact_rows, refuses, unchanged

DIM = 6
ITEMS = 40
SETTINGS = ServingConfig.model_validate({"power": 1.2})


def vectors(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)


class Shop:
    """A folder with version 0 and some learned ones, and what each of them answers, computed apart."""

    def __init__(self, root: Path, views: tuple[str, ...] = ("x",), as_rows: Any = DenseBlock) -> None:
        self.folder = root / "checkpoints"
        sample = {view: as_rows(vectors(9, seed=1)) for view in views}
        self.space: FittedSpaceMap = SpaceMap({view: ViewConfig("unit") for view in views}).fit(sample)
        self._epoch = self.versions.claim()
        self.add()

    @property
    def versions(self) -> VersionStore:
        return VersionStore(LocalStore(self.folder))

    @property
    def ledger(self) -> Ledger:
        return Ledger(LocalStore(self.folder))

    def add(self, W: np.ndarray | None = None, attach: bool = False, **changes: Any) -> int:
        number = self._epoch.next_number
        dim = self.space.dim
        if W is None:
            rng = np.random.default_rng(number)
            W = np.eye(dim) + (0.6 * rng.standard_normal((dim, dim)) if number else 0)
        fields: dict[str, Any] = {"map": {"id": self.space.id, "spec": self.space.spec()}, "learner": OASIS}
        fields["watermark"] = 1000 * number or None
        arrays = pack(state_of(W.astype(np.float32)), {}, self.space.arrays(), {})
        self.versions.publish(self._epoch, arrays, VersionMeta(**(fields | changes)))
        if attach:
            serving_form(self.versions, self.versions.load(number), SETTINGS)
        return number

    def promote(self, version: int) -> None:
        promote(self.versions, self.ledger, version, by="test")

    def expected(self, number: int, serving: ServingConfig = SETTINGS) -> np.ndarray:
        """Scores of all items with each other under one version."""
        mapped = self.space.transform({"x": DenseBlock(vectors(ITEMS, seed=2))})
        form = make_form(self.versions.load(number).arrays["W"], number, serving)
        return form.scores(mapped, mapped)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    for _ in range(3):
        shop.add(attach=True)
    return shop


@pytest.fixture
def model(shop: Shop) -> Iterator[Model]:
    with follow(shop.folder) as followed:
        yield followed


def test_the_three_lines_of_the_docstring_in_a_process_of_their_own(shop: Shop) -> None:
    shop.promote(2)
    doc = (daemon.client.__doc__ or "").partition("`follow` needs")[0]  # what follows is about a server
    lines = [line.strip() for line in doc.splitlines() if line.startswith("    ")]
    assert len(lines) == 3
    program = [
        "import numpy as np, sys, json",
        "rng = np.random.default_rng(2)",
        f"items = rng.standard_normal(({ITEMS}, {DIM})).astype(np.float32)",
        "query, told = items[7], []",
        *(line.replace("...", "told.append([row, score])") for line in lines),
        "print(json.dumps([str(model.model), told]))",
        "sys.exit(' '.join({'kafka', 'starlette', 'uvicorn'} & set(sys.modules)) or None)",
    ]
    done = subprocess.run(
        # the folder `checkpoints` here, first on the path, must not hide the package of that name
        [sys.executable, "-c", "\n".join(program)],
        cwd=shop.folder.parent, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version, told = json.loads(done.stdout)  # nothing else is on it
    assert version == "2"
    scores = shop.expected(2)[7]
    best = np.argsort(-scores, kind="stable")[:10]
    assert [row for row, _ in told] == best.tolist()
    np.testing.assert_allclose([score for _, score in told], scores[best], atol=1e-5)


def test_an_answer_names_its_version_and_watermark(shop: Shop, model: Model) -> None:
    items = model.items(vectors(ITEMS, seed=2), ids=[f"o{n}" for n in range(ITEMS)])
    assert (len(items), str(model.model), model.model.watermark) == (ITEMS, "0", None)
    shop.promote(3)
    until(lambda: str(model.model) == "3")
    answer = model.similar(vectors(ITEMS, seed=2)[4], items, k=3)
    assert (answer.version, answer.watermark) == ("3", 3000)
    assert answer.ids[0] == "o4"
    assert list(answer) == list(zip(answer.ids, answer.scores, strict=True))
    assert [f"o{row}" for row in answer.rows] == list(answer.ids)
    scores = model.scores(vectors(ITEMS, seed=2), items)
    np.testing.assert_allclose(scores, shop.expected(3), atol=1e-5)
    assert len(model.similar(vectors(1, seed=9), items, k=1000)) == ITEMS


def test_the_norms_are_those_of_the_items_asked_for(shop: Shop) -> None:
    shop.promote(3)
    with follow(shop.folder) as model:
        given = [vectors(ITEMS, seed=2), vectors(ITEMS, seed=4)]
        kept = [model.items(own) for own in given]

        def prepared() -> int:
            with model._replica.read() as view:
                return len(view.prepared or ())

        until(lambda: prepared() == 2)
        query = shop.space.transform({"x": DenseBlock(vectors(1, seed=3))})
        form = make_form(shop.versions.load(3).arrays["W"], 3, SETTINGS)
        for items, own in zip(kept, given, strict=True):
            expected = form.scores(query, shop.space.transform({"x": DenseBlock(own)}))
            np.testing.assert_allclose(model.scores(vectors(1, seed=3), items), expected, atol=1e-5)
            found = model.similar(vectors(1, seed=3)[0], items, k=5)
            assert list(found.rows) == np.argsort(-expected[0], kind="stable")[:5].tolist()


def test_all_there_are_can_be_asked_for(model: Model) -> None:
    items = model.items(vectors(ITEMS, seed=2))
    assert len(model.similar(vectors(1, seed=3)[0], items, k=10**12)) == ITEMS
    assert len(model.similar(vectors(1, seed=3)[0], items, k=0)) == 0


def test_the_name_goes_where_people_move_it(shop: Shop, model: Model) -> None:
    for move, expected in (
        (lambda: shop.promote(3), "3"),
        (lambda: shop.promote(1), "1"),
        (lambda: rollback(shop.versions, shop.ledger, by="test"), "3"),
        (lambda: rollback(shop.versions, shop.ledger, by="test"), "0"),
        (lambda: shop.promote(2), "2"),
        (lambda: unpin(shop.versions, shop.ledger, "stable", by="test"), "0"),
    ):
        move()
        until(lambda expected=expected: str(model.model) == expected)


def test_threads_never_see_a_half_swapped_model(shop: Shop, model: Model) -> None:
    """Each answer is the one of the version it names, while that changes as fast as it can."""
    objects = vectors(ITEMS, seed=2)
    expected = {str(number): shop.expected(number) for number in range(4)}
    items = model.items(objects)
    wrong: list[str] = []
    seen: set[str] = set()
    stop = threading.Event()

    def ask(start: int) -> None:
        n = start
        while not stop.is_set():
            n = (n + 1) % ITEMS
            answer = model.similar(objects[n], items if start % 2 else objects, k=5)
            scores = expected[answer.version][n]
            best = scores[list(answer.rows)]
            if not np.allclose(answer.scores, best, atol=1e-5) or np.sum(scores > best.min() + 1e-5) > 4:
                wrong.append(f"{answer} is not {best}")
            seen.add(answer.version)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        for version in (1, 2, 3, 1, 3, 2, 1, 2, 3, 1):
            shop.promote(version)
            until(lambda version=version: str(model.model) == str(version) and str(version) in seen)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert wrong == []
    assert {"1", "2", "3"} <= seen


def test_a_version_that_does_not_load_leaves_the_old_one(shop: Shop) -> None:
    with follow(shop.folder, "latest") as model:
        assert str(model.model) == "3"
        bad = np.eye(DIM)
        bad[1, 1] = np.nan
        shop.add(bad)
        until(lambda: bool(model.status().refusals))
        assert str(model.model) == "3"
        assert "finite" in model.status().why_not_newer
        shop.add()
        until(lambda: str(model.model) == "5")


def test_a_name_that_is_kept_or_a_number(shop: Shop) -> None:
    with follow(str(shop.folder), "1") as model:
        np.testing.assert_allclose(
            model.scores(vectors(ITEMS, 2), vectors(ITEMS, 2)), shop.expected(1), atol=1e-5
        )


def test_the_form_is_the_validators_else_the_default(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.add()
    default = ServingConfig.model_validate({})
    with follow(shop.folder, "latest") as model:
        found = model.scores(vectors(ITEMS, 2), vectors(ITEMS, 2))
    np.testing.assert_allclose(found, shop.expected(1, default), atol=1e-5)
    assert not np.allclose(found, shop.expected(1), atol=1e-3)


def test_a_configuration_in_place_of_the_folder(shop: Shop) -> None:
    config = shop.folder.parent / "tripletd.toml"
    config.write_text("[space.views.x]\ndim = 6\n[serving]\nscore = 'raw'\n[steps]\nenabled = false\n")
    raw = ServingConfig.model_validate({"score": "raw"})
    with follow(config, "latest") as model:
        found = model.scores(vectors(ITEMS, 2), vectors(ITEMS, 2))
        best = model.similar(vectors(ITEMS, 2)[0], vectors(ITEMS, 2), k=4)
    expected = shop.expected(3, raw)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(best.scores, np.sort(expected[0])[::-1][:4], atol=1e-4)


def test_vectors_that_do_not_fit_are_told(shop: Shop, model: Model, tmp_path: Path) -> None:
    objects = vectors(ITEMS, 2)
    for query, items, told in (
        (objects[0][:3], objects, "6 dimensions"),
        (objects[0], objects[:, :2], "6 dimensions"),
        ({"y": objects[0]}, objects, "none of its views"),
        (["a", "b"], objects, "cannot read list"),
        (objects[0] * np.nan, objects, "finite"),
    ):
        with pytest.raises(LearnerError, match=told):
            model.similar(query, items)
    with pytest.raises(ValueError, match="one query, not 2"):
        model.similar(objects[:2], objects)
    with pytest.raises(ValueError, match="3 ids for 40"):
        model.items(objects, ids=["a", "b", "c"])
    two = Shop(tmp_path / "two", views=("x", "y"))
    with follow(two.folder) as model, pytest.raises(ValueError, match="several views"):
        model.similar(objects[0], objects)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_rows_in_any_layout_are_answered_as_canonical_ones(tmp_path: Path, kind: str) -> None:
    """Unsorted and repeated indices of scipy's CSR put scores off by thousands."""
    as_rows: Any = csr_array if kind == "sparse" else np.asarray
    shop, queries, objects = Shop(tmp_path, as_rows=as_rows), exact_rows(0, 3, DIM), exact_rows(1, 20, DIM)
    shop.add()
    with follow(shop.folder, "latest") as model:
        wanted = model.scores(as_rows(queries), as_rows(objects))
        best = list(model.similar(as_rows(queries[:1]), as_rows(objects), k=5))
        for name, layout in LAYOUTS[kind].items():
            given, among = layout(queries), layout(objects)
            with unchanged(name, given, among):
                np.testing.assert_array_equal(model.scores(given, among), wanted, name)
                np.testing.assert_array_equal(model.scores(given, model.items(among)), wanted, name)
                np.testing.assert_array_equal(model.scores({"x": given}, {"x": among}), wanted, name)
                assert list(model.similar(layout(queries[:1]), among, k=5)) == best, name
        for name, layout in NO_ROWS.items():
            if name == "a dict":
                continue  # of views by name
            refuses(name, LearnerError, lambda rows=layout: model.scores(rows(queries), as_rows(objects)))
            refuses(name, LearnerError, lambda rows=layout: model.items(rows(objects)))
        for name, layout in BAD_VALUES.items():
            found = model.scores(as_rows(layout(queries)), as_rows(objects))
            assert np.isnan(found[BAD_ROW]).all(), name
            np.testing.assert_array_equal(found[:BAD_ROW], wanted[:BAD_ROW])
            refuses(
                name, LearnerError, lambda rows=layout: model.items(as_rows(rows(objects))), f"row {BAD_ROW}"
            )
        for k in (2.5, "3", True, None, -1):
            refuses(
                repr(k),
                LearnerError,
                lambda k=k: model.similar(as_rows(queries[:1]), as_rows(objects), k),
                "k",
            )


def test_what_cannot_be_followed_is_told(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        follow(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotServing, match="no version yet"):
        follow(tmp_path / "empty", wait_s=0.1)
    with pytest.raises(NotServing, match="nobody does not answer"):
        follow(shop.folder, "nobody", wait_s=0.5)


def test_vectors_for_an_index_of_ones_own_rank_as_the_model_does(shop: Shop) -> None:
    shop.promote(2)
    given = vectors(ITEMS, seed=2)
    with follow(shop.folder) as model:
        wanted = model.scores(given, given)
        asked, held = model.fold(given, "embedded"), model.embed(given)
        assert (asked.symmetric, asked.similarity, str(asked.model)) == (True, "inner_product", "2")
        np.testing.assert_allclose(asked.rows @ held.rows.T, wanted, atol=1e-5)
        folded = model.fold(given)
        assert [(one.name, one.start, one.dim, one.unit) for one in folded.views] == [("x", 0, DIM, True)]
        products = folded.rows @ (given / np.linalg.norm(given, axis=1, keepdims=True)).T
        norms = (products / wanted).mean(axis=0)  # each object's own: what folding leaves out
        assert (norms > 0).all()
        np.testing.assert_allclose(products / norms, wanted, atol=1e-4)
        shop.promote(3)
        until(lambda: str(model.model) == "3")
        assert str(model.embed(given[:1]).model) == "3"
        assert np.abs(model.embed(given).rows - held.rows).max() > 1e-3, "of another version"


def test_what_has_no_vectors_says_why(tmp_path: Path) -> None:
    rows = csr_array(vectors(9, seed=1))
    space = SpaceMap({"x": ViewConfig("rff", {"components": 8})}).fit({"x": rows.toarray()})
    maker = VectorMaker(space)
    mapped = space.transform({"x": rows.toarray()})
    form = IdentityForm(space.dim, True)
    view = View(ModelId(1), space.id, form, 0)
    read = lambda: contextlib.nullcontext(view)
    with pytest.raises(NoVectorsError, match="not linear"):
        maker.make(read, mapped, "folded")
    assert maker.make(read, mapped, "embedded").rows.dim == space.dim
    view = replace(view, model=ModelId(1, behind=3))
    with pytest.raises(NoVectorsError, match="step by step"):
        maker.make(read, mapped, "document")

    class Pairs:
        dim, normalised = space.dim, True

    view = replace(view, model=ModelId(1), form=Pairs())  # type: ignore[arg-type]
    for wanted in ("folded", "embedded"):
        with pytest.raises(NoVectorsError, match="no inner product"):
            maker.make(read, mapped, wanted)  # type: ignore[arg-type]


def test_sparse_rows_give_sparse_vectors(tmp_path: Path) -> None:
    shop = Shop(tmp_path, as_rows=csr_array)
    given = csr_array(vectors(ITEMS, seed=2))
    with follow(shop.folder, "latest") as model:
        asked, held = model.fold(given, "embedded").rows, model.embed(given).rows
        np.testing.assert_allclose((asked @ held.T).toarray(), model.scores(given, given), atol=1e-5)
        assert model.fold(given).rows.shape == (ITEMS, DIM)
