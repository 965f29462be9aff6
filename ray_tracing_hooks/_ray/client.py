"""A process that connects to a cluster through Ray Client (``ray://``). It has no node, no session and no core worker,
and Ray calls no hook in it: the user does.

It records a root span and the spans of the API. The server records the spans of its calls, since it knows the ids of
their tasks without waiting; their parent is the current span where the client makes the call.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._ray import client_context, cluster, tracing
from ray_tracing_hooks._ray.process import DRIVER, RayProcess
from ray_tracing_hooks._ray.propagation import headers_of
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed, report
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._safety.private import open_folder


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
                return original(self)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                on_end()

        return close

    return patches.wrap(Worker, "close", close)


def patch_calls(patches: Patches) -> bool:
    """Send the current context with each call."""
    from ray.util.client.worker import Worker  # noqa: PLC0415  as above

    def schedule(original: Callable[..., Any]) -> Callable[..., Any]:
        def _call_schedule_for_task(self: Any, task: Any, *rest: Any, **others: Any) -> Any:
            active = tracing.active
            if active is not None and _is_traced(active, self):
                _send_along(active, task)
            try:
                return original(self, task, *rest, **others)
            except BaseException as error:
                hide_frame(error)
                raise

        return _call_schedule_for_task

    return patches.wrap(Worker, "_call_schedule_for_task", schedule)


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
        process.worker.internal_kv_put(key, client_context.encode(root, headers), True, cluster.JOB_TRACES)
    return True


def _is_traced(active: Tracing | None, worker: Any) -> bool:
    """Whether this is the traced connection: a process may have several, to different clusters."""
    return active is not None and active.process.worker is worker


def _send_along(active: Tracing, task: Any) -> None:
    try:
        context = get_current()
        parent = active.recorder.parent(context)
        if parent is not None:
            headers = headers_of(context, parent, only_standard=active.calls.only_standard_headers)
            client_context.put(task, client_context.encode(parent, headers))
    except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
        failed("tracing a call", error)
