"""The serving form of a version: made once, kept beside it, read back, made anew for other settings."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.config.schema import ServingConfig
from daemon.exits import UserError
from daemon.versions.forms import account, make_form
from daemon.versions.restore import serving_form
from learners.errors import StateError
from learners.psd import project_psd


def random_matrix(dim=20, seed=0):
    return np.random.default_rng(seed).standard_normal((dim, dim)).astype(np.float32)


def test_it_is_kept_and_read_back(world):
    world.publish()
    number = world.publish(W=random_matrix(12))
    version = world.versions.load(number)
    made = serving_form(world.versions, version, ServingConfig())
    arrays, meta = world.versions.attached(number, "serving")
    np.testing.assert_array_equal(arrays["matrix"], made.matrix)
    np.testing.assert_array_equal(made.matrix, project_psd(version.arrays["W"], 1.5))
    assert meta["made"] == {"psd": "full", "power": 1.5, "negatives": 6, "share": made.removed.share}
    assert 0 < made.removed.share < 1
    read = serving_form(world.versions, version, ServingConfig())
    np.testing.assert_array_equal(read.matrix, made.matrix)


def test_other_settings_make_it_anew_and_leave_the_kept_one(world):
    world.publish()
    number = world.publish(W=random_matrix(12))
    version = world.versions.load(number)
    serving_form(world.versions, version, ServingConfig())
    raw = serving_form(world.versions, version, ServingConfig(score="raw", psd="off"))
    assert not raw.normalised
    assert raw.matrix is None
    arrays, meta = world.versions.attached(number, "serving")
    assert meta["settings"]["score"] == "normalised"
    assert "matrix" in arrays


def test_another_power_makes_it_anew(world):
    world.publish()
    version = world.versions.load(world.publish(W=random_matrix(12)))
    serving_form(world.versions, version, ServingConfig())
    plain = serving_form(world.versions, version, ServingConfig(power=1.0))
    np.testing.assert_array_equal(plain.matrix, project_psd(version.arrays["W"]))


@pytest.mark.parametrize(
    ("settings", "psd", "power"),
    [
        ({}, "full", 1.5),
        ({"psd": "full", "power": 2.0}, "full", 2.0),
        ({"score": "raw"}, "full", 1.0),
        ({"psd": "lanczos"}, "lanczos", 1.0),
        ({"full_max_dim": 10}, "lanczos", 1.0),
        ({"psd": "off"}, "off", 1.0),
    ],
)
def test_the_power_applies_where_it_has_a_meaning(settings, psd, power):
    made = account(make_form(random_matrix(), 3, ServingConfig(**settings)))
    assert (made["psd"], made["power"]) == (psd, power)


def test_a_damaged_form_is_made_anew(world):
    world.publish()
    number = world.publish(W=random_matrix(12))
    version = world.versions.load(number)
    made = serving_form(world.versions, version, ServingConfig())
    file = next((world.path / "checkpoints").rglob("0000000001/serving*.safetensors"))
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-3])
    again = serving_form(world.versions, version, ServingConfig())
    np.testing.assert_array_equal(again.matrix, made.matrix)


def test_psd_settings():
    W = random_matrix()
    x = np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32)
    full = make_form(W, 3, ServingConfig(psd="full", score="raw"))
    np.testing.assert_allclose(full.fold(x), x @ project_psd(W), rtol=1e-4, atol=1e-4)
    auto = make_form(W, 3, ServingConfig(full_max_dim=10, lanczos_pairs=19))
    assert auto.matrix is None
    assert len(auto.correction_values) > 0
    off = make_form(W, 3, ServingConfig(psd="off", score="raw"))
    np.testing.assert_allclose(off.fold(x), x @ (W + W.T) / 2, rtol=1e-4, atol=1e-4)


def test_version_0_is_cosine():
    form = make_form(np.eye(20, dtype=np.float32), 0, ServingConfig(psd="lanczos"))
    x = np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(form.scores(x, x), unit @ unit.T, atol=1e-5)


def test_a_full_decomposition_of_too_many_dimensions_is_refused():
    W = np.zeros((4097, 4097), np.float32)
    with pytest.raises(UserError, match=r"serving\.psd"):
        make_form(W, 1, ServingConfig(psd="full"))


def test_a_state_that_is_not_finite_is_refused(world):
    world.publish()
    W = random_matrix(12)
    W[3, 4] = np.inf
    version = world.versions.load(world.publish(W=W))
    with pytest.raises(StateError, match="not finite"):
        serving_form(world.versions, version, ServingConfig())
