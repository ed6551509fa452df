"""The layout of the four packages."""

from __future__ import annotations

from pathlib import Path

from tripletd._names import PACKAGES

ROOT = Path(__file__).parents[1]


def test_every_folder_of_modules_is_a_package() -> None:
    # Without an __init__.py a folder still imports, but the import contracts do not see what lies in it.
    folders = {file.parent for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    assert len(folders) > len(PACKAGES)
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []
