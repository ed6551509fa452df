"""From files to a catalog: what is left out, what goes on after a kill, what describes others later."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("skimage")

from daemon.config import load_config
from daemon.describe import DescribedObjects, described_photos, described_texts
from daemon.describe.describing import DescribeSettings, describe_to
from daemon.describe.fit import DescriberFit
from daemon.describe.tables import raw_source
from daemon.describe.views import NINE, VIEWS
from daemon.exits import UserError
from streams.catalog import load_catalog
from streams.event import DenseColumn, SparseColumn
from streams.items import Display, unpack_display
from tests.daemon.describe.drawn import encoded, folder_of, picture
from tests.harness.forked import run
from tests.harness.waiting import until

ROOT = Path(__file__).parents[3]
LITTLE = ("terms", "lbp59")


def cli(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`tripletd describe`."""
    command = [sys.executable, "-m", "daemon", "describe", *words]
    return run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def digests(folder: Path) -> dict[str, str]:
    """Of the files of a run by name."""
    files = sorted(path for path in folder.iterdir() if path.name.startswith("items"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DescribedObjects]:
    """12 pictures by visual terms and the nine descriptors; larger ones, so that there are points for 1,000
    words."""
    folder = folder_of(tmp_path_factory.mktemp("photos") / "shop", 12, 200, 160)
    return folder, described_photos(folder, ["terms", "nine"], terms=40)


def test_every_photo_has_terms_of_unit_length_and_nine_descriptors(
    described: tuple[Path, DescribedObjects],
) -> None:
    _, found = described
    assert found.catalog.ids == [f"p{seed:03d}" for seed in range(12)]
    assert not found.refused
    assert [view.name for view in found.catalog.space.views] == ["terms", *NINE]
    terms = found.catalog.views["terms"]
    assert isinstance(terms, SparseColumn)
    assert terms.dim == 40
    for first, last in zip(terms.indptr[:-1], terms.indptr[1:], strict=True):
        assert np.linalg.norm(terms.values[first:last]) == pytest.approx(1)
    assert found.entries["terms"] == len(terms.values) / 12
    for name in NINE:
        column = found.catalog.views[name]
        assert isinstance(column, DenseColumn)
        assert column.values.shape == (12, VIEWS[name].dim)
        if VIEWS[name].of:
            np.testing.assert_allclose(np.linalg.norm(column.values, axis=1), 1, rtol=1e-5)


def test_what_was_fitted_describes_the_same_photo_alike(
    described: tuple[Path, DescribedObjects], tmp_path: Path
) -> None:
    folder, found = described
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "p007.png").write_bytes((folder / "p007.png").read_bytes())
    (tmp_path / "fit").write_bytes(found.fit.encoded())
    again = described_photos(tmp_path / "one", fitted=DescriberFit.load(tmp_path / "fit"))
    for name, column in again.catalog.views.items():
        former = found.catalog.views[name]
        if isinstance(column, SparseColumn) and isinstance(former, SparseColumn):
            here = slice(former.indptr[7], former.indptr[8])
            np.testing.assert_array_equal(column.indices, former.indices[here])
            np.testing.assert_array_equal(column.values, former.values[here])
        elif isinstance(column, DenseColumn) and isinstance(former, DenseColumn):
            np.testing.assert_array_equal(column.values[0], former.values[7])


