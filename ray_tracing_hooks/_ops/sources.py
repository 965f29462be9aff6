"""What there is to collect on one machine: the local files of a session, and spans that are left in spools.

Its functions run on the machine, in a process of their own, and return plain data.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ray_tracing_hooks._connection.folders import FOLDER, session_folders
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._ops.spools import spools_of, waiting
from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks._safety.private import open_file, open_folder
from ray_tracing_hooks._settings.table import load
from ray_tracing_hooks._ship.flush import flush
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.replay import Replay, held
from ray_tracing_hooks._spool.reader import iterate, segments

_SUBFOLDERS = ("", "logs", "metrics")
_LEFT = "left"
"""The folder, beside the spools, for spans that wait there and are not to come into the folder of local files: those of
other exporters, and those that a shipper may still write there.
"""

_SOON = 2.0
"""Seconds in which a destination that works gets what waits."""


def prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Have what is recorded written to files, and list them.

    ``request`` has ``session_dir``, ``node_id`` (empty for all nodes of this machine), ``everything`` to list files of
    other sessions too, and ``timeout``, the seconds in which there has to be an answer. Returns ``files``, a list of
    objects with ``path``, ``name`` and ``size``, and ``problems``, a list of sentences.
    """
    until = time.monotonic() + request["timeout"] / 2  # the files are listed, whatever cannot be written to them
    problems: list[str] = []
    session = request["session_dir"]
    folders = {load(os.environ, lambda _problem: None).in_session(session).local_dir}
    for spool in spools_of(session, request["node_id"], request.get("spool"), request):
        path, is_local = spool["path"], spool["local_dir"] is not None
        if is_local:
            folders.add(spool["local_dir"])
        runs = spool["runs"]
        left = _flushed(path, until if is_local else min(until, time.monotonic() + _SOON)) if runs else waiting(path)
        if is_local and runs:
            if left.get("local"):
                problems.append(f"{left['local']:,} spans of {path} have not been written to files yet")
        elif any(left.values()):
            try:
                folder, lost = _write_left(path, session, max(1.0, until - time.monotonic()), runs=runs)
                folders.add(folder)
                problems += lost
            except (OSError, ValueError, TracingError) as error:
                problems.append(f"spans are left in {path}: {error}")
    wanted = None if request["everything"] else os.path.basename(session)
    files = [found for folder in sorted(folders) for found in _files(folder, wanted)]
    return {"files": files, "problems": problems}


def is_session(folder: str) -> bool:
    """Whether this is the session folder of a cluster, by its name, or by the folders of this package in it."""
    return os.path.basename(folder).startswith("session_") or any(map(os.path.isdir, session_folders(folder)))


def chunk(path: str, offset: int, size: int) -> bytes:
    """A part of a file; shorter at its end. Raises OSError."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def _files(folder: str, session: str | None) -> Iterator[dict[str, Any]]:
    """The files of spans, log records, metrics and task states in a folder, of one session or of all."""
    for sub in _SUBFOLDERS:
        inside = os.path.join(folder, sub) if sub else folder
        with suppress(OSError):
            for name in sorted(os.listdir(inside)):
                path = os.path.join(inside, name)
                if _is_of(name, session) and os.path.isfile(path) and not os.path.islink(path):
                    yield {"path": path, "name": f"{sub}/{name}" if sub else name, "size": os.path.getsize(path)}


def _is_of(name: str, session: str | None) -> bool:
    if name.startswith("."):
        return False
    if session is None:
        return name.endswith((".jsonl", ".jsonl.gz")) or (name.startswith("task-states-") and name.endswith(".ndjson"))
    label = re.sub(r"[^\w.@+-]", "_", session.removeprefix("session_"))
    return (name.startswith(f"{label}-") and name.endswith(".jsonl")) or name == task_states.file_name(session)


def _is_in_use(spool: str) -> bool:
    return any(lives for _, _, lives in iterate(spool))


def _flushed(spool: str, until: float) -> dict[str, int]:
    """Have the shipper of a spool deliver what waits; returns how many spans still do, for each exporter.

    ``until`` is a value of ``time.monotonic()``.

    It does not wait for an exporter that fails as soon as the local one has all.
    """
    while True:
        timeout = min(_SOON, max(0.1, until - time.monotonic()))
        left = {} if flush(spool, timeout).done else waiting(spool)
        if not any(left.values()) or left.get("local") == 0 or time.monotonic() > until:
            return left


def _takes_files(folder: str) -> bool:
    """Whether this process can write to a folder, which is made if it is not there."""
    try:
        os.close(open_folder(folder, given=True))
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _write_left(spool: str, session: str, timeout: float, *, runs: bool) -> tuple[str, list[str]]:
    """Write what waits in a spool to local files; the spool stays as it is. Returns their folder, and what was lost.

    If its shipper ``runs``, it may deliver the same spans later, to other destinations. A later call writes only what
    has been added since. Raises TracingError, OSError or ValueError.
    """
    plan = ShipPlan.load(spool)
    # Not where a shipper that is started later writes the same spans.
    to_local_files = "local" in plan.exporters and not _is_in_use(spool) and _takes_files(plan.settings.local_dir)
    folder = plan.settings.local_dir if to_local_files else os.path.join(session, FOLDER, _LEFT)
    plan = plan._replace(exporters=("local",), log_records=False).with_settings(local_dir=folder, metrics=False)
    problems = Problems()
    with held(spool, is_spool=not runs):
        paths = [path for pairs in segments(spool).values() for _, path in pairs]
        if paths:
            Replay(spool, sorted(paths), plan, {}, problems).run(timeout)
    return folder, problems.take_unreported()
