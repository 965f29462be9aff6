"""Detects that a process takes part in Serve, and wraps the parts of Serve that it has imported.

A process of Serve executes an actor of ``ray.serve._private``, and a process that calls deployments first calls Serve's
controller. Nothing is done in all other processes.
"""

from __future__ import annotations

import sys
import threading

from ray_tracing_hooks._libraries import SERVE, Wrap
from ray_tracing_hooks._ray.libraries import instrument
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


class Joining:
    """Wraps the parts of Serve that this process has imported, for one connection.

    Args:
        patches: Holds the replacements.
        ray_version: The version of Ray, for messages.
    """

    def __init__(self, patches: Patches, ray_version: str) -> None:
        self._patches = patches
        self._ray_version = ray_version
        self._joined: set[Wrap] = set()
        self._lock = threading.RLock()

    def join(self) -> bool:
        """Wrap the parts of Serve that this process has imported by now. Never raises; can be called repeatedly.

        Returns True: from now on, calls among Serve's own actors make no spans and carry no context, since the context
        of a request is carried by the request.
        """
        for row in SERVE.wraps:
            # Serve does not use a module that it has not imported here, and importing it would take a second.
            if row.of not in sys.modules:
                continue
            try:
                with self._lock:
                    if row in self._joined:
                        continue
                    self._joined.add(row)
                    instrument(SERVE.part, row, self._patches, self._ray_version)
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
                failed("joining Serve", error)
        return True
