"""A linear layer as a folder that PyTorch's programs load: `config.json` and `pytorch_model.bin`, as
LlamaIndex's `LinearLayer.load` reads them for its `AdapterEmbeddingModel`.

The second is what `torch.save` writes of a state dict: a ZIP of stored entries, in which `data.pkl` says by a
pickle which tensors there are and `data/N` holds the numbers of the N-th. It is written here opcode by
opcode, with the three names that every file of tensors has and nothing else, so that
`torch.load(weights_only=True)`, which runs no code, takes it. Nothing of tripletd reads such a file.
"""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from daemon.exits import EX_CANTCREAT, UserError
from daemon.models.derive import write_new
from learners.block import Float32s

CONFIG, WEIGHTS = "config.json", "pytorch_model.bin"
_ROOT = "pytorch_model"
"""The folder inside the ZIP; torch.save takes the file's name."""
_VERSION = "3\n"
"""Of the format, as PyTorch has written it since 1.6."""

_PROTO_2, _STOP = b"\x80\x02", b"."
_DICT, _SETITEMS = b"}", b"u"
_MARK, _TUPLE, _NO_ARGUMENTS = b"(", b"t", b")"
_REDUCE, _PERSISTENT, _FALSE = b"R", b"Q", b"\x89"


def write_folder(path: Path, weight: Float32s, bias: Float32s | None) -> None:
    """Make the folder `path` of a layer y = weight x + bias, weight float32 [out, in], bias float32 [out] or
    None. Raises UserError where it is there already or cannot be made."""
    rows, columns = weight.shape
    config = {"in_features": columns, "out_features": rows, "bias": bias is not None}
    arrays = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    try:
        path.mkdir()
    except FileExistsError as error:
        told = f"{path} is there already"
        raise UserError(told, "name another folder, or move it away", EX_CANTCREAT) from error
    except OSError as error:
        told = f"{path} cannot be made: {error.strerror}"
        raise UserError(told, "look at the folder it is to lie in", EX_CANTCREAT) from error
    write_new(path / WEIGHTS, lambda file: write_state_dict(file, arrays))
    write_new(path / CONFIG, lambda file: file.write((json.dumps(config) + "\n").encode()))


def write_state_dict(file: IO[bytes], arrays: Mapping[str, Float32s]) -> None:
    """Write arrays as `torch.save` writes a dict of float32 tensors on the CPU; the same bytes each time."""
    pairs = [_text(name) + _tensor(array, number) for number, (name, array) in enumerate(arrays.items())]
    pickled = _PROTO_2 + _DICT + _MARK + b"".join(pairs) + _SETITEMS + _STOP
    entries = [("data.pkl", pickled), ("byteorder", sys.byteorder.encode())]
    entries += [
        (f"data/{number}", np.ascontiguousarray(array, np.float32).tobytes())
        for number, array in enumerate(arrays.values())
    ]
    entries.append(("version", _VERSION.encode()))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(f"{_ROOT}/{name}"), content)


def _tensor(array: Float32s, number: int) -> bytes:
    """The call that rebuilds a tensor of the whole storage `number`, its rows one after another."""
    kind = _global("torch", "FloatStorage")
    storage = _tuple(_text("storage"), kind, _text(str(number)), _text("cpu"), _integer(array.size))
    strides = [int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)]
    hooks = _global("collections", "OrderedDict") + _NO_ARGUMENTS + _REDUCE
    given = _tuple(
        storage + _PERSISTENT,
        _integer(0),
        _tuple(*map(_integer, array.shape)),
        _tuple(*map(_integer, strides)),
        _FALSE,  # it wants no gradient
        hooks,
    )
    return _global("torch._utils", "_rebuild_tensor_v2") + given + _REDUCE


def _tuple(*items: bytes) -> bytes:
    return _MARK + b"".join(items) + _TUPLE


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _integer(value: int) -> bytes:
    """Below 2^31; a matrix of what is exported has 2^24 numbers at most."""
    return b"J" + struct.pack("<i", value)
