"""Runs in the program of ``ray-tracing-hooks run``: makes the hook the default of ``_tracing_startup_hook``.

Works in this one process and leaves nothing in its environment, so that child processes are not affected. It reports to
the command by a line of JSON for each connection to Ray.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ray_tracing_hooks._ray.libraries import when_imported
from ray_tracing_hooks._safety.guard import guarded, report
from ray_tracing_hooks._safety.patching import Patches

VARIABLE = "_RAY_TRACING_HOOKS_RUN"
"""Passes an :class:`LaunchInfo` from the command to the program's interpreter, which removes it at startup."""


class LaunchInfo(NamedTuple):
    """What the command has changed in the environment, for the program to restore, and where to write notes."""

    notes: str
    python_path: str | None
    """``PYTHONPATH`` of the user."""
    local_dir: str | None
    """``RAY_TRACING_LOCAL_DIR`` of the user."""
    has_own_folder: bool
    """Whether ``RAY_TRACING_LOCAL_DIR`` is a folder that the command has chosen for this run."""

    def __str__(self) -> str:
        return json.dumps(self)


class Note(NamedTuple):
    """One connection of the program to Ray."""

    address: str = ""
    is_own: bool = False
    """Whether the program has started the cluster that it is connected to."""
    is_client: bool = False
    has_hook: bool = False
    """Whether the cluster has a tracing hook."""
    is_traced: bool = False
    """Whether this package traces the program."""
    hook: str = ""
    """The hook of the cluster, if this package traces the program."""
    exporters: tuple[str, ...] = ()
    spool: str = ""
    local_dir: str = ""
    """The folder of local files on this process's node; empty without any."""
    trace_id: str = ""
    """The trace id of the root span, if any."""
    problem: str = ""
    """Why the hook could not be set."""


def write(path: str, note: Note) -> None:
    """Append a note atomically; other processes write to the same file. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(file, json.dumps(note._asdict()).encode() + b"\n")
    finally:
        os.close(file)


def read(path: str) -> Iterator[Note]:
    """The notes, in the order in which they were written."""
    with open(path, "rb") as file:
        for line in file:
            with suppress(ValueError, TypeError):  # a partial line of a program that was killed while writing
                fields: dict[str, Any] = json.loads(line)
                yield Note(**{**fields, "exporters": tuple(fields["exporters"])})


HOOK = "ray_tracing_hooks:setup"
"""The hook whose exporters the settings name."""

_launch: LaunchInfo | None = None
_sets_hook = False
"""Whether this process has started a cluster with the hook."""


def begin() -> None:
    """Restore the user's environment, and wait for the program to import Ray."""
    global _launch  # noqa: PLW0603  one for the process
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return
    _launch = LaunchInfo(*json.loads(given))
    _put_back("PYTHONPATH", _launch.python_path)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_path")
    sys.path[:] = [path for path in sys.path if path != folder]
    sys.path_importer_cache.pop(folder, None)
    when_imported(Patches(), "ray", _ray_is_imported)


def _put_back(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


def _ray_is_imported() -> None:
    """Ray 2.60 ``_private/worker.py`` ``init()`` makes RayParams to start a cluster, and to join one."""
    try:
        from ray._private import worker  # noqa: PLC0415  only once the program imports Ray
        from ray._private.parameter import RayParams  # noqa: PLC0415
        from ray.util.client import _ClientContext  # noqa: PLC0415

        RayParams.__init__ = _with_hook(RayParams.__init__)
        worker._post_init_hooks.append(_connected)  # noqa: SLF001
        _ClientContext.connect = _noting(_ClientContext.connect)
    except (ImportError, AttributeError) as error:
        _note(Note(problem=f"this version of Ray is not supported ({error})"))


def _with_hook(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        global _sets_hook  # noqa: PLW0603  one for the process
        original(self, *args, **kwargs)
        if getattr(self, "gcs_address", None):
            _join()
        elif getattr(self, "tracing_startup_hook", HOOK) is None:
            self.tracing_startup_hook = HOOK
            _sets_hook = True

    return make


def _join() -> None:
    """Write where the processes of a joined cluster write, so that its spans are in one folder."""
    if _launch is not None and _launch.has_own_folder and not _sets_hook:
        _put_back("RAY_TRACING_LOCAL_DIR", _launch.local_dir)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Call the hook in a Ray Client, the one process in which Ray does not."""

    @functools.wraps(original)
    def connect(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        with guarded("tracing this client"):
            from ray_tracing_hooks import _startup, setup  # noqa: PLC0415  only where there is a client

            if not _startup.is_called():
                _join()
                setup()
            _connected(is_client=True)
        return result

    return connect


def _connected(*, is_client: bool = False) -> None:
    with guarded("noting a connection for `ray-tracing-hooks run`"):
        from ray_tracing_hooks import _startup  # noqa: PLC0415  only where Ray is used

        connection = _startup.connection()
        if connection is not None:
            process, delivery = connection.process, connection.delivery
            delivery.says_next = False  # the command does
            folders = delivery.folders()
            _note(
                Note(
                    address=process.gcs_address,
                    is_own=process.owns_cluster,
                    is_client=process.is_client,
                    has_hook=True,
                    is_traced=True,
                    hook=connection.hook,
                    exporters=delivery.plan.exporters,
                    spool=delivery.spool or "",
                    local_dir=(folders[1] if folders is not None else None) or "",
                    trace_id=connection.trace_id(),
                )
            )
        elif is_client:
            _note(Note(is_client=True))
        else:
            _untraced()


def _untraced() -> None:
    from ray_tracing_hooks._ray import cluster, process  # noqa: PLC0415  as above

    own = process.describe()
    has_hook = cluster.has_hook()
    if not has_hook and not own.owns_cluster:
        report(
            f"this program is not traced: it has joined the cluster at {own.gcs_address}, which was started without a "
            "tracing hook. Name one where the cluster is started (ray start --head "
            "--tracing-startup-hook=ray_tracing_hooks.local:setup), or let the program start its own cluster"
        )
    _note(Note(address=own.gcs_address, is_own=own.owns_cluster, has_hook=has_hook))


def _note(note: Note) -> None:
    if _launch is not None:
        write(_launch.notes, note)
