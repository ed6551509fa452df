"""`tripletd serve`."""

from __future__ import annotations

from functools import partial

from daemon.commands.common import ConfigOption, SetOption, load, start_role


def serve(*, config: ConfigOption = None, set_: SetOption = None) -> int:
    """Answer queries by HTTP with what is learned, swapped in while it is learned."""
    effective = start_role("serve", config, set_)
    from daemon.serve.start import run

    return run(effective, load=partial(load, config, set_))
