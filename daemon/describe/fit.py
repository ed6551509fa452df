"""What describing was fitted on: palette, codebooks, document frequencies; a file that describes other
objects in the same space.

A `.safetensors` file: `palette` float32 [20, 3]; by view `codebook.NAME` float32 [words, d] and
`weights.NAME` float32 [words]; of texts `words` (uint8, UTF-8, a line each). Its metadata `fitted` are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from daemon.describe.codebooks import Floats
from daemon.exits import EX_DATAERR, UserError

FORMAT = "tripletd.described/1"
_SAID = ("views", "longest", "seed", "objects", "model", "dim", "model_state", "libraries")
"""Fields that are kept as JSON."""


@dataclass(frozen=True)
class DescriberFit:
    """views: names in their order. longest: pixels of a photo's longer side. weights: of each view with
    words, d_i. words: of the texts' view. model: name of the text model, "" without one; dim: of its vectors;
    model_state: a digest of its files.
    objects: how many it was fitted on. libraries: versions that computed it, for those who wonder."""

    views: tuple[str, ...]
    longest: int
    seed: int
    objects: int = 0
    palette: Floats = field(default_factory=lambda: np.zeros((0, 3), np.float32))
    codebooks: Mapping[str, Floats] = field(default_factory=dict)
    weights: Mapping[str, Floats] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    model: str = ""
    dim: int = 0
    model_state: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """As the bytes of a file: the same fit, the same bytes."""
        from safetensors.numpy import save

        arrays: dict[str, np.ndarray[Any, Any]] = {"palette": self.palette}
        arrays |= {f"codebook.{name}": found for name, found in self.codebooks.items()}
        arrays |= {f"weights.{name}": found for name, found in self.weights.items()}
        if self.words:
            arrays["words"] = np.frombuffer("\n".join(self.words).encode(), np.uint8)
        said = {"format": FORMAT} | {name: getattr(self, name) for name in _SAID}
        said["libraries"] = dict(sorted(self.libraries.items()))
        # One entry: a second one would stand before or after it by chance.
        kept = {name: np.ascontiguousarray(one) for name, one in arrays.items()}
        encoded: bytes = save(kept, {"fitted": json.dumps(said)})
        return encoded

    @classmethod
    def load(cls, path: Path) -> DescriberFit:
        """Read such a file. Raises UserError."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                said = json.loads((file.metadata() or {}).get("fitted", "{}"))
                if said.get("format") != FORMAT:
                    raise ValueError("not what describe fitted")
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        except (OSError, SafetensorError, ValueError) as error:
            remedy = "name what describe wrote: ....fitted.safetensors"
            raise UserError(f"{path}: {error}", remedy, EX_DATAERR) from None
        words = arrays["words"].tobytes().decode().split("\n") if "words" in arrays else []
        plain = {name: said[name] for name in _SAID} | {"views": tuple(said["views"])}
        codebooks, weights = _of(arrays, "codebook."), _of(arrays, "weights.")
        return cls(
            **plain, palette=arrays["palette"], codebooks=codebooks, weights=weights, words=tuple(words)
        )


def _of(arrays: Mapping[str, Any], prefix: str) -> dict[str, Floats]:
    return {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}
