"""News: what a shipper has to say to users without being asked, in a file that the traced processes read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

from ray_tracing_hooks._private import inside, open_folder, read_file
from ray_tracing_hooks._ship.files import NEWS, write_atomically


def publish(within: str, texts: Sequence[str]) -> None:
    """Replace the news of the spool folder ``within``; those who flush hear of problems in any case."""
    with contextlib.suppress(OSError):
        write_atomically(os.path.join(within, NEWS), json.dumps(list(texts)))


def news(spool_dir: str) -> list[str]:
    """What the shipper has said so far about failures that last and about losses, as sentences for the user."""
    try:
        folder = open_folder(spool_dir, make=False)
        try:
            return [str(text) for text in json.loads(read_file(os.path.join(inside(folder), NEWS)))]
        finally:
            os.close(folder)
    except (OSError, ValueError):
        return []
