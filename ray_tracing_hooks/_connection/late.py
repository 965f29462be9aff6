"""Delivers spans that end after the connection in which they began, when the process exits."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ray_tracing_hooks._connection.recording import close, exit_in_order
from ray_tracing_hooks._safety.guard import guarded

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.delivery import Delivery
    from ray_tracing_hooks._spool.writer import SpoolWriter

_deliveries: WeakKeyDictionary[SpoolWriter, Delivery] = WeakKeyDictionary()
"""The deliveries of ended connections. A writer lives as long as an open span or the next connection may use it."""

_folders: set[str] = set()
"""The folders that the shipper leaves in place because this process may still write into them."""


def expect(writer: SpoolWriter, delivery: Delivery) -> None:
    """Deliver at the exit of the process whatever this writer still writes."""
    if not _folders:
        atexit.register(_deliver)
    _deliveries[writer] = delivery
    _folders.add(writer.directory)


def _deliver() -> None:
    exit_in_order(list(_deliveries))
    for writer, delivery in list(_deliveries.items()):
        if writer.is_open:
            close(writer)
            with guarded("delivering the last spans of this driver"):
                delivery.flush(until_writers_end=False)
    for folder in _folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
