"""Whether the packages that Python finds are those of tripletd.

Others use the names `daemon`, `streams`, `learners` and `checkpoints` too: a distribution (python-daemon), or
a folder beside a program. Python imports what comes first, and nothing refuses to install two distributions
into one folder. This module needs the standard library alone, so it can say so where nothing else of tripletd
can be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("daemon", "streams", "learners", "checkpoints")
HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the four packages."""
_OWN_PLACE = "give tripletd a virtual environment of its own (python3 -m venv, or pipx install)"


class ForeignPackage(ImportError):
    """A package of another project stands where one of tripletd's should. message: which, and where."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}\n  {remedy}")
        self.message, self.remedy = message, remedy


def check_names(home: Path = HOME) -> None:
    """ForeignPackage when Python finds another project's package for one of the four, or in its folder."""
    foreign, replaced = foreign_packages(home), replaced_packages(home)
    if not foreign and not replaced:
        return
    lines, remedies = [], []
    for name, place in foreign:
        lines.append(f"package {name} is imported from {place}, not from {home}, where tripletd has its own")
        remedies.append(_remedy(name, place, home))
    for name in replaced:
        who = " and ".join(shared_packages().get(name, ())) or "another distribution"
        lines.append(f"package {name} of tripletd was overwritten by {who} in {home / name}")
        remedies.append(f"{_OWN_PLACE}; a folder can hold one of the two")
    raise ForeignPackage("\n".join(lines), "\n  ".join(dict.fromkeys(remedies))) from None


def foreign_packages(
    home: Path, find: Callable[[str], ModuleSpec | None] = find_spec
) -> list[tuple[str, str]]:
    """(package, where it would be imported from) for each package that does not lie in the folder `home`.

    `find` locates a package without importing it; by default the whole import system, editable installs
    included.
    """
    found = []
    for name in PACKAGES:
        try:
            spec = find(name)
        except ValueError:  # in sys.modules, made by hand
            spec = None
        origin = spec.origin if spec is not None else None
        if origin is None or Path(origin).resolve().parent != home / name:
            found.append((name, origin or "nowhere"))
    return found


def replaced_packages(home: Path = HOME) -> list[str]:
    """Packages in `home` whose first file is not the one that was installed there with tripletd."""
    return [
        name
        for name, installed in _installed(home).items()
        if (digest := installed.get("__init__.py")) and _digest(home / name / "__init__.py") != digest
    ]


def shared_packages() -> dict[str, list[str]]:
    """Other distributions (NAME VERSION) that install a package of the same name, by package: one of the two
    is not what its users expect. Looks at all distributions, which takes a while; see `may_be_shared`.
    """
    from importlib import metadata

    found: dict[str, set[str]] = {}
    for one in metadata.distributions():
        name = one.metadata["Name"] or ""
        files = "\n" + (one.read_text("RECORD") or "")
        for package in PACKAGES:
            if name.lower() != "tripletd" and (f"\n{package}/" in files or f"\n{package}.py," in files):
                found.setdefault(package, set()).add(f"{name} {one.version}")
    return {package: sorted(owners) for package, owners in found.items()}


def may_be_shared(home: Path = HOME) -> bool:
    """Whether a folder of ours in `home` holds what was not installed with tripletd; quick."""
    return any(
        {one.name for one in (home / name).iterdir()} - {"__pycache__"} - installed.keys()
        for name, installed in _installed(home).items()
    )


def told_shared(owners: dict[str, list[str]]) -> tuple[str, str]:
    """What `shared_packages` found in words, and what to do about it."""
    names = sorted({who.partition(" ")[0] for each in owners.values() for who in each})
    places = " and ".join(f"{', '.join(who)} (package {name})" for name, who in owners.items())
    text = f"{places} in the same environment: `import {next(iter(owners))}` cannot mean both"
    again = f"pip uninstall tripletd, then pip install --force-reinstall {' '.join(names)}"
    return text, f"{_OWN_PLACE}; here: {again}"


def _installed(home: Path) -> dict[str, dict[str, str]]:
    """By package, what was installed directly in its folder, with the digests; empty for a source tree."""
    record = next(iter(home.glob("tripletd-*.dist-info/RECORD")), None)
    if record is None:
        return {}
    import csv

    found: dict[str, dict[str, str]] = {name: {} for name in PACKAGES}
    with record.open(newline="", encoding="utf-8") as lines:
        for path, digest, *_ in csv.reader(lines):
            package, slash, rest = path.partition("/")
            if slash and package in found:
                name, deeper, _ = rest.partition("/")
                found[package].setdefault(name, "" if deeper else digest)
    return {name: inside for name, inside in found.items() if inside}


def _digest(file: Path) -> str:
    """As RECORD writes it; another one where the file cannot be read."""
    import base64
    import hashlib

    try:
        hashed = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return "none"
    return "sha256=" + base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()


def _remedy(name: str, place: str, home: Path) -> str:
    if place == "nowhere":
        again = "reinstall tripletd (pip install --force-reinstall)"
        return f"{again}, or start it where {home / name} can be read"
    found = Path(place)
    folder = found.parent if found.name == "__init__.py" else found
    if "site-packages" in folder.parts or "dist-packages" in folder.parts:
        who = " and ".join(shared_packages().get(name, ())) or "another distribution"
        return f"{who} installed it: {_OWN_PLACE}"
    beside = "it lies next to the program, or on PYTHONPATH"
    return f"rename {folder}, or keep it off Python's search path ({beside})"
