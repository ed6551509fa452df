"""An adapter as an arm, from the log to what is served: where a matrix says what is clicked, it leads the
race and orders lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.models.vectors import ExportSource
from daemon.versions.contents import arms_arrays
from daemon.versions.order import OrderChoice, answering
from learners.adapter import AdapterConfig, SoftmaxAdapter
from learners.arms import own_rows
from learners.block import DenseBlock
from tests.daemon.test_click_memory import Shop

SETTINGS = {"batch": 16, "rate": 0.01}
ARMS: list[dict[str, Any]] = [{"name": "soft", "kind": "adapter", "settings": SETTINGS}]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"), ARMS, by_class=True)


def test_learn_publishes_it_and_validate_bets_on_it_until_it_leads(shop: Shop) -> None:
    how = answering(shop.entries, shop.best)
    assert how.order is not None
    assert (how.order.arm, how.reach) == ("soft", False)
    assert shop.versions.manifest(shop.best).learner["config"]["arms"] == [
        {
            "name": "soft",
            "pairs": "all",
            "random": True,
            "geometry": "own",
            "kind": "adapter",
            "settings": {"temperature": 0.2, "rate": 0.01, "batch": 16},
        }
    ]
    last = [one for one in shop.entries if one.kind == "KEEP"][-1]
    assert last.measures["clicked_higher"] > 0.6


def test_its_order_is_that_of_its_matrix_and_can_be_exported(shop: Shop) -> None:
    form, z = shop.form(OrderChoice("soft", 3.0, 5))
    arms = arms_arrays(shop.versions.load(shop.best).arrays)
    state = {name.removeprefix("soft."): one for name, one in arms.items()}
    made = SoftmaxAdapter.from_state(state, AdapterConfig(**SETTINGS))
    assert made.steps > 50
    assert isinstance(z, DenseBlock)
    u = own_rows(z, form.metric).values  # type: ignore[attr-defined]
    np.testing.assert_allclose(form.scores(z, z), u @ made.W @ u.T + 3 * u @ u.T, atol=1e-4)
    exported = ExportSource.ordering(shop.versions, shop.best, answering(shop.entries, shop.best))
    assert exported.form.dim == made.dim
