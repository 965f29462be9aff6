"""This process as Ray sees it: the facts that do not change while it is connected, and when it connects and ends.

Only uses what is safe inside a tracing hook. Public functions of ``ray`` are not, since they would start a second
``ray.init``, nor is the current task of a worker that has no job yet, for which the core worker aborts the process.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.patching import Patches

DRIVER, WORKER = 0, 1
"""``ray._private.worker.SCRIPT_MODE`` and ``WORKER_MODE``."""


class RayProcess(NamedTuple):
    mode: int
    session_name: str
    session_dir: str
    node_id: str
    worker_id: str
    job_id: str
    """Empty in a worker that has no job yet."""
    namespace: str
    node_ip: str
    gcs_address: str
    raylet_socket: str
    owns_cluster: bool
    """Whether this driver started the cluster, so that ``ray.shutdown()`` ends it."""
    ray_version: str
    worker: Any
    """``ray._private.worker.global_worker``."""

    @property
    def is_driver(self) -> bool:
        return self.mode == DRIVER

    @property
    def is_client(self) -> bool:
        """Whether this process is connected through Ray Client, so that it has no core worker."""
        return False

    @property
    def is_internal(self) -> bool:
        """Whether this is an internal driver of Ray, such as the dashboard."""
        return self.is_driver and self.namespace.startswith("_ray_internal")

    def start_directory(self) -> str:
        """The folder in which this cluster was started on this node; in the driver that started it, its own.

        A worker with a ``working_dir`` has another working directory, which Ray removes, and so has a submitted job.
        Raises OSError if the folder is gone, or cannot be determined.
        """
        raylet = os.environ.get("RAY_RAYLET_PID", "")  # set by Ray for workers, and inherited by their children
        if self.owns_cluster or self.is_client or not raylet.isdigit():
            return os.getcwd()
        with open(f"/proc/{raylet}/comm", "rb") as file:
            if file.read().strip() != b"raylet":  # the pid belongs to another container, or has been reused
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        directory = os.readlink(f"/proc/{raylet}/cwd")
        os.stat(directory)
        return directory

    def resource_attributes(self) -> dict[str, Any]:
        """The Resource attributes about Ray, which do not change while the process lives."""
        from ray_tracing_hooks._clock import now_ns  # noqa: PLC0415  not in workers that only move objects

        return {
            **({"host.ip": [self.node_ip]} if self.node_ip else {}),
            names.RESOURCE_RAY_VERSION: self.ray_version,
            names.RESOURCE_PROCESS_TYPE: "driver" if self.is_driver else "worker",
            # The hook is the last step before Ray gives a worker its first task.
            **({} if self.is_driver else {names.RESOURCE_WORKER_READY: now_ns()}),
            names.RESOURCE_NODE_ID: self.node_id,
            names.RESOURCE_WORKER_ID: self.worker_id,
            names.RESOURCE_SESSION_NAME: self.session_name,
            names.RESOURCE_GCS_ADDRESS: self.gcs_address,
        }

    def object_ref(self) -> type[Any]:
        from ray import ObjectRef  # noqa: PLC0415  the hook's module must be importable without Ray

        return ObjectRef  # type: ignore[no-any-return]  # not in Ray's stub

    def current_task_id(self) -> bytes:
        """The 24 bytes of the id of the current task. Only valid while a task is running."""
        task_id: bytes = self.worker.core_worker.get_current_task_id().binary()
        return task_id

    def current_job_id(self) -> str:
        """The job of this worker. Only valid while a task is running."""
        job_id: str = self.worker.core_worker.get_current_job_id().hex()
        return job_id

    def job_from_the_beginning(self) -> str:
        """The job that this worker was started for, before its first task; empty if it may serve any job."""
        job_id = self.worker.core_worker.get_current_job_id()
        return "" if job_id.is_nil() else str(job_id.hex())

    def of_actor(self) -> dict[str, Any]:
        """The constant attributes of the actor of this worker. Only valid while one of its methods runs."""
        from ray.runtime_context import RuntimeContext  # noqa: PLC0415  the hook's module must be importable without Ray

        concurrency = getattr(self.worker.core_worker, "current_actor_max_concurrency", lambda: 1)()
        is_asyncio = getattr(self.worker.core_worker, "current_actor_is_asyncio", lambda: False)()
        attributes = {
            names.RAY_ASYNCIO: bool(is_asyncio),
            names.RAY_ACTOR_NAME: RuntimeContext(self.worker).get_actor_name(),
            names.RAY_MAX_CONCURRENCY: concurrency if concurrency != 1 else None,
            **self.of_task(),
        }
        return {key: value for key, value in attributes.items() if value}

    def of_task(self) -> dict[str, Any]:
        """The resources of the task or actor of this worker. Only valid while it is running."""
        from ray.runtime_context import RuntimeContext  # noqa: PLC0415  as above

        context = RuntimeContext(self.worker)
        resources, accelerators = context.get_assigned_resources(), context.get_accelerator_ids()
        attributes = {
            names.RAY_PLACEMENT_GROUP_ID: context.get_placement_group_id(),
            names.RAY_ASSIGNED_RESOURCES: json.dumps(resources, sort_keys=True) if resources else "",
            names.RAY_ACCELERATOR_IDS: [f"{kind}:{each}" for kind, ids in accelerators.items() for each in ids],
        }
        return {key: value for key, value in attributes.items() if value}


def mode() -> int | None:
    """The mode of this process, or None if it has not imported Ray or is not connected."""
    worker = sys.modules.get("ray._private.worker")
    value: int | None = worker.global_worker.mode if worker is not None else None
    return value


def moves_objects() -> bool:
    """Whether this process is a worker that only spills and restores objects, and never runs a task."""
    worker = sys.modules.get("ray._private.worker")
    # By name, since the numbers differ in older versions of Ray.
    return mode() in {getattr(worker, name, "unknown") for name in ("SPILL_WORKER_MODE", "RESTORE_WORKER_MODE")}


def serves_client() -> bool:
    """Whether this driver works for a Ray Client. (Clients import the same modules of Ray.)"""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == "ray.util.client.server.__main__"


def describe() -> RayProcess:
    """This process, as set up by Ray 2.60 ``_private/worker.py`` ``connect()`` when it calls the hook."""
    import ray  # noqa: PLC0415
    import ray._private.worker  # noqa: PLC0415

    worker = ray._private.worker.global_worker  # noqa: SLF001
    node = worker.node
    is_driver = worker.mode == DRIVER
    return RayProcess(
        mode=worker.mode,
        session_name=node.session_name,
        session_dir=node.get_session_dir_path(),
        node_id=worker.core_worker.get_current_node_id().hex(),
        worker_id=worker.worker_id.hex(),
        job_id=worker.core_worker.get_current_job_id().hex() if is_driver else "",
        namespace=_text(getattr(worker, "namespace", "")) if is_driver else "",
        node_ip=_text(getattr(node, "node_ip_address", "")),
        gcs_address=_text(getattr(node, "gcs_address", "")),
        raylet_socket=_text(getattr(node, "raylet_socket_name", "")),
        owns_cluster=bool(is_driver and node.is_head()),
        ray_version=ray.__version__,
        worker=worker,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else os.fsdecode(value) if isinstance(value, bytes) else ""


def connected_worker() -> Any:
    """The connection of this thread's client, or None."""
    client = sys.modules.get("ray.util.client")
    return client.ray.get_context().client_worker if client is not None and client.ray.is_connected() else None


