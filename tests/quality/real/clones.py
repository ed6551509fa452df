"""Files of a git clone, bare or not, as they are in its newest commit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class CloneLacks(Exception):
    """A file that is to be read is not in the clone, or is listed there without its content."""


@dataclass(frozen=True)
class GitClone:
    """A clone at a path."""

    path: Path

    def commit(self) -> str:
        """The newest commit. Raises CloneLacks where there is none."""
        return self._git("rev-parse", "HEAD").decode().strip()

    def read(self, name: str) -> bytes:
        """One file. Raises CloneLacks."""
        return self._git("cat-file", "blob", f"HEAD:{name}")

    def text(self, name: str) -> str:
        """One file, as text. Raises CloneLacks."""
        return self.read(name).decode("utf-8", "replace")

    def folder(self, name: str) -> Mapping[str, bytes]:
        """Every file of a folder by its name there, in the order of names; those without content are left
        out. Raises CloneLacks where there is none at all."""
        listed = self._git("ls-tree", "-z", "HEAD", f"{name}/").decode().split("\0")
        parts = [line.split("\t", 1) for line in listed if line]
        blobs = {path.rsplit("/", 1)[1]: about.split()[2] for about, path in parts if " blob " in about}
        contents = {}
        packed = self._git("cat-file", "--batch", asked="".join(f"{blob}\n" for blob in blobs.values()))
        at = 0
        for file in blobs:
            end = packed.index(b"\n", at)
            head, at = packed[at:end].split(), end + 1
            if head[-1] != b"missing":
                size = int(head[2])
                contents[file] = packed[at : at + size]
                at += size + 1
        if not contents:
            raise CloneLacks(f"{self.path} has no files in {name}")
        return contents

    def _git(self, *words: str, asked: str = "") -> bytes:
        command = ["git", "-C", str(self.path), *words]
        done = subprocess.run(command, check=False, input=asked.encode(), capture_output=True)
        if done.returncode:
            raise CloneLacks(f"{self.path}, {' '.join(words)}: {done.stderr.decode().strip()}")
        return done.stdout
