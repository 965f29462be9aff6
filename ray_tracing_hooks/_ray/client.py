"""Ray Client (``ray://``): a process that connects so, and its server, a driver on the cluster that makes its calls.

The client has no node, no session and no core worker, and Ray calls no hook in it: the user does. It records a root
span and the spans of the API. The server records the spans of its calls, since it knows the ids of their tasks without
waiting; their parent is the current span where the client makes the call. If the client is traced, its root span is
that of the job, and the server has none. The first relevant request shows whether it is; if not, the server's own root
span begins then, with the time of the connection as its start.

- The server invites: it writes ``CLIENT_INVITATION`` to the cluster's key-value store, under its job. A client that
  finds none, because the cluster has no hook or another one, sends nothing.
- The client announces: it replaces the invitation with the context of its root span, before its first call.
- Each call carries its context in the ``namespace`` of its request, which only requests for named actors use (Ray 2.60
  ``util/client/server/server.py``, ``Schedule``). Arguments and pickles are not changed.
"""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import TraceState

from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._ray import cluster, tracing
from ray_tracing_hooks._ray.cluster import CLIENT_INVITATION, Cluster
from ray_tracing_hooks._ray.library_spans import preceded_by, within
from ray_tracing_hooks._ray.process import DRIVER, RayProcess
from ray_tracing_hooks._ray.propagation import headers_of, incoming, unrecorded_span
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import guarded, report
from ray_tracing_hooks._safety.patching import Patches, in_place
from ray_tracing_hooks._safety.private import open_folder

_MARK = "ray_tracing_hooks:"


def encode_context(parent: Parent, headers: dict[str, str] | None) -> bytes:
    """Encode the context of ``parent``; ``headers`` are the further headers of the propagators."""
    return carrier.encode(parent.trace_id, parent.span_id, parent.flags, now_ns(), b"", headers)


def announced(value: bytes | None) -> Parent | None:
    """The root span that a client has announced; None if it has not."""
    if value is None or value == CLIENT_INVITATION:
        return None
    carried = carrier.decode(value)
    state = TraceState.from_header([carried.headers["tracestate"]]) if "tracestate" in carried.headers else None
    return Parent(carried.trace_id, carried.span_id, carried.flags, state, remote=True)


def put_context(task: Any, context: bytes) -> None:
    if task.type != task.NAMED_ACTOR:
        task.namespace = _MARK + base64.b64encode(context).decode()


def get_context(task: Any) -> carrier.Carried | None:
    """The context that a request carries, if any. Raises ValueError if it is malformed."""
    namespace = task.namespace
    if task.type == task.NAMED_ACTOR or not namespace.startswith(_MARK):
        return None
    return carrier.decode(base64.b64decode(namespace[len(_MARK) :]))


class ClientProcess(RayProcess):
    """A connected client, which appears as the driver of its job. ``worker`` is Ray's
    ``ray.util.client.worker.Worker``, ``worker_id`` the id that Ray gives the client, and ``session_dir`` a folder of
    this user.
    """

    __slots__ = ()

    @property
    def is_client(self) -> bool:
        return True

    def resource_attributes(self) -> dict[str, Any]:
        return {key: value for key, value in super().resource_attributes().items() if value}

    def current_task_id(self) -> bytes:
        """The task id of the server, which is the driver of the job."""
        from ray import JobID, TaskID  # noqa: PLC0415  the hook's module must be importable without Ray

        task_id: bytes = TaskID.for_driver_task(JobID(bytes.fromhex(self.job_id))).binary()
        return task_id


def describe(worker: Any) -> ClientProcess:
    """The client with this connection; makes one call to its server."""
    import ray  # noqa: PLC0415  as above
    from ray.core.generated.ray_client_pb2 import ClusterInfoType  # noqa: PLC0415

    known = worker.get_cluster_info(ClusterInfoType.RUNTIME_CONTEXT)
    folder = os.path.join(tempfile.gettempdir(), f"ray_tracing_hooks-{os.geteuid()}")
    with contextlib.suppress(OSError):  # problems with it are reported when the spool is created in it
        os.close(open_folder(folder))
    return ClientProcess(
        mode=DRIVER,
        session_name=getattr(known, "session_name", ""),
        session_dir=folder,
        node_id="",
        worker_id=worker._client_id,  # noqa: SLF001  there is no public API
        job_id=known.job_id.hex(),
        namespace=known.namespace,
        node_ip="",
        gcs_address=getattr(known, "gcs_address", ""),
        raylet_socket="",
        owns_cluster=False,
        ray_version=ray.__version__,
        worker=worker,
    )


def patch_end(patches: Patches, on_begin: Callable[[], None], on_end: Callable[[], None]) -> bool:
    """Call ``on_begin`` when this client begins to disconnect, ``on_end`` when it has disconnected."""
    from ray.util.client.worker import Worker  # noqa: PLC0415  as above

    def close(original: Callable[..., Any]) -> Callable[..., Any]:
        def close(self: Any) -> Any:
            if not _is_traced(tracing.active, self):
                return original(self)
            on_begin()
            try:
                with hidden_frame:
                    return original(self)
            finally:
                on_end()

        return close

    return patches.wrap(Worker, "close", close)


def patch_calls(patches: Patches) -> bool:
    """Send the current context with each call."""
    from ray.util.client.worker import Worker  # noqa: PLC0415  as above

    return patches.wrap(Worker, "_call_schedule_for_task", preceded_by(_send_along, "tracing a call"))


def meet_server(active: Tracing) -> bool:
    """Announce the root span of this client; False if its server does not support that. Makes two calls to the server.

    Raises the errors of Ray.
    """
    process, root = active.process, active.recorder.fallback
    key = cluster.client_key(process.job_id)
    if process.worker.internal_kv_get(key, cluster.JOB_TRACES) is None:
        report(
            "this cluster was started without a hook of this package, so calls of this client cannot be traced "
            "and only its own spans are recorded: set the hook where the cluster is "
            "started, in ray start --head --tracing-startup-hook=..."
        )
        return False
    if root is not None:
        headers = {"tracestate": root.trace_state.to_header()} if root.trace_state else None
        process.worker.internal_kv_put(key, encode_context(root, headers), True, cluster.JOB_TRACES)
    return True


def _is_traced(active: Tracing | None, worker: Any) -> bool:
    """Whether this is the traced connection: a process may have several, to different clusters."""
    return active is not None and active.process.worker is worker


def _send_along(worker: Any, task: Any, *_rest: Any, **_others: Any) -> None:
    active = tracing.active
    if active is None or not _is_traced(active, worker):
        return
    context = get_current()
    parent = active.recorder.parent(context)
    if parent is not None:
        headers = headers_of(context, parent, only_standard=active.calls.only_standard_headers)
        put_context(task, encode_context(parent, headers))


class ClientServer:
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
                root = announced(self._cluster.announced_by_client(self._active.process.job_id))
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

        # Storing an object may make a span too.
        calling = within(self._context_of, "tracing a call of this client")
        storing = preceded_by(lambda *_args, **_kwargs: self.decide(), "reading the trace of this client")
        return patches.wrap(RayletServicer, "Schedule", calling) and patches.wrap(
            RayletServicer, "_put_object", storing
        )

    def _context_of(self, _servicer: Any, task: Any, *_rest: Any, **_others: Any) -> Context | None:
        self.decide()
        carried, active = get_context(task), tracing.active
        if carried is None or active is None:
            return None
        active.waits = False  # a traced client records its own waits
        context, parent = incoming(carried)
        return Context({**context, SPAN_KEY: unrecorded_span(parent)})
