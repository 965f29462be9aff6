"""The server of a Ray Client (``ray://``): a driver on the cluster that makes the calls of one client.

If the client is traced, the client's root span is that of the job, and the server has none. The first relevant request
shows whether it is; if not, the server's own root span begins then, with the time of the connection as its start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._ray import client_context, tracing
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.propagation import incoming, unrecorded_span
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches, in_place


class Server:
    """Decides once which root span is the parent of the client's calls.

    ``begin_own`` begins the root span of this server, at a time in nanoseconds since the epoch.
    """

    def __init__(self, active: Tracing, cluster: Cluster, begin_own: Callable[[int], None]) -> None:
        self._active = active
        self._cluster = cluster
        self._begin_own = begin_own
        self._connected_at = now_ns()
        self._is_decided = False
        self._lock = threading.Lock()

    def serve(self, patches: Patches) -> None:
        """Use the contexts of the client's calls, if this Ray supports that and the client can be notified."""
        if not (in_place(self._patch, patches) and self._cluster.invite_client(self._active.process.job_id)):
            self.decide()

    def decide(self) -> None:
        """Look for the client's root span, unless that has been done."""
        with self._lock:
            if self._is_decided:
                return
            self._is_decided = True
            root = None
            with guarded("reading the trace of this client"):
                root = client_context.announced(self._cluster.announced_by_client(self._active.process.job_id))
            with guarded("beginning the trace of this client"):
                if root is None:
                    self._begin_own(self._connected_at)
                else:
                    active = tracing.active or self._active  # settings may have changed since the client has connected
                    active.recorder.fallback = root
                    active.waits = False  # even before its first call
                    active.calls.publish_job_trace()

    def _patch(self, patches: Patches) -> bool:
        from ray.util.client.server.server import RayletServicer  # noqa: PLC0415  only in a server

        def schedule(original: Callable[..., Any]) -> Callable[..., Any]:
            def Schedule(self_: Any, task: Any, *rest: Any, **others: Any) -> Any:  # noqa: N802  Ray's name
                self.decide()
                context = _context_of(task)
                if context is None:
                    return original(self_, task, *rest, **others)
                token = attach(context)
                try:
                    return original(self_, task, *rest, **others)
                finally:
                    detach(token)

            return Schedule

        def put_object(original: Callable[..., Any]) -> Callable[..., Any]:
            def _put_object(*args: Any, **kwargs: Any) -> Any:
                self.decide()  # storing an object may make a span
                return original(*args, **kwargs)

            return _put_object

        return patches.wrap(RayletServicer, "Schedule", schedule) and patches.wrap(
            RayletServicer, "_put_object", put_object
        )


def _context_of(task: Any) -> Context | None:
    """The context that a request carries."""
    active = tracing.active
    if active is None:
        return None
    try:
        carried = client_context.get(task)
        if carried is None:
            return None
        active.waits = False  # a traced client records its own waits
        context, parent = incoming(carried)
        return Context({**context, SPAN_KEY: unrecorded_span(parent)})
    except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
        failed("tracing a call of this client", error)
        return None
