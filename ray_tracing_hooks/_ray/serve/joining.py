"""When a process takes part in Serve, and what is wrapped there.

A process of Serve's own executes an actor of ``ray.serve._private``, and one that calls deployments calls Serve's
controller before. One that only enqueues tasks for async inference has imported Serve when it connects, or when a task
begins. Nothing is done in all others.
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
    ("choosing", "how long the choice of replicas takes is not told"),
    ("replica", "requests are not traced in the replicas of deployments"),
    ("starting", "the start of replicas is not traced"),
    ("monitoring", "what health checks call is traced"),
    ("direct", "requests are not traced where replicas take them without a proxy"),
    ("batching", "batches of requests are not traced"),
    ("multiplexing", "the loading of multiplexed models is not traced"),
    ("task_processor", "tasks of async inference are not traced"),
    ("own_tracing", "Serve's own tracing makes spans besides"),
    ("shortcuts", "requests of Serve take more time"),
)
"""The modules of this package that wrap something, and what is lost where this Ray has it elsewhere. Each names in
``MODULE`` the module of Serve's that has to be imported before."""


class Joining:
    """Wraps what this process has imported of Serve, for one connection.

    Args:
        patches: Where to put what is replaced.
        ray_version: The version of Ray, for messages.
    """

    def __init__(self, patches: Patches, ray_version: str) -> None:
        self._patches = patches
        self._ray_version = ray_version
        self._joined: set[str] = set()
        self._lock = threading.RLock()

    def join(self) -> bool:
        """Wrap what this process has imported of Serve by now. Never raises; can be called again and again.

        Returns True: calls among Serve's own actors make no spans and carry nothing from now on, since a request's
        context goes with the request.
        """
        for name, lost in WRAPPED:
            try:
                module = import_module(f"{__package__}.{name}")
                # What Serve has not imported here it does not use, and it would take a second to import.
                if module.MODULE not in sys.modules:
                    continue
                with self._lock:
                    if name in self._joined:
                        continue
                    self._joined.add(name)
                    done = in_place(module.patch, self._patches)
                if not done:
                    report(f"{lost}: Ray {self._ray_version} has changed the code that is instrumented for it")
            except Exception as error:  # noqa: BLE001  the program is the user's, the fault would be ours
                failed("joining Serve", error)
        return True
