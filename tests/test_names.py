"""The four packages have names that others use too: whose package is found instead of ours is said at once.

Stand-ins in the place of an installation: folders with the files and the records that pip writes.
"""

from __future__ import annotations

import base64
import doctest
import hashlib
import pydoc
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import daemon
import tripletd
from daemon.checks import run_checks
from daemon.config import load_config
from daemon.exits import EX_SOFTWARE
from tripletd import _names
from tripletd._names import PACKAGES, ForeignPackage, check_names, foreign_packages

ROOT = Path(__file__).parents[1]
FOLLOW = "from daemon.client import follow\n"


def record(site: Path, name: str, files: list[Path]) -> None:
    """What pip keeps of an installation."""
    info = site / f"{name.replace('-', '_')}-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.1\n")
    lines = []
    for file in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{file.relative_to(site)},sha256={digest},{file.stat().st_size}\n")
    (info / "RECORD").write_text("".join(lines))


def install_ours(site: Path) -> None:
    """tripletd as pip leaves it: the first files of its packages are enough."""
    files = [
        site / "tripletd" / "__init__.py",
        site / "tripletd" / "_names.py",
        site / "daemon" / "__main__.py",
    ]
    files += [site / name / "__init__.py" for name in PACKAGES]
    for file in files:
        file.parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / file.relative_to(site), file)
    record(site, "tripletd", files)


def install_theirs(site: Path, name: str = "daemon") -> None:
    """Another distribution with a package of the same name, written over what is there."""
    files = [site / name / "__init__.py", site / name / f"{name}.py"]
    files[0].parent.mkdir(exist_ok=True, parents=True)
    files[0].write_text("class DaemonContext: pass\n")
    files[1].write_text("")
    record(site, "python-daemon", files)


