"""The cause of a process's death, as far as Ray's logs on its node show it reliably.

Each worker and driver has its own log, ``python-core-<type>-<worker id>_<pid>.log``, in which Ray writes a fatal
signal, and why it tells a worker to exit, before the process ends. The raylet's log has the workers that its memory
monitor kills, also beforehand. A plain SIGKILL or ``os._exit()`` is not logged.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import decode_resource
from ray_tracing_hooks._formats.protobuf import FormatError

WORKER, _DRIVER = "worker", "driver"

_OWN_TAIL, _RAYLET_TAIL = 64 * 1024, 1024 * 1024
"""How many bytes at the end of a log are read: a raylet's log covers many workers."""

_MOST_TEXT = 300

# Ray 2.60: src/ray/util/logging.cc, raylet_ipc_client.cc, core_worker.cc and node_manager.cc. Older versions write the
# same in these parts.
_WORD = re.compile(
    rb"\*\*\* (SIG[A-Z]+) received at "
    rb"|Disconnect, exit_type=\w+, exit_detail=([^\n]+)"
    rb"|because (the local raylet failed)"
)
_REST = re.compile(r"(, has creation_task_exception| Owner Id: ).*")
_OUT_OF_MEMORY = rb"disconnect_type=4\b[^\n]* worker_id="
_FORCE_CANCELLED = "force ray.cancel"


class Death(NamedTuple):
    """The ``error.type`` and the status description of an interrupted span."""

    error_type: str
    message: str


def cause_of_death(logs: str | None, pid: str, resources: Iterable[bytes]) -> Death:
    """The death of the process ``pid`` that had one of these encoded Resources.

    ``logs`` is the log folder of its Ray session. If the logs do not show a cause, or it is None, the death has none.
    """
    kind, worker_id = identity(resources)
    death = Death(names.DRIVER_DIED, "driver died") if kind == _DRIVER else Death(names.WORKER_DIED, "worker died")
    if logs is None or not worker_id:
        return death
    own_log = _tail(f"{logs}/python-core-{kind}-{worker_id}_{pid}.log", _OWN_TAIL)
    cause = _logged_cause(own_log, is_driver=kind == _DRIVER)
    # The memory monitor sends SIGTERM a moment before SIGKILL.
    if (not cause or "SIGTERM" in cause) and _is_out_of_memory(logs, worker_id):
        return Death(names.OUT_OF_MEMORY, f"{death.message}: the node ran low on memory")
    if not cause:
        return death
    error_type = names.TASK_CANCELLED if _FORCE_CANCELLED in cause else death.error_type
    return Death(error_type, f"{death.message}: {cause}")


def _logged_cause(log: bytes, *, is_driver: bool) -> str:
    """The last cause in the log of the process itself."""
    for signal, detail, raylet in reversed(_WORD.findall(log)):
        if signal or not is_driver:  # a driver keeps running after it has disconnected, or lost its raylet
            text = (signal or detail or raylet).decode("utf-8", "replace")
            return _REST.sub("", text)[:_MOST_TEXT]
    return ""


def _is_out_of_memory(logs: str, worker_id: str) -> bool:
    killed = re.compile(_OUT_OF_MEMORY + worker_id.encode())
    return any(killed.search(_tail(path, _RAYLET_TAIL)) for path in glob.glob(f"{glob.escape(logs)}/raylet*.out"))


def identity(resources: Iterable[bytes]) -> tuple[str, str]:
    """``worker`` or ``driver``, and the worker id, from the first encoded Resource that has them."""
    for resource in resources:
        with contextlib.suppress(FormatError):
            attributes = decode_resource(resource)
            kind, worker_id = (attributes.get(key) for key in (names.RESOURCE_PROCESS_TYPE, names.RESOURCE_WORKER_ID))
            if kind in {WORKER, _DRIVER} and isinstance(worker_id, str) and worker_id.isalnum():
                return str(kind), worker_id
    return "", ""


def _tail(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""
