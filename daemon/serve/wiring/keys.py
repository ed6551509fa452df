"""The models of single keys, for the page."""

from __future__ import annotations

from daemon.look.keys import key_rows
from daemon.replica.status import NotServing
from daemon.serve.page.sources import KeysShown
from daemon.serve.wiring.live import Live
from daemon.versions.forms import KeyedForm


def keys_shown(live: Live) -> KeysShown | None:
    """Those of the newest model that is served; None where there is one model for all, or nothing yet."""
    opened = live.opened
    if opened is None or not opened.space.keys.slots:
        return None
    served = [status for status in live.statuses() if status.model is not None]
    if not served:
        return None
    newest = max(served, key=lambda status: 0 if status.model is None else status.model.total)
    try:
        with opened.replicas[newest.alias].read() as view:
            assert isinstance(view.form, KeyedForm)
            events, model = view.form.learner.events(), view.model
    except NotServing:
        return None
    rows = key_rows(events, opened.verdicts.now().at(model.version))
    return KeysShown(str(model), opened.space.keys.slots, len(events), tuple(rows))
