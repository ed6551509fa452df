"""Graphs are built at once here, however busy the machine is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def builds_wait_for_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A build is a process of the lowest priority, which gets hardly any of a busy processor."""
    folder = tmp_path_factory.mktemp("not-nice")
    (folder / "sitecustomize.py").write_text("import os\nos.nice = os.setpriority = lambda *how: 0\n")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield
