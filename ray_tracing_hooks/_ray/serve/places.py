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
from ray_tracing_hooks._patching import in_place
from ray_tracing_hooks._ray.tracing import SERVE, Tracing

_PLACES = (
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

_joining = threading.RLock()
_joined: dict[str, Tracing] = {}
"""The connection that each place has been looked at in."""


def join(active: Tracing) -> bool:
    """Wrap what this process has imported of Serve; whether that is asked for.

    If it is, calls among Serve's own actors make no spans and carry nothing: a request's context goes with the request.
    Never raises; can be called again and again.
    """
    if SERVE not in active.parts or active.patches is None:
        return False
    for name, lost in _PLACES:
        try:
            place = import_module(f"{__package__}.{name}")
            # What Serve has not imported here it does not use, and it would take a second to import.
            if place.MODULE not in sys.modules:
                continue
            with _joining:
                if _joined.get(name) is active:
                    continue
                _joined[name] = active
                done = in_place(place.patch, active.patches)
            if not done:
                report(f"{lost}: Ray {active.process.ray_version} has changed the place where that is done")
        except Exception as error:  # noqa: BLE001  the program is the user's, the fault would be ours
            failed("joining Serve", error)
    return True
