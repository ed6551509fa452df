"""What people see of objects, from a file beside the catalog: title, text, image, tags."""

from __future__ import annotations

from streams.items import Display


class DisplayFile:
    """Display data by id, packed; empty without a file."""

    def of(self, object_id: str) -> Display | None:
        """What the file says of an object, or None."""
        raise NotImplementedError
