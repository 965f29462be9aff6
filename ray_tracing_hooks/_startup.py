"""Puts the parts together in a process: what every hook calls."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from ray_tracing_hooks import _guard
from ray_tracing_hooks._guard import guarded, report
from ray_tracing_hooks._patching import Patches, in_place

if TYPE_CHECKING:
    from ray_tracing_hooks._connection import Connection
    from ray_tracing_hooks._ray.process import RayProcess

_lock = threading.RLock()
"""Threads may call hooks at the same time."""

_patches = Patches()
"""What stays in place from the first hook to :func:`stop`."""

_connection_patches = Patches()
"""What is in place while this process is connected to a traced cluster, and no longer."""

_until_connected = Patches()
"""What is in place from a hook that was called too early until this process is connected."""

_connection: Connection | None = None
_exporters: tuple[str, ...] | None = None


def start(exporters: tuple[str, ...] | None = None) -> None:
    """Trace this process. ``exporters`` are those of the hook, or None for those that the settings name.

    Never raises, unless ``RAY_TRACING_STRICT=1``.
    """
    with guarded("setting up tracing") as guard:
        guard.strict = os.environ.get("RAY_TRACING_STRICT", "").strip().lower() in {"1", "true", "yes", "on"}
        with _lock:
            _start(exporters)


def record() -> None:
    """Record and deliver what this process makes by OpenTelemetry; nothing of Ray makes spans because of it.

    Where a hook has been called that is done already. Never raises, unless ``RAY_TRACING_STRICT=1``.
    """
    with guarded("setting up the delivery of spans") as guard:
        guard.strict = os.environ.get("RAY_TRACING_STRICT", "").strip().lower() in {"1", "true", "yes", "on"}
        with _lock:
            from ray_tracing_hooks._ray import process  # noqa: PLC0415  nothing of Ray before the guard

            if _connection is None and process.mode() in {process.DRIVER, process.WORKER}:
                _trace(process.describe(), of_ray=False)


def stop() -> None:
    """Leave this process as if no hook had been called, until one is called again. What has been recorded is delivered.

    Ray's next ``ray.init()`` calls the hook of its cluster again. A worker goes on understanding what its callers send,
    since they may still be traced; a TracerProvider of ours stays where the program has added span processors to it.
    """
    global _connection
    with _lock:
        _disconnecting()
        connection, _connection = _connection, None
        _connection_patches.undo()
        _until_connected.undo()
        _patches.undo()
        # Each is imported only where there was something to do.
        for module, undo in (
            ("ray_tracing_hooks._sdk.instrumentors", "uninstrument"),
            ("ray_tracing_hooks._sdk.bridge", "uninstall"),
            ("ray_tracing_hooks._ray.execution", "forget_executors"),
        ):
            if module in sys.modules:
                with guarded("stopping tracing"):
                    getattr(sys.modules[module], undo)()
        if connection is not None:
            with guarded("delivering the spans of this process"):
                connection.stop()


def places() -> tuple[str, str | None] | None:
    """The folders where the spans of this process's node are: the spool, and that of the local files if there are any.

    None where nothing is recorded.
    """
    return _connection.places() if _connection is not None else None


def _start(exporters: tuple[str, ...] | None) -> None:
    global _exporters  # noqa: PLW0603  the hook is one for the process
    from ray_tracing_hooks._ray import process  # noqa: PLC0415  nothing of Ray before the guard

    if process.moves_objects():
        return  # nothing runs there that has a span
    from ray_tracing_hooks._ray import cluster, native  # noqa: PLC0415  no more than is needed in such a process

    mode = process.mode()
    if _connection is not None:
        _connection.check_exporters(exporters)
        return
    if mode is None:
        _exporters = exporters
        _start_client()
        return
    if not native.is_on() and not cluster.has_hook():
        report(
            "this cluster was started without a tracing hook, so its workers cannot be traced: name the hook where the "
            "cluster is started, in ray start --head --tracing-startup-hook=... or in the ray.init() that starts it"
        )
        return
    _exporters = exporters
    # First what keeps a process in working order whatever fails below: Ray's own tracing off, since it breaks programs.
    connections_are_seen = in_place(native.patch, _patches, _reconnected)
    _connect(mode, hook_runs=cluster.is_connecting())
    # Only now, since a connected worker says nothing that another has said.
    if not connections_are_seen:
        report("this version of Ray connects in another way than those known: a second ray.init() is not traced")


def _start_client() -> None:
    """Trace this process if it is a Ray Client, now or when it becomes one."""
    from ray_tracing_hooks._ray import client_connecting  # noqa: PLC0415

    if in_place(client_connecting.patch, _patches, _client_connected):
        if client_connecting.connected_worker() is not None:
            _client_connected()
            return
        if in_place(client_connecting.patch_local, _until_connected, _connected_too_late):
            return
    _say_not_connected()


def _client_connected() -> None:
    """This process has connected by Ray Client. Ray calls no hook in it."""
    _until_connected.undo()
    with guarded("setting up tracing of this client"), _lock:
        from ray_tracing_hooks._ray import client, client_connecting  # noqa: PLC0415

        if _connection is not None:
            if not _connection.process.is_client or _connection.process.worker.is_connected():
                return  # a process is traced in one connection at a time
            _disconnecting()
            _disconnected()
        worker = client_connecting.connected_worker()
        if worker is not None:
            _trace(client.describe(worker))


def _connected_too_late() -> None:
    """A driver has called the hook, and connects now: if its cluster has that hook, Ray has called it too."""
    _until_connected.undo()
    if _connection is None:
        _say_not_connected()


def _say_not_connected() -> None:
    report(
        "this process is not connected to Ray where the hook is called, so there is nothing to trace: name the hook in "
        "ray.init(_tracing_startup_hook='ray_tracing_hooks:setup') or ray start --tracing-startup-hook=..., "
        "and Ray calls it; only a Ray Client (ray://) calls it by itself"
    )


def _reconnected() -> None:
    """This process has joined a traced cluster again. Ray does not call a hook a second time."""
    if _connection is not None:
        return
    with guarded("setting up tracing"):
        from ray_tracing_hooks._ray import cluster, process  # noqa: PLC0415

        hook = cluster.own_hook()
        if hook is not None:
            hook()  # which may be another one of ours than the first cluster's
        else:
            _connect(process.mode(), hook_runs=False)


def _connect(mode: int | None, *, hook_runs: bool) -> None:
    from ray_tracing_hooks._ray import arguments, cluster, process  # noqa: PLC0415

    # Callers are understood whatever fails below, since they send their context all the same.
    contexts_travel = in_place(arguments.patch, _connection_patches)
    cluster.look(hook_runs=hook_runs)
    if not contexts_travel:
        cluster.all_traced = False  # what carries nothing need not be what may
    if mode in {process.DRIVER, process.WORKER}:
        _trace(process.describe())
    if not contexts_travel:
        report(
            "this version of Ray passes arguments in another way than those known: "
            "tasks and actors are traced where they are called, and not where they run"
        )


def _trace(process: RayProcess, *, of_ray: bool = True) -> None:
    global _connection  # noqa: PLW0603  a process is connected to one cluster at a time
    from ray_tracing_hooks import _settings  # noqa: PLC0415
    from ray_tracing_hooks._connection import Connection  # noqa: PLC0415
    from ray_tracing_hooks._connection.reporter import reporter  # noqa: PLC0415

    _guard.set_reporter(reporter(process))
    settings = _settings.load(os.environ, report)
    # Those of exporters are looked at where spans are sent.
    if any(name.startswith("OTEL_") and not name.startswith("OTEL_EXPORTER_") for name in os.environ):
        from ray_tracing_hooks import _standard  # noqa: PLC0415  most processes have none of them

        _standard.check(os.environ, report)
    _guard.set_strict(settings.strict)
    _connection = Connection(
        process,
        settings,
        os.environ,
        exporters=_exporters,
        of_ray=of_ray,
        patches=_connection_patches,
        lasting_patches=_patches,
        on_disconnecting=_disconnecting,
        on_disconnected=_disconnected,
    )


def _disconnecting() -> None:
    if _connection is not None:
        with guarded("ending the trace of this driver"):
            _connection.end_root_span()


def _disconnected() -> None:
    global _connection
    connection, _connection = _connection, None
    if connection is not None:
        with guarded("delivering the spans of this driver"):
            connection.close()
    _connection_patches.undo()


def _forked() -> None:
    """In a forked child: it has no connection to Ray, and its parent ends what it has begun.

    Spans of the API are recorded, by a spool file of the child's own.
    """
    global _connection
    connection, _connection = _connection, None
    if connection is not None:
        connection.leave_to_parent()


os.register_at_fork(after_in_child=_forked)
