"""Foreign input: catalog files, and what describe reads."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from PIL import Image

from daemon.describe.pictures import UnusableObject, decoded
from daemon.describe.sources import find_photos
from daemon.describe.tables import TableColumns, TextTable
from daemon.exits import UserError
from streams.catalog import CatalogError, load_catalog
from streams.event import SpaceSpec, ViewSpec
from streams.objects.columns import ObjectColumns
from tests.fuzz.law import ForeignInput
from tests.harness.catalog_files import save_catalog

FOLDER = Path(tempfile.mkdtemp(prefix="tripletd-fuzz-"))
(FOLDER / "photo.jpg").write_bytes(b"")
SPACE = SpaceSpec("default", (ViewSpec("x", "dense", 3),))
DIGITS = b"9" * 4_000
ROWS = [
    {"id": f"a{row}", "x": [0.5, row, -1.0], "title": f"thing {row}", "tags": ["red", "round"]}
    for row in range(4)
]
SPARSE = [{"id": "a", "x": {"indices": [1, 4], "values": [0.5, 2]}, "text": "t", "image": "a.jpg"}]
MAPPED = ObjectColumns(id="p.sku", x="v", title="p.name", tags=("tags",))
DEEP = [{"p": {"sku": 7, "name": "n"}, "v": [1, 2, 3.5], "tags": "[1, [2]]"}]


def catalog(
    suffix: str, columns: ObjectColumns | None = None, space: SpaceSpec | None = None
) -> Callable[[bytes], None]:
    """Reads a catalog of that kind."""

    def read(value: bytes) -> None:
        path = FOLDER / f"items{suffix}"
        path.write_bytes(value)
        load_catalog(path, space, columns=columns or ObjectColumns())

    return read


def _lines(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _written(write: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def _array(write: Callable[..., object], *arrays: object, **named: object) -> bytes:
    return _written(lambda out: write(out, *arrays, **named))


def _safetensors(code: str, size: int) -> bytes:
    entries = {
        "x": {"dtype": code, "shape": [4, 3], "data_offsets": [0, 12 * size]},
        "ids": {"dtype": "I64", "shape": [4], "data_offsets": [12 * size, 12 * size + 32]},
    }
    header = json.dumps(entries).encode()
    ids = np.arange(4, dtype="<i8").tobytes()
    return struct.pack("<Q", len(header)) + header + bytes(12 * size) + ids


def _own() -> bytes:
    path = FOLDER / "own.jsonl"
    path.write_bytes(_lines(ROWS))
    save_catalog(load_catalog(path), FOLDER / "own.safetensors")
    return (FOLDER / "own.safetensors").read_bytes()


def _picture(form: str, mode: str = "RGB", **more: object) -> bytes:
    drawn = Image.fromarray(np.arange(96 * 80 * 3, dtype=np.uint8).reshape(80, 96, 3)).convert(mode)
    return _written(lambda out: drawn.save(out, form, **more))


def photos(value: bytes) -> None:
    """Reads a list of photos."""
    (FOLDER / "photos.txt").write_bytes(value)
    find_photos(FOLDER / "photos.txt")


def tar(value: bytes) -> None:
    """Reads a tar of photos."""
    (FOLDER / "photos.tar").write_bytes(value)
    find_photos(FOLDER / "photos.tar")


def texts(suffix: str) -> Callable[[bytes], None]:
    """Reads texts to describe."""

    def read(value: bytes) -> None:
        path = FOLDER / f"texts{suffix}"
        path.write_bytes(value)
        table = TextTable(path, TableColumns(title="title"), texts=True, images=True)
        for _ in table.pieces(2):
            pass

    return read


def _ids(value: bytes) -> None:
    np.save(FOLDER / "vectors.npy", np.eye(2, dtype=np.float32))
    (FOLDER / "names.txt").write_bytes(value)
    load_catalog(FOLDER / "vectors.npy", ids=FOLDER / "names.txt")


def _tar() -> bytes:
    import tarfile

    def write(out: io.BytesIO) -> None:
        with tarfile.open(fileobj=out, mode="w") as packed:
            for name in ("a.jpg", "folder/b.png"):
                about = tarfile.TarInfo(name)
                about.size = 5
                packed.addfile(about, io.BytesIO(b"01234"))

    return _written(write)


def _black(width: int, height: int) -> bytes:
    """A PNG of one bit a pixel, whole: a few kilobytes that become a byte a pixel, then three."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(height * (1 + -(-width // 8))))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _bomb() -> bytes:
    """An array of .npz that inflates to a thousand times its size."""

    def write(out: io.BytesIO) -> None:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("x.npy", "w") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**3)}
            )
            file.write(bytes(1_000_000))

    return _written(write)


