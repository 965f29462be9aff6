"""The spools of a node: who writes to them, what is delivered, and what waits; and whether folders take files."""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ray_tracing_hooks._connection.folders import session_folders
from ray_tracing_hooks._safety.private import open_file, open_folder, read_file
from ray_tracing_hooks._settings.table import load
from ray_tracing_hooks._ship.figures import DestinationFigures, Figures, is_reached, read
from ray_tracing_hooks._ship.files import PLAN, STATUS, is_shipper_running
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import takes
from ray_tracing_hooks._ship.stage import label_of
from ray_tracing_hooks._ship.stages import RECORDS
from ray_tracing_hooks._ship.status import Unread, measure
from ray_tracing_hooks._spool.layout import SUFFIX
from ray_tracing_hooks._spool.progress import Progress, decode, file_name
from ray_tracing_hooks._spool.reader import iterate

_PREFIX = 12
"""How many digits of a node's id the name of its spools begins with."""

_CLIENT = "client-"
_COUNTING = 0.5
"""Seconds that counting what waits for one destination may take."""

_STALE_NS = 15 * 10**9
"""Figures that are older than this are out of date if the spool has changed. A shipper that has not touched them for as
long does nothing."""


def spools_of(session: str | None, node_id: str, spool: str | None, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is found of each spool of this node.

    ``session`` is Ray's session folder and ``node_id`` the node, if there is one; ``spool`` is the folder that a traced
    process writes to, or one above. ``request`` may name more folders of spools in ``spool_dirs``. Spools in the folder
    of this process's settings are found too: those of the node, else those of the session.
    """
    folders = [*(session_folders(session) if session else ()), *request.get("spool_dirs", ())]
    if spool:
        folders += [spool, os.path.dirname(spool)]
    paths = list(_spools(folders, node_id))
    shared = load(os.environ, lambda _problem: None).spool_dir
    if shared is not None:
        paths += [path for path in _spools([shared], node_id) if node_id or not session or _is_of(session, path)]
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real not in found:
            found[real] = _look(path)
    return [found[path] for path in sorted(found)]


def waiting(path: str) -> dict[str, int]:
    """How many spans of this spool wait, or a few more, for each of its exporters, as its files say now."""
    segments = list(iterate(path))
    figures = _counted(path, Figures(), segments, 0)
    return {each.exporter: each.waiting for each in figures.destinations if each.signal == "traces"}


def _spools(folders: list[str], node_id: str) -> Iterator[str]:
    for folder in dict.fromkeys(folders):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        if any(name.endswith((SUFFIX, PLAN)) for name in names):
            yield folder
        for name in names:
            path = os.path.join(folder, name)
            is_of_node = not node_id or name.startswith((node_id[:_PREFIX], _CLIENT))
            if is_of_node and os.path.exists(os.path.join(path, PLAN)):
                yield path


def _plan(path: str) -> ShipPlan | None:
    with suppress(OSError, ValueError):
        return ShipPlan.load(path)
    return None


def _is_of(session: str, path: str) -> bool:
    """Whether a spool is of the session with this folder."""
    plan = _plan(path)
    return plan is not None and plan.label.startswith(f"{os.path.basename(session).removeprefix('session_')}-")


def _look(path: str) -> dict[str, Any]:
    """What is found of one spool: its figures, counted here if its shipper does not do it."""
    runs, error = False, None
    try:
        runs = is_shipper_running(path)
    except OSError as failure:
        error = failure.strerror or str(failure)
    figures = read(path)
    segments = list(iterate(path))
    size = sum(_size(each) for _, paths, _ in segments for each in paths)
    stale_ns = time.time_ns() - _STALE_NS
    is_outdated = figures is None or (size != figures.bytes and figures.updated_ns < stale_ns)
    is_stuck = False
    if runs and is_outdated and figures is not None:
        with suppress(OSError):
            is_stuck = os.stat(os.path.join(path, STATUS)).st_mtime_ns < stale_ns
    if figures is None or not runs or is_outdated:
        figures = _counted(path, figures or Figures(), segments, size)
    plan = _plan(path)
    return {
        "path": path,
        "runs": runs,
        "is_stuck": is_stuck,
        "error": error,
        "exporters": list(_exporters(path)),
        "local_dir": plan.settings.local_dir if plan is not None and "local" in plan.exporters else None,
        "figures": asdict(figures),
        "reached": [each.exporter for each in figures.destinations if is_reached(path, figures, each.exporter)],
    }


def _counted(path: str, before: Figures, segments: list[tuple[str, list[str], bool]], size: int) -> Figures:
    """The figures, with what waits now."""
    known = {(each.exporter, each.signal): each for each in before.destinations}
    destinations = []
    for exporter in _exporters(path):
        for signal, kind in RECORDS.items():
            if not takes(exporter, signal):
                continue
            progress = _progress(path, label_of(exporter, signal))
            unread = [
                [
                    Unread(each, progress.read_of(name, int(each.rpartition(".")[0].rpartition(".")[2])), _size(each))
                    for each in paths
                ]
                for name, paths, _ in segments
            ]
            found = measure(unread, kind, _COUNTING)
            if signal.name != "traces" and not found.items:
                continue
            destinations.append(
                replace(
                    known.get((exporter, signal.name), DestinationFigures(exporter=exporter, signal=signal.name)),
                    waiting=found.items,
                    waiting_bytes=found.bytes,
                    is_estimate=found.is_estimate,
                    oldest_ns=found.oldest_ns,
                )
            )
    writers = sum(alive for _, _, alive in segments)
    return replace(before, destinations=tuple(destinations), bytes=size, writers=writers)


def _progress(path: str, label: str) -> Progress:
    with suppress(OSError, ValueError, TypeError, KeyError):
        return decode(read_file(os.path.join(path, file_name(label))))
    return Progress({}, {})


def _exporters(path: str) -> tuple[str, ...]:
    if (plan := _plan(path)) is not None:
        return plan.exporters
    with suppress(OSError, ValueError):
        return tuple(json.loads(read_file(os.path.join(path, PLAN)))["exporters"])
    return ()


def _size(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_size
    return 0


SPOOL, LOCAL = "spool", "local"
"""What folders are for: spans that wait, and the files of the local exporter."""


def folder(what: str, path: str, limit: int) -> dict[str, Any]:
    """What is found of the folder for ``what``: the reason why it takes no files, if any, and the room on its disk.

    It is opened as delivery does, but not created. ``limit`` are the most bytes that its files take.
    """
    found: dict[str, Any] = {"what": what, "path": path, "error": None, "is_full": False, "limit": limit}
    try:
        opened = open_folder(path, make=False, given=True)
    except FileNotFoundError:
        return found | _above(path)
    except OSError as error:
        return found | {"error": error.strerror or str(error)}
    try:
        return found | _room(opened) | _write(opened)
    finally:
        os.close(opened)


def _write(opened: int) -> dict[str, Any]:
    """Whether a file can be written there."""
    name = f".doctor-{secrets.token_hex(4)}"
    try:
        descriptor = open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=opened)
        try:
            os.write(descriptor, bytes(4096))
        finally:
            os.close(descriptor)
    except OSError as error:
        return {"error": error.strerror or str(error), "is_full": error.errno in {errno.ENOSPC, errno.EDQUOT}}
    finally:
        with suppress(OSError):
            os.unlink(name, dir_fd=opened)
    return {}


def _above(path: str) -> dict[str, Any]:
    """The same of the nearest folder that exists above a path: the first span creates the rest."""
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    try:
        opened = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return {"error": f"{above!r} is in the way: {error.strerror}"}
    try:
        if not os.access(above, os.W_OK | os.X_OK):
            is_mounted_so = bool(os.fstatvfs(opened).f_flag & os.ST_RDONLY)
            why = "its disk is read-only" if is_mounted_so else "this user may not write there"
            return {"error": f"it does not exist, and cannot be created in {above!r}: {why}"}
        return _room(opened)
    finally:
        os.close(opened)


def _room(opened: int) -> dict[str, Any]:
    room = os.fstatvfs(opened)
    return {"free": room.f_bavail * room.f_frsize, "size": room.f_blocks * room.f_frsize}