def test_what_cannot_be_read_is_left_out_and_named_and_nothing_waits_for_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", 5)
    (folder / "cut.png").write_bytes(encoded(picture(9))[:300])
    (folder / "words.jpg").write_text("no picture")
    os.mkfifo(folder / "pipe.jpg")
    (folder / ".hidden.png").write_bytes(encoded(picture(9)))
    (folder / "gone.png").symlink_to(tmp_path / "nowhere")
    done = cli("photos", "--views", "lbp59", "--workers", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["objects"] == 5
    assert {one["name"] for one in told["refused"]} == {"cut.png", "words.jpg", "gone.png"}
    assert "left out words.jpg: no picture of the formats" in done.stderr
    listed = (tmp_path / "items.refused.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in listed] == ["cut.png", "gone.png", "words.jpg"]
    assert load_catalog(tmp_path / "items.safetensors").ids == [f"p{seed:03d}" for seed in range(5)]
    strict = cli(
        "photos", "--views", "lbp59", "--workers", "1", "--strict", "--out", "s.safetensors", cwd=tmp_path
    )
    assert strict.returncode == 65
    assert "cut.png: " in strict.stderr
    assert not (tmp_path / "s.safetensors").exists()


def test_the_configuration_beside_it_opens_the_catalog(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos" / "hats", 4)
    describe_to(
        raw_source(tmp_path / "photos", LITTLE), tmp_path / "items.safetensors", DescribeSettings(LITTLE, 4)
    )
    config = load_config(tmp_path / "items.toml", environ={})
    catalog = load_catalog(tmp_path / "items.safetensors", config.space_spec())
    assert catalog.shown is not None
    assert unpack_display(catalog.shown[1]) == Display("p001", None, "photos/hats/p001.png", ("hats",))


KILLED = """
import os, signal, sys
from pathlib import Path
from daemon.describe.describing import DescribeSettings, describe_to
from daemon.describe.tables import raw_source
folder, stage, done = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def tell(*said):
    if said[:2] == (stage, done):
        os.kill(os.getpid(), signal.SIGKILL)
views = ("terms", "lbp59")
source, out = raw_source(folder / "photos", views), folder / "items.safetensors"
describe_to(source, out, DescribeSettings(views, 16), tell)
"""


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    settings = DescribeSettings(LITTLE, 16)
    for name in ("whole", "killed"):
        folder_of(tmp_path / name / "photos", 140)
        for photo in (tmp_path / name / "photos").iterdir():
            os.utime(photo, (1e9, 1e9))
    describe_to(
        raw_source(tmp_path / "whole" / "photos", LITTLE), tmp_path / "whole" / "items.safetensors", settings
    )
    made: set[Path] = set()
    for stage, done in (("sampling for terms", 64), ("describing", 128), ("writing", 64)):
        words = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), stage, str(done)]
        ended = subprocess.run(words, cwd=ROOT, check=False, timeout=120)
        assert ended.returncode == -signal.SIGKILL
        kept = set((tmp_path / "killed" / "items.describing").glob("*.npz"))
        assert kept > made
        made = kept
        assert not (tmp_path / "killed" / "items.safetensors").exists()
    before = {path: path.stat().st_mtime_ns for path in made}
    reported: list[tuple[str, int]] = []

    def tell(stage: str, done: int, total: int) -> None:
        reported.append((stage, done))
        if stage == "writing" and done == 0:
            assert {path: path.stat().st_mtime_ns for path in made} == before

    killed = tmp_path / "killed"
    describe_to(raw_source(killed / "photos", LITTLE), killed / "items.safetensors", settings, tell)
    assert ("describing", 140) in reported  # all had been described before it was killed last
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert not (tmp_path / "killed" / "items.describing").exists()


ENDLESS = """
import sys, time
from pathlib import Path
from daemon.cli import main
from daemon.describe import describing
from daemon.describe.chunks import do_chunk
def done_or_not(chunk):
    if Path(chunk.into).stem > "describe-0000001":
        time.sleep(1e6)
    return do_chunk(chunk)
if __name__ == "__main__":
    describing.do_chunk = done_or_not
    sys.exit(main(sys.argv[1:]))
"""
"""`tripletd`, which describes two pieces and then never comes to an end."""


def test_processes_end_with_a_parent_that_is_killed_and_as_many_as_there_are_make_the_same_bytes(
    tmp_path: Path,
) -> None:
    photos = folder_of(tmp_path / "photos", 200)
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = ["photos", "--views", "lbp59,colour81", "--workers", "2"]
    parent = subprocess.Popen(
        [sys.executable, "endless.py", "describe", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: list((tmp_path / "items.describing").glob("describe-*.npz")), "a piece that is done")
    children = _children(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert len(children) >= 2
    until(lambda: not any(_runs(pid) for pid in children), "the end of the processes")
    assert cli(*words, cwd=tmp_path).returncode == 0
    one = tmp_path / "one"
    one.mkdir()
    views = ("colour81", "lbp59")
    describe_to(raw_source(photos, views), one / "items.safetensors", DescribeSettings(views))
    told = load_catalog(one / "items.safetensors"), load_catalog(tmp_path / "items.safetensors")
    assert told[0].digest == told[1].digest


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_begun_with_other_words_is_not_mixed_with_this_one(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", 3)
    source, out = raw_source(tmp_path / "photos", ("lbp59",)), tmp_path / "items.safetensors"

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "writing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe_to(source, out, DescribeSettings(("lbp59",)), stop)
    other = DescribeSettings(("lbp59", "edges37"), longest=80)
    with pytest.raises(UserError, match="other longest, views"):
        describe_to(source, out, other)
    describe_to(source, out, DescribeSettings(("lbp59", "edges37"), longest=80, fresh=True))
    with pytest.raises(UserError, match="there already"):
        describe_to(source, out, other)


def test_a_tar_and_a_list_are_the_same_photos(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", 3)
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        tar.add(folder, "photos")
    (tmp_path / "list.txt").write_text("x1\tphotos/p000.png\nphotos/p001.png\nphotos/p002.png\n")
    found = [described_photos(tmp_path / name, ["lbp59"]) for name in ("photos", "photos.tar", "list.txt")]
    assert [one.catalog.ids for one in found] == [["p000", "p001", "p002"]] * 2 + [["x1", "p001", "p002"]]
    columns = [one.catalog.views["lbp59"] for one in found]
    assert all(np.array_equal(one.values, columns[0].values) for one in columns)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere: No such file"),
        (["empty"], "no photos"),
        (["twice"], "would both be 'a'"),
        (["list.txt"], "list.txt, line 2: gone.png: No such file"),
        (["some", "--views", "terms", "--terms", "5000"], "for a codebook of 5,000"),
        (["some", "--views", "words"], "there is no view 'words'"),
        (["some", "--views", "text"], "photos have no text"),
        (["some", "--with", "some/a.png"], "some/a.png: "),
        (["some", "--out", "items.npy"], "no name for a catalog"),
        (["some/words.jpg"], "not a folder, a list"),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_what_cannot_be_done_is_said_with_a_remedy(tmp_path: Path, words: list[str], said: str) -> None:
    for name in ("empty", "twice/one", "twice/two", "some"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("twice/one/a.png", "twice/two/a.png", "some/a.png"):
        (tmp_path / name).write_bytes(encoded(picture(1)))
    (tmp_path / "some" / "words.jpg").write_text("no picture")
    (tmp_path / "list.txt").write_text("some/a.png\ngone.png\n")
    done = cli(*words, "--workers", "1", cwd=tmp_path)
    assert done.returncode in (64, 65, 78)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) >= 2
    assert "Traceback" not in done.stderr, done.stderr


def test_a_missing_package_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    folder_of(tmp_path / "photos", 1)
    with pytest.raises(UserError, match=r"tripletd\[photos\]"):
        described_photos(tmp_path / "photos", ["lbp59"])


TEXTS = ["red shoes", "Red dress, long", "blue dress", "a lamp", "blue blue shoes"]


def test_texts_become_words_weighed_by_how_rare_they_are(tmp_path: Path) -> None:
    lines = [json.dumps({"sku": number, "words": text}) for number, text in enumerate(TEXTS)]
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, '{"sku": "empty", "words": " "}']))
    words = ["t.jsonl", "--id", "sku", "--text", "words", "--workers", "1", "--json"]
    done = cli(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["refused"] == [{"name": "t.jsonl, line 6", "reason": "it has no text"}]
    catalog = load_catalog(tmp_path / "items.safetensors")
    column = catalog.views["text"]
    assert isinstance(column, SparseColumn)
    known = DescriberFit.load(tmp_path / "items.fitted.safetensors").words
    assert known == ("blue", "dress", "red", "shoes")  # the others are in one text
    assert catalog.ids == ["0", "1", "2", "3", "4"]
    last = slice(column.indptr[4], column.indptr[5])
    assert [known[place] for place in column.indices[last]] == ["blue", "shoes"]
    np.testing.assert_allclose(column.values[last], np.array([2, 1]) / np.sqrt(5), rtol=1e-6)
    assert catalog.shown is not None
    assert unpack_display(catalog.shown[1]) == Display(text="Red dress, long")


def test_texts_and_photos_of_a_table_are_views_of_one_object(tmp_path: Path) -> None:
    folder_of(tmp_path / "pics", 3)
    rows = ["id\ttext\timage"] + [f"{seed}\tred {seed}\tpics/p00{seed}.png" for seed in range(3)]
    (tmp_path / "t.tsv").write_text("\n".join([*rows, "3\tred lamp\tpics/none.png", "4\tred\t"]))
    done = cli("t.tsv", "--views", "lbp59,text", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    catalog = load_catalog(tmp_path / "items.safetensors")
    assert catalog.ids == ["0", "1", "2"]
    assert sorted(catalog.views) == ["lbp59", "text"]
    assert catalog.shown is not None
    assert unpack_display(catalog.shown[1]) == Display(text="red 1", image="pics/p001.png")
    assert "No such file" in done.stderr
    assert "it has no photo" in done.stderr


def test_texts_become_the_vectors_of_a_model_in_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    from daemon.serve.text_model import TextModel
    from tests.harness.text_model import write_folder

    folder = write_folder(tmp_path / "model")
    (tmp_path / "t.csv").write_text("id,text\n0,a lamp\n1,red shoe\n")
    found = described_texts(tmp_path / "t.csv", model=folder)
    model = TextModel.open(folder, 1)
    tokens = model.tokens(["a lamp", "red shoe"], "doc")
    column = found.catalog.views["text"]
    assert isinstance(column, DenseColumn)
    np.testing.assert_allclose(column.values, model.embed(tokens, [0, 1]), atol=1e-5)
    with pytest.raises(UserError, match="by the model 'model', now by 'tf-idf'"):
        described_texts(tmp_path / "t.csv", fitted=found.fit)