def patch_client(patches: Patches, on_connected: Callable[[], None]) -> bool:
    """Call ``on_connected`` when this process has connected as a client."""
    from ray.util.client import _ClientContext  # noqa: PLC0415  the hook's module must be importable without Ray

    return patches.wrap(_ClientContext, "connect", _notifying(on_connected))


def patch_driver(patches: Patches, on_connected: Callable[[], None]) -> bool:
    """Call ``on_connected`` when this process has connected as a driver."""
    from ray._private import worker  # noqa: PLC0415  as above

    return patches.wrap(worker, "connect", _notifying(on_connected))


def _notifying(on_connected: Callable[[], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(*args: Any, **kwargs: Any) -> Any:
            with hidden_frame:
                result = original(*args, **kwargs)
            on_connected()
            return result

        return connect

    return wrap


def patch_end(patches: Patches, on_begin: Callable[[], None], on_end: Callable[[], None]) -> bool:
    """Call ``on_begin`` when this process begins to disconnect, ``on_end`` when Ray has shut down.

    Wraps ``Worker.set_mode`` (Ray 2.60 ``_private/worker.py``), which ``ray.shutdown()`` calls with None as its last
    step, also at the exit of the interpreter, after Ray's processes have ended.
    """
    from ray._private import worker  # noqa: PLC0415

    def set_mode(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_mode(self: Any, mode: Any) -> Any:
            result = original(self, mode)
            if mode is None:
                on_end()
            return result

        return set_mode

    def disconnect(original: Callable[..., Any]) -> Callable[..., Any]:
        def disconnect(*args: Any, **kwargs: Any) -> Any:
            on_begin()
            return original(*args, **kwargs)

        return disconnect

    return patches.wrap(worker.Worker, "set_mode", set_mode) and patches.wrap(worker, "disconnect", disconnect)
