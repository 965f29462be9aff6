"""News: messages of a shipper to users, in a file that the traced processes read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

from ray_tracing_hooks._private import inside, open_folder, read_file, write_atomically
from ray_tracing_hooks._ship.files import NEWS


def publish(within: str, texts: Sequence[str]) -> None:
    """Replace the news of the spool folder ``within``. Failures are ignored: a flush reports problems in any case."""
    with contextlib.suppress(OSError):
        write_atomically(os.path.join(within, NEWS), json.dumps(list(texts)).encode())


def news(spool_dir: str) -> list[str]:
    """The shipper's messages so far about lasting failures and losses, as sentences for the user."""
    try:
        folder = open_folder(spool_dir, make=False)
        try:
            return [str(text) for text in json.loads(read_file(os.path.join(inside(folder), NEWS)))]
        finally:
            os.close(folder)
    except (OSError, ValueError):
        return []