def run(code: str, *folders: Path) -> tuple[int, str]:
    """Exit code and stderr of a program in an interpreter that looks for modules in these folders alone."""
    program = f"import sys; sys.path[:0] = {[str(one) for one in folders]!r}\n{code}"
    ended = subprocess.run(
        [sys.executable, "-S", "-P", "-c", program],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    return ended.returncode, ended.stderr


def beside(tmp_path: Path, name: str, text: str, *, as_file: bool = False) -> Path:
    """A user's program and, beside it, something of his own under the name of a package of ours."""
    shop = tmp_path / "shop"
    shop.mkdir()
    if as_file:
        (shop / f"{name}.py").write_text("")
    else:
        (shop / name).mkdir()
        (shop / name / "__init__.py").write_text("")
    program = shop / "program.py"
    program.write_text(text)
    return program


def told(program: Path) -> str:
    """The last lines that a program of a user ends with."""
    ended = subprocess.run(
        [sys.executable, str(program)],
        env={"PYTHONPATH": str(ROOT)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "ModuleNotFoundError" not in ended.stderr
    assert ended.stderr.count("Traceback") == 1
    return ended.stderr


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("name", ["streams", "learners", "checkpoints"])
def test_a_folder_of_a_users_own_beside_his_program_is_named(
    tmp_path: Path, name: str, as_file: bool
) -> None:
    text = told(beside(tmp_path, name, FOLLOW, as_file=as_file))
    place = tmp_path / "shop" / (f"{name}.py" if as_file else name)
    assert f"package {name} is imported from {place}" in text
    assert f"rename {place}" in text


def test_one_named_daemon_is_named_by_the_name_that_nobody_else_has(tmp_path: Path) -> None:
    text = told(beside(tmp_path, "daemon", "from tripletd import follow\n"))
    assert f"package daemon is imported from {tmp_path / 'shop' / 'daemon'}" in text
    assert f"rename {tmp_path / 'shop' / 'daemon'}" in text


def test_it_is_the_same_follow() -> None:
    from daemon.client import follow

    assert tripletd.follow is follow


def test_the_library_is_under_one_name_and_loaded_when_it_is_asked_for() -> None:
    code = (
        "import sys, tripletd; assert not {'numba', 'learners', 'numpy'} & set(sys.modules)\n"
        "from tripletd import *; import learners, daemon.client\n"
        "assert all(globals()[name] is getattr(learners, name) for name in learners.__all__)\n"
        "assert (follow, AskClient) == (daemon.client.follow, daemon.client.AskClient)\n"
        "assert {'Oasis', 'SearchIndex', 'follow'} <= set(dir(tripletd))\n"
        "assert not hasattr(tripletd, 'ForeignPackage')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_begins_with_lines_that_run() -> None:
    import learners.oasis

    for module in (tripletd, learners.oasis):
        ran = doctest.testmod(module)
        assert (ran.failed, ran.attempted >= 5) == (0, True)
    assert pydoc.render_doc(tripletd, renderer=pydoc.plaintext).index("from tripletd import Oasis") < 400


def test_a_folder_of_data_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "versions").mkdir(parents=True)
    (tmp_path / "program.py").write_text(FOLLOW)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], env={"PYTHONPATH": str(ROOT)}, cwd="/", check=False
    )
    assert done.returncode == 0


START = "import tripletd; tripletd.start()"


def test_the_command_says_who_was_installed_over_it(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    install_ours(site)
    install_theirs(site)
    code, text = run("from tripletd import _names as names\nnames.check_names()", site)
    assert code == 1
    assert f"package daemon of tripletd was overwritten by python-daemon 3.1 in {site / 'daemon'}" in text
    assert "virtual environment of its own" in text


def test_the_command_says_whose_package_is_found_first(tmp_path: Path) -> None:
    # As an editable installation is found: after everything that is installed.
    install_theirs(tmp_path / "site-packages")
    code, text = run(START, tmp_path / "site-packages", ROOT)
    assert (code, "Traceback" in text) == (EX_SOFTWARE, False)
    assert f"package daemon is imported from {tmp_path / 'site-packages' / 'daemon'}" in text
    assert "python-daemon 3.1 installed it: give tripletd a virtual environment of its own" in text


def test_what_was_installed_after_another_distribution_says_that_it_broke_it(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    install_theirs(site)
    install_ours(site)  # python-daemon's `import daemon` finds ours from now on
    asked = (
        "from tripletd import _names as names; names.check_names()\n"
        "print(names.may_be_shared(), file=sys.stderr)"
    )
    assert run(asked, site) == (0, "True\n")
    shared = "from tripletd import _names as names\nfor line in names.told_shared(names.shared_packages()): "
    shared += "print(line, file=sys.stderr)"
    text, remedy = run(shared, site)[1].splitlines()
    assert text.startswith(
        "python-daemon 3.1 (package daemon) in the same environment: `import daemon` cannot"
    )
    assert remedy.endswith("pip uninstall tripletd, then pip install --force-reinstall python-daemon")


def test_alone_nothing_is_said(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    install_ours(site)
    (site / "daemon" / "__pycache__").mkdir()
    asked = (
        "from tripletd import _names as names; names.check_names()\n"
        "print(names.may_be_shared(), names.shared_packages(), file=sys.stderr)"
    )
    assert run(asked, site) == (0, "False {}\n")


def test_check_and_every_command_tell_of_a_shared_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from daemon.cli import main

    monkeypatch.setattr(_names, "shared_packages", lambda: {"daemon": ["python-daemon 3.1"]})
    (finding,) = [one for one in run_checks(load_config(None, {}, {})) if one.key == "packages"]
    assert finding.grade == "error"
    assert "python-daemon 3.1 (package daemon)" in finding.text
    monkeypatch.setattr(_names, "may_be_shared", lambda: True)
    main(["--version"])
    told = capsys.readouterr()
    assert told.out.startswith("tripletd ")
    assert told.err.startswith("tripletd: note: python-daemon 3.1 (package daemon) in the same environment")


def test_the_four_packages_are_ours(tmp_path: Path) -> None:
    assert Path(daemon.__file__ or "").resolve().parent == ROOT / "daemon"
    assert foreign_packages(ROOT) == []
    (tmp_path / "daemon").mkdir()
    (tmp_path / "daemon" / "__init__.py").touch()
    foreign = foreign_packages(ROOT, lambda name: PathFinder.find_spec(name, [str(tmp_path), str(ROOT)]))
    assert [name for name, _ in foreign] == ["daemon"]
    assert [name for name, _ in foreign_packages(ROOT, lambda name: None)] == list(PACKAGES)
    with pytest.raises(ForeignPackage, match="is imported from"):
        check_names(tmp_path)


def test_a_foreign_package_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "__init__.py").touch()
    code = (
        f"import sys; sys.path.insert(1, {str(ROOT)!r}); import daemon.cli; exit(daemon.cli.main(['check']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == EX_SOFTWARE
    assert f"package streams is imported from {tmp_path}" in ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
