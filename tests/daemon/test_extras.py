"""What does not come with the package itself: a sentence and the way to get it, and no stack trace."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.demo import pack_files
from daemon.describe.describing import _libraries
from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.look.charts import save_picture, terminal_chart

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _nothing() -> None:
    """A user without any curves: the package is looked for first."""


@pytest.mark.parametrize(
    ("module", "work", "extra"),
    [
        ("matplotlib.figure", lambda: save_picture(_nothing, Path("curves.png")), "plot"),  # type: ignore[arg-type]
        ("plotext", lambda: terminal_chart(_nothing, 80, 20), "plot"),  # type: ignore[arg-type]
        ("PIL", lambda: _libraries(photos=True), "photos"),
        ("PIL", pack_files.require_pack, "demo"),
        ("matplotlib", pack_files.require_pack, "demo"),
    ],
)
def test_a_package_that_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, module: str, work: Callable[[], object], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    sentence = (
        r"^(the demo|describing photos|drawing a .*) needs a package that is not installed: .*" + module
    )
    with pytest.raises(UserError, match=sentence) as caught:
        work()
    assert caught.value.remedy == f'pip install "tripletd[{extra}]"'
    assert caught.value.code == EX_UNAVAILABLE
    wanted = {"PIL": "pillow", "matplotlib.figure": "matplotlib"}.get(module, module)
    project = PROJECT["project"]
    assert any(one.startswith(wanted) for one in project["optional-dependencies"][extra])
    assert not any(one.startswith(wanted) for one in project["dependencies"])


def test_what_is_installed_later_works_in_the_same_process() -> None:
    """matplotlib imports Pillow: a failed try must not leave half of matplotlib behind."""
    code = (
        "import sys\nfrom daemon.demo import pack_files\nfrom daemon.exits import UserError\n"
        "sys.modules['PIL'] = None\n"
        "try:\n    pack_files.require_pack()\nexcept UserError as error:\n    print(error.remedy)\n"
        "del sys.modules['PIL']\npack_files.require_pack()\nimport matplotlib.pyplot\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == 'pip install "tripletd[demo]"\n'


def test_without_the_source_the_demo_says_where_its_photos_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pack_files, "CATALOG", tmp_path / "catalog.safetensors")
    assert main(["demo", "--out", str(tmp_path / "run")]) == EX_UNAVAILABLE
    said = capsys.readouterr().err
    assert "they come with the source, not with the package" in said
    assert "make demo" in said
    assert not (tmp_path / "run").exists()


def test_the_photos_have_their_licence_beside_them_and_are_in_no_package() -> None:
    assert (pack_files.PACK / "LICENSE").is_file()
    assert pack_files.PACK == ROOT / "deploy" / "demo_pack" / "pack"
    assert not [one for one in (ROOT / "daemon").rglob("*.safetensors") if one.stat().st_size > 100_000]
