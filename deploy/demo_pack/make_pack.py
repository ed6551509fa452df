"""Build the demo pack from a tar of labelled photos (``<split>/<class>/<id>.jpg``).

    python deploy/demo_pack/make_pack.py --photos photos_320.tar --out deploy/demo_pack/pack

Needs the optional photo packages (opencv, scikit-image). The pack is made once and shipped: nothing in the
daemon imports this script. Classes name only the judgments; no descriptor sees one. The descriptors are
those that `tripletd describe --views five` makes, of photos that OpenCV decoded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from daemon.describe import five

SPACE = "clothing-1"
THUMBNAIL_SIDE = 96  # pixels of the longer side
THUMBNAIL_QUALITY = 60  # JPEG; 3,400 thumbnails stay near 5 MB
SIZE_LIMIT = 15_000_000  # bytes of the whole pack


@dataclass(frozen=True)
class Photo:
    """One photo of the tar: its object id, class, split and encoded bytes."""

    id: str
    label: str
    split: str
    encoded: bytes


@dataclass(frozen=True)
class Described:
    """What the pack keeps of one photo: float16 descriptors by view name and a JPEG thumbnail."""

    views: dict[str, npt.NDArray[np.float16]]
    thumbnail: bytes


def read_photos(tar_path: Path) -> list[Photo]:
    """Every photo of the tar, exact duplicates dropped, by id (an order that tells nothing of the class)."""
    first: dict[str, Photo] = {}
    for photo in _members(tar_path):
        first.setdefault(hashlib.sha256(photo.encoded).hexdigest(), photo)
    photos = sorted(first.values(), key=lambda photo: photo.id)
    if len({photo.id for photo in photos}) != len(photos):
        raise ValueError(f"{tar_path}: two different photos share one id (file name)")
    if not photos:
        raise ValueError(f"{tar_path}: no <split>/<class>/<id>.jpg inside")
    return photos


def describe(photo: Photo) -> Described:
    """Descriptors and thumbnail of one photo."""
    image = load(photo.encoded)
    mask = five.foreground(image)
    views = {name: view(image, mask).astype(np.float16) for name, view in five.VIEWS.items()}
    return Described(views=views, thumbnail=thumbnail(photo.encoded))


def load(encoded: bytes) -> five.Pixels:
    """Decode an encoded photo and squash it to a square of RGB; ValueError when it is not an image."""
    bgr = cv2.imdecode(np.frombuffer(encoded, dtype=np.uint8), cv2.IMREAD_COLOR)
    if bgr is None:
        raise ValueError("not a decodable image")
    small = cv2.resize(bgr, (five.SIDE, five.SIDE), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def thumbnail(encoded: bytes) -> bytes:
    """The photo as a JPEG whose longer side has THUMBNAIL_SIDE pixels."""
    bgr = cv2.imdecode(np.frombuffer(encoded, dtype=np.uint8), cv2.IMREAD_COLOR)
    if bgr is None:
        raise ValueError("not a decodable image")
    height, width = bgr.shape[:2]
    scale = THUMBNAIL_SIDE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
    options = [cv2.IMWRITE_JPEG_QUALITY, THUMBNAIL_QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
    return bytes(cv2.imencode(".jpg", small, options)[1])


def write_pack(photos: list[Photo], described: list[Described], out: Path) -> None:
    """Write catalog, labels, splits and thumbnails under ``out`` (formats: the pack's README)."""
    out.mkdir(parents=True, exist_ok=True)
    ids, ids_offsets = _packed([photo.id.encode() for photo in photos])
    tensors: dict[str, npt.NDArray[np.generic]] = {"ids": ids, "ids_offsets": ids_offsets}
    for name in five.VIEWS:
        tensors[f"view.{name}"] = np.stack([one.views[name] for one in described])
    save_file(tensors, out / "catalog.safetensors", {"format": "tripletd.catalog/1", "space": SPACE})
    jpeg, offsets = _packed([one.thumbnail for one in described])
    save_file({"jpeg": jpeg, "offsets": offsets}, out / "thumbnails.safetensors")
    _write_table(out / "labels.tsv", ((photo.id, photo.label) for photo in photos))
    _write_table(out / "splits.tsv", ((photo.id, photo.split) for photo in photos))


def main(arguments: list[str] | None = None) -> int:
    """Command line: read the tar, describe the photos on all cores, write the pack, check its size."""
    parser = argparse.ArgumentParser(prog="make_pack.py", description="make the demo pack")
    parser.add_argument("--photos", type=Path, required=True, help="tar of <split>/<class>/<id>.jpg")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pack")
    parser.add_argument("--licence", type=Path, help="licence of the photos (default: next to the tar)")
    options = parser.parse_args(arguments)
    try:
        photos = read_photos(options.photos)
    except (OSError, tarfile.TarError, ValueError) as error:
        sys.stderr.write(f"make_pack: cannot read {options.photos}: {error}\n")
        return 65
    with Pool(os.cpu_count(), initializer=cv2.setNumThreads, initargs=(1,)) as pool:
        described = pool.map(describe, photos, chunksize=32)
    write_pack(photos, described, options.out)
    shutil.copyfile(options.licence or options.photos.parent / "LICENSE", options.out / "LICENSE")
    for path in options.out.iterdir():
        path.chmod(0o644)  # safetensors writes 0600; the pack is shipped, not secret
    size = sum(path.stat().st_size for path in options.out.iterdir())
    sys.stdout.write(f"{len(photos)} photos, {len(five.VIEWS)} views, {size / 1e6:.1f} MB\n")
    if size > SIZE_LIMIT:
        sys.stderr.write(f"make_pack: the pack is over its {SIZE_LIMIT / 1e6:.0f} MB\n")
        return 73
    return 0


def _members(tar_path: Path) -> Iterator[Photo]:
    """Photos in the order of the tar; anything that is not <split>/<class>/<id>.jpg is passed over."""
    with tarfile.open(tar_path) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if not member.isfile() or path.suffix.lower() != ".jpg" or len(path.parts) != 3:
                continue
            handle = tar.extractfile(member)
            if handle is not None:
                yield Photo(path.stem, path.parts[1], path.parts[0], handle.read())


def _packed(items: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Byte strings end to end as uint8, with int64 [n + 1] offsets."""
    offsets = np.concatenate([[0], np.cumsum([len(item) for item in items])]).astype(np.int64)
    return np.frombuffer(b"".join(items), dtype=np.uint8), offsets


def _write_table(path: Path, rows: Iterator[tuple[str, str]]) -> None:
    path.write_text("".join(f"{key}\t{value}\n" for key, value in rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
