"""Starting the shipper of a spool folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from ray_tracing_hooks._private import inside, open_folder
from ray_tracing_hooks._ship.environment import is_of_delivery, of_delivery
from ray_tracing_hooks._ship.files import take_lock
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._spool.inherited import being_opened

_PATIENCE = 30.0
_MODULE = "ray_tracing_hooks._ship"


def ensure_running(
    spool_dir: str, plan: ShipPlan, environ: Mapping[str, str] = os.environ, *, patient: bool = False
) -> bool:
    """Start a shipper for this spool folder unless one runs or is being started. True if this call started it.

    ``plan`` counts if the folder has none yet, and of ``environ`` the variables that say how to deliver. Takes a few
    milliseconds, and does not wait until the shipper is up: a :func:`~ray_tracing_hooks._ship.flush.flush` does. Raises
    OSError where the folder or the process cannot be made. With ``patient`` nothing is started within half a minute of
    the last start: a shipper that ends at once is not started again and again by all processes of a node.
    """
    with being_opened(spool_dir):
        folder = open_folder(spool_dir)
        try:
            return _start_unless_running(spool_dir, inside(folder), plan, environ, patient=patient)
        finally:
            os.close(folder)


def _start_unless_running(
    spool_dir: str, within: str, plan: ShipPlan, environ: Mapping[str, str], *, patient: bool
) -> bool:
    """As above, with ``within`` for the files of the folder: a path that nobody can lead elsewhere."""
    lock = take_lock(within)
    if lock is None:
        return False
    try:
        # The lock's file has something in it once a shipper has been started, and its time is when.
        last = os.fstat(lock)
        if patient and last.st_size and 0 <= time.time() - last.st_mtime < _PATIENCE:
            return False
        os.pwrite(lock, b"started", 0)
        try:
            ShipPlan.load(within)
        except (OSError, ValueError):
            plan.store(within)
        _start(os.path.abspath(spool_dir), lock, environ)
    finally:
        # The shipper has inherited the lock; this process only lets go of its own descriptor.
        os.close(lock)
    return True


def _start(spool_dir: str, lock: int, environ: Mapping[str, str]) -> None:
    import subprocess  # noqa: PLC0415  most processes find a shipper running

    # Ray kills the children of a worker that it ends. The shell is a child for a millisecond, and its own child then
    # belongs to init. `subprocess` neither runs fork handlers (gRPC has some) nor hands down descriptors.
    shipper = [sys.executable, "-m", _MODULE, "--lock", str(lock), spool_dir]
    intermediate = subprocess.Popen(  # noqa: S603  the arguments are ours
        ["/bin/sh", "-c", '"$@" &', "sh", *shipper],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={
            **{name: value for name, value in os.environ.items() if not _is_left_behind(name)},
            **of_delivery(environ),
            "PYTHONPATH": os.pathsep.join(_import_path()),
            "PYTHONSAFEPATH": "1",
        },
        pass_fds=(lock,),
        start_new_session=True,
    )
    intermediate.wait()


def _is_left_behind(variable: str) -> bool:
    # What else OTEL_* variables say is meant for the traced program; some wrong values end any import of the API.
    return variable.startswith("OTEL_") or is_of_delivery(variable)


def _import_path() -> list[str]:
    """Where the shipper looks for modules: the standard library, this very package, then what is installed.

    Folders that stand before the standard library (the script's, the current one) are left out, since a module there
    may bear the name of one that the shipper needs; those of ``PYTHONPATH`` come last. Of these, one with a
    ``sitecustomize`` is left out: ``opentelemetry-instrument`` and its like would instrument the shipper too.
    """
    paths = [path for path in sys.path if os.path.isabs(path)]
    library = os.path.dirname(os.__file__)
    first = paths.index(library) if library in paths else len(paths)
    standard = [path for path in paths[first:] if path.startswith(library) and not path.endswith("-packages")]
    installed = [path for path in paths[first:] if path not in standard]
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    own = [] if package in installed else [package]
    extra = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    extra = [path for path in extra if not os.path.exists(os.path.join(path, "sitecustomize.py"))]
    return list(dict.fromkeys([*standard, *own, *installed, *extra]))
