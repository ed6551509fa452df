"""A manifest says exactly what its format allows, and a wrong field is named."""

from __future__ import annotations

import pytest

from checkpoints import Damaged, Manifest
from checkpoints.manifest import seal, unseal

from .samples import a_manifest


def refused(**changes: object) -> str:
    """The message for a well-sealed manifest with other fields."""
    data = seal(unseal(a_manifest().to_json(), "here") | changes)
    with pytest.raises(Damaged, match=r"^here: ") as caught:
        Manifest.from_json(data, "here")
    return str(caught.value)


def test_the_manifest_survives_a_round_trip() -> None:
    manifest = a_manifest()
    assert Manifest.from_json(manifest.to_json(), "here") == manifest


@pytest.mark.parametrize("name", ["../0000000000/state", "/etc/passwd", "a/b", "..", "", "a\0b"])
def test_file_names_that_lead_outside_are_refused(name: str) -> None:
    error = refused(files=[{"name": name, "size": 1, "sha256": "0" * 64}])
    assert "files[0].name" in error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", -1),
        ("number", True),
        ("number", "1"),
        ("kind", "delta"),
        ("parent", 1.5),
        ("epoch", None),
        ("writer", 3),
        ("learner", []),
        ("space", None),
        ("catalog_digest", 1),
        ("seed", "x"),
        ("positions", []),
        ("positions", {"x": {"next_offset": 1, "last_digest": None}}),
        ("positions", {"0": {"next_offset": 1}}),
        ("positions", {"0": {"next_offset": -1, "last_digest": None}}),
        ("schedule", [[0, 5, 5]]),
        ("schedule", [[0, 1]]),
        ("schedule", [{"no": 1}]),
        ("counters", {"a": "1"}),
        ("counters", {"a": True}),
        ("watermark", "now"),
        ("files", {}),
        ("files", [{}]),
        ("files", [{"name": "a", "size": 1, "sha256": "z"}]),
        ("arrays", [{"name": "W", "dtype": "F32", "shape": [-1], "digest": "0" * 32}]),
        ("arrays", [{"name": "W", "dtype": "F32", "shape": [1]}]),
        ("arrays", [{"name": "W", "dtype": "F32", "shape": [1], "digest": "0" * 64}]),
        ("state_hash", 0),
        ("runtime", None),
        ("surprise", 1),
    ],
)
def test_wrong_fields_are_named(field: str, value: object) -> None:
    assert f"field {field}" in refused(**{field: value})


def test_every_field_is_required() -> None:
    record = unseal(a_manifest().to_json(), "here")
    for field in record.keys() - {"format"}:
        data = seal({name: value for name, value in record.items() if name != field})
        with pytest.raises(Damaged, match=f"field {field}: is missing"):
            Manifest.from_json(data, "here")
