"""Starts the shipper of a spool folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._safety.private import BeingOpened, inside, open_folder, write_atomically
from ray_tracing_hooks._settings.values import copied
from ray_tracing_hooks._ship.files import RETIRED, successor_of, take_lock
from ray_tracing_hooks._ship.plan import ShipPlan, is_of_delivery, of_delivery

_PATIENCE = 30.0

_ORPHANED = '"$@" &'
"""How the shell starts the shipper: as an orphan at once."""

_MODULE = "ray_tracing_hooks._ship"

_ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_ARENA_MAX": "1",
}
"""Settings of glibc, which other C libraries ignore. By default it returns the memory of each portion to the kernel and
asks for it again for the next one, which takes as long as reading the portion; and each thread keeps memory of its own.
"""


def ensure_running(
    spool_dir: str, plan: ShipPlan, environ: Mapping[str, str] = os.environ, *, patient: bool = False
) -> bool:
    """Start a shipper for this spool folder unless one is running or starting. True if this call started it.

    ``plan`` is used if the folder has none yet, and of ``environ`` only the variables that say how to deliver. If the
    folder has a plan for other addresses, nothing is started. Takes a few milliseconds, and does not wait until the
    shipper is up; :func:`~ray_tracing_hooks._ship.flush.flush` does. Raises OSError if the folder or the process cannot
    be created. With ``patient``, nothing is started within half a minute of the last start, so that the processes of a
    node do not keep restarting a shipper that ends at once.
    """
    with BeingOpened(spool_dir):
        folder = open_folder(spool_dir)
        try:
            return _start_unless_running(spool_dir, inside(folder), plan, environ, patient=patient)
        finally:
            os.close(folder)


def retire(spool_dir: str, following: str | None = None) -> None:
    """Say that the processes of this node write to the spool ``following`` from now on: the shipper here ends when it
    has delivered everything. If it cannot, the shipper of ``following`` does. Never raises; a process that writes to it
    nevertheless starts a shipper again.
    """
    parent, name = os.path.split(spool_dir)
    is_beside = following is not None and os.path.dirname(following) == parent
    successor = os.path.basename(following or "") if is_beside else ""
    with contextlib.suppress(OSError):
        # What has been left for this one is now for that one.
        of_node = name.rpartition("-")[0]
        near = [each for each in os.listdir(parent) if each.startswith(of_node) and each != name]
        earlier = [each for each in near if successor_of(os.path.join(parent, each)) == name]
        for each in (name, *earlier):
            folder = open_folder(os.path.join(parent, each), make=False)
            try:
                write_atomically(os.path.join(inside(folder), RETIRED), successor.encode())
            finally:
                os.close(folder)


def reinstate(spool_dir: str, plan: ShipPlan) -> None:
    """Undo :func:`retire`, with the plan of its processes, which another shipper may have changed. Never raises."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(spool_dir, RETIRED))
    with contextlib.suppress(OSError, ValueError):
        if ShipPlan.load(spool_dir) != plan:
            plan.store(spool_dir)


def _start_unless_running(
    spool_dir: str, within: str, plan: ShipPlan, environ: Mapping[str, str], *, patient: bool
) -> bool:
    """Start a shipper unless one is running. ``within`` is a path that always leads to the open folder."""
    lock = take_lock(within)
    if lock is None:
        return False
    try:
        # The lock file is empty until a shipper has been started; its mtime is the time of the last start.
        last = os.fstat(lock)
        if patient and last.st_size and 0 <= now_ns() / 1e9 - last.st_mtime < _PATIENCE:
            return False
        try:
            if ShipPlan.load(within).environment != plan.environment:
                return False  # the shipper of another spool has taken this one over
        except (OSError, ValueError):
            plan.store(within)
        os.pwrite(lock, b"started", 0)
        _start(os.path.abspath(spool_dir), lock, environ)
    finally:
        # The shipper has inherited the lock; this closes only the descriptor of this process.
        os.close(lock)
    return True


def _start(spool_dir: str, lock: int, environ: Mapping[str, str]) -> None:
    import subprocess  # noqa: PLC0415  in most processes a shipper is already running

    # Ray kills the children of a worker when it ends. The shell is a child for only a millisecond, and the shipper, its
    # child, then belongs to init. `subprocess` neither runs fork handlers (gRPC has some) nor passes on descriptors.
    shipper = [sys.executable, "-m", _MODULE, "--lock", str(lock), spool_dir]
    subprocess.run(  # noqa: S603  the arguments are ours
        ["/bin/sh", "-c", _ORPHANED, "sh", *shipper],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**environment(environ), **_ALLOCATOR},
        pass_fds=(lock,),
        start_new_session=True,
        check=False,
    )


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process that delivers, as ``environ`` configures it."""
    return {
        # The other OTEL_* variables are for the traced program; some invalid values make any import of the API fail.
        **{
            name: value
            for name, value in copied(os.environ).items()
            if not name.startswith("OTEL_") and not is_of_delivery(name)
        },
        **of_delivery(environ),
        # A settings file may say so, which a shipper does not read.
        _compiled.VARIABLE: str(int(_compiled.use.is_on)),
        "PYTHONPATH": os.pathsep.join(_import_path()),
        "PYTHONSAFEPATH": "1",
    }


def _import_path() -> list[str]:
    """The import path of the shipper: the standard library, this package, then the installed packages.

    Folders before the standard library (the script's, the current one) are left out, since a module there may shadow
    one that the shipper needs; those of ``PYTHONPATH`` come last. Among these, a folder with a ``sitecustomize`` is
    left out: ``opentelemetry-instrument`` and the like would instrument the shipper too.
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
