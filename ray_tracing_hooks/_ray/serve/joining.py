"""Detects that a process takes part in Serve, and wraps the parts of Serve that it has imported.

A process of Serve executes an actor of ``ray.serve._private``, and a process that calls deployments first calls Serve's
controller. One that only enqueues tasks for async inference has imported Serve when it connects, or when a task begins.
Nothing is done in all other processes.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module

from ray_tracing_hooks._guard import failed, report
from ray_tracing_hooks._patching import Patches, in_place

WRAPPED = (
    ("proxy", "requests to Serve's proxies are not traced"),
    ("router", "calls of deployments are not traced"),
    ("choosing", "how long the choice of replicas takes is not recorded"),
    ("responses", "how long callers wait for a replica is not recorded"),
    ("replica", "requests are not traced in the replicas of deployments"),
    ("event_loop", "how long requests wait for the event loop of their replica is not recorded"),
    ("starting", "the start of replicas is not traced"),
    ("monitoring", "calls of health checks are traced"),
    ("direct", "requests that replicas receive without a proxy are not traced"),
    ("batching", "batches of requests are not traced"),
    ("multiplexing", "the loading of multiplexed models is not traced"),
    ("own_tracing", "Serve's own tracing makes additional spans"),
)
"""The modules of this package that wrap something, and what is lost if this Ray has changed it. Each names in
``MODULE`` the module of Serve that must have been imported."""


class Joining:
    """Wraps the parts of Serve that this process has imported, for one connection.

    Args:
        patches: Holds the replacements.
        ray_version: The version of Ray, for messages.
    """

    def __init__(self, patches: Patches, ray_version: str) -> None:
        self._patches = patches
        self._ray_version = ray_version
        self._joined: set[str] = set()
        self._lock = threading.RLock()

    def join(self) -> bool:
        """Wrap the parts of Serve that this process has imported by now. Never raises; can be called repeatedly.

        Returns True: from now on, calls among Serve's own actors make no spans and carry no context, since the context
        of a request is carried by the request.
        """
        for name, lost in WRAPPED:
            try:
                module = import_module(f"{__package__}.{name}")
                # Serve does not use a module that it has not imported here, and importing it would take a second.
                if module.MODULE not in sys.modules:
                    continue
                with self._lock:
                    if name in self._joined:
                        continue
                    self._joined.add(name)
                    done = in_place(module.patch, self._patches)
                if not done:
                    report(f"{lost}: Ray {self._ray_version} has changed the code that is instrumented for it")
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
                failed("joining Serve", error)
        return True
