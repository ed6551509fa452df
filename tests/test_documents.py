"""What the documents name is there: files they link to or speak of, commands and options they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from daemon.cli import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "checkpoints/FORMAT.md", "streams/FORMAT.md"),
    "streams/feed/FORMATS.md",
]
TOPS = ("checkpoints", "daemon", "deploy", "learners", "streams", "tests")
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
SPOKEN = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./@*-]+)`")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_are_there(name: str) -> None:
    document = ROOT / name
    text = document.read_text()
    links = [link for link in LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [path for path in SPOKEN.findall(text) if not list(ROOT.glob(path.rstrip("/")))]
    assert not missing


def commands(text: str) -> list[list[str]]:
    """The words of every `tripletd` command in the fenced blocks."""
    lines = "".join(FENCE.findall(text)).splitlines()
    said = [part.strip() for line in lines for part in line.split("#")[0].split(";")]
    return [shlex.split(one)[1:] for one in said if one.startswith("tripletd ")]


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_commands_and_options_are_there(name: str) -> None:
    for words in commands((ROOT / name).read_text()):
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            assert words[0] in command.commands, f"tripletd {words}"
            command, words = command.commands[words[0]], words[1:]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known | {"--help"}, f"tripletd {words}"


def test_there_are_commands_to_look_at() -> None:
    assert len(commands((ROOT / "README.md").read_text())) > 10