TABLE = pyarrow.Table.from_pylist(ROWS)
PACKED = TABLE.set_column(1, "x", pyarrow.array([np.array(row["x"], "<f4").tobytes() for row in ROWS]))
CSV = b'id,x,title\n007,"[0.5, 1, 2]",one\n008,"[1, 2, 3]",two\n'
TEXTS = [{"id": f"a{row}", "text": "a red thing", "image": "a.jpg", "title": "t"} for row in range(3)]
CATALOG = (CatalogError,)
BROKE = (
    b'{"id":"a","x":[' + DIGITS + b"]}\n",
    b'{"id":"a","x":{"indices":[' + DIGITS + b'],"values":[1]}}\n',
    b'{"id":"a","x":[1,2],"tags":[' + DIGITS + b"]}\n",
    *(b'{"id":"a","x":[1,2],"tags":' + b"[" * n + b"1" + b"]" * n + b"}\n" for n in (300, 900, 990)),
    b'{"id":"a","x":' + b"[" * 980 + b"]" * 980 + b"}\n",
)
LONGEST = 4 << 20
MANY = ("{},", "[],", '{"a":{}},', '{"":1},', "[" * 100 + "]" * 100 + ",", "1,", '"ab",', '"\U00010000",')
"""Values that take the most memory for their text."""
HUGE_LINES = tuple(
    b'{"id":"a","x":[%s]}\n' % (one * ((LONGEST - 40) // len(one))).rstrip(b",")
    for one in map(str.encode, MANY)
)
BROKE += HUGE_LINES
MAPPED_BROKE = (
    b'{"p":{"sku":' + DIGITS + b',"name":' + DIGITS + b'},"v":[1],"tags":"' + b"[" * 5_000 + b']"}\n',
    *(
        b'{"p":{"sku":1,"name":' + b"[" * n + b"1" + b"]" * n + b'},"v":[1],"tags":1}\n'
        for n in range(900, 1000, 5)
    ),
)
HUGE_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000) + b"\x08\2\0\0\0" + bytes(40)
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n"
BROKEN_CSV = (
    CSV.replace(b"[1, 2, 3]", b"[" + DIGITS + b"]"),
    CSV.replace(b"008", DIGITS),
    CSV.decode().encode("utf-16"),
)


def _parquet(table: pyarrow.Table) -> bytes:
    return _written(lambda out: pyarrow.parquet.write_table(table, out))


def _feather(how: str) -> bytes:
    return _written(lambda out: pyarrow.feather.write_feather(TABLE, out, compression=how))


def _beyond(feather: bytes) -> bytes:
    """A column of texts that reaches far beyond the end of the file."""
    ends = np.array([0, 2, 4, 6, 8], "<i4").tobytes()
    assert ends in feather
    return feather.replace(ends, np.array([0, 2, 4, 6, 2**31 - 1], "<i4").tobytes())


INPUTS = (
    ForeignInput("catalogs.lines", catalog(".jsonl"), (_lines(ROWS), _lines(SPARSE)), CATALOG, BROKE),
    ForeignInput("catalogs.mapped_lines", catalog(".jsonl", MAPPED), (_lines(DEEP),), CATALOG, MAPPED_BROKE),
    ForeignInput("catalogs.csv", catalog(".csv", None, SPACE), (CSV,), CATALOG, BROKEN_CSV),
    ForeignInput(
        "catalogs.parquet",
        catalog(".parquet", None, SPACE),
        tuple(_parquet(table) for table in (TABLE, PACKED)),
        CATALOG,
        (_parquet(TABLE).replace(b"round", b"\xa0ound"),),
    ),
    ForeignInput(
        "catalogs.feather",
        catalog(".feather", None, SPACE),
        (_feather("uncompressed"), _feather("zstd")),
        CATALOG,
        (_beyond(_feather("uncompressed")),),
    ),
    ForeignInput(
        "catalogs.safetensors",
        catalog(".safetensors"),
        (_own(), *(_safetensors(code, size) for code, size in (("BF16", 2), ("F8_E5M2", 1), ("F64", 8)))),
        CATALOG,
    ),
    ForeignInput(
        "catalogs.npz",
        catalog(".npz"),
        (
            _array(np.savez, x=np.eye(3, dtype=np.float32), ids=np.array(["a", "b", "é"])),
            _array(np.savez_compressed, x=np.eye(3), ids=np.arange(3)),
        ),
        CATALOG,
        (_bomb(),),
    ),
    ForeignInput(
        "catalogs.ids", _ids, (b"a\nb\n", b"\xef\xbb\xbfa\r\nb\r\n"), CATALOG
    ),
    ForeignInput(
        "catalogs.picture",
        decoded,
        (
            _picture("JPEG"), _picture("JPEG", progressive=True), _picture("PNG"), _picture("PNG", "P"),
            _picture("PNG", "LA"), _picture("WEBP"), _picture("GIF", "P"), _picture("BMP"),
            _picture("TIFF", compression="tiff_lzw"), _picture("JPEG2000"), _picture("PPM"),
        ),
        (UnusableObject,),
        (HUGE_PNG, POSTSCRIPT, _black(10_200, 10_000)),
    ),
    ForeignInput("catalogs.photos", photos, (b"a\tphoto.jpg\n", b"photo.jpg\n"), (UserError,)),
    ForeignInput("catalogs.tar", tar, (_tar(),), (UserError,)),
    ForeignInput(
        "catalogs.texts", texts(".jsonl"), (_lines(TEXTS),), (UserError,),
        (b'{"id":' + DIGITS + b'}\n', b'{"id":"a","text":' + DIGITS + b"}\n", *HUGE_LINES),
    ),
    ForeignInput(
        "catalogs.text_table",
        texts(".csv"),
        (_written(lambda out: pyarrow.csv.write_csv(pyarrow.Table.from_pylist(TEXTS), out)),),
        (UserError,),
    ),
)  # fmt: skip
