"""What ``enable``, ``disable`` and ``configure`` run on the nodes of a cluster, in actors of their own.

The functions are those of the node's own package. What is set for the cluster is in its key-value store, beside its
hook, where each process finds it that connects later, on any node. All commands store both on the head, under the lock
of the folder from which its processes learn of changes. So of two at the same time, the second one sees the first.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ray_tracing_hooks._connection.changes import control_folder
from ray_tracing_hooks._control.control import EXPORTERS, Control, locked, publish
from ray_tracing_hooks._ops import head
from ray_tracing_hooks._ray.cluster import CONTROL, HOOK, NAMESPACE, SET_LATE
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._safety.private import inside, open_folder

_TIMEOUT = 10
"""Seconds that the head may take."""

_ENDING = 60.0
"""Seconds in which the processes of a command have certainly ended."""


def look() -> dict[str, Any]:
    """What the cluster has set: its ``hook`` (or None), whether it was set ``late``, and its ``control``."""
    found = _worker().gcs_client.internal_kv_multi_get([HOOK, SET_LATE, CONTROL], NAMESPACE, _TIMEOUT)
    hook = found.get(HOOK)
    return {
        "hook": hook.decode("utf-8", "replace") if hook is not None else None,
        "late": SET_LATE in found,
        "control": found.get(CONTROL, b""),
    }


def in_force() -> dict[str, Any]:
    """What is set for the cluster: its ``version``, ``enabled`` and ``until``, and the names of ``variables``."""
    found = Control.decode(_worker().gcs_client.internal_kv_get(CONTROL, NAMESPACE, _TIMEOUT) or b"")
    return {**found._asdict(), "variables": sorted(found.variables)}


def unknown_exporter(value: str) -> str | None:
    """What is wrong with the exporters of this value here; None if all are known."""
    from ray_tracing_hooks._settings.table import load  # noqa: PLC0415  rare
    from ray_tracing_hooks._ship.registry import usable  # noqa: PLC0415  rare

    _, problems = usable(load({EXPORTERS: value}, lambda _problem: None).exporters)
    return problems[0].rpartition("; using ")[0] if problems else None


def store(found: Mapping[str, Any], text: bytes, hook: str | None, timeout: float) -> bool:
    """Set a control and a hook for all processes that connect from now on; False if another command has changed what
    :func:`look` has ``found``. A ``hook`` of None removes that of the cluster.

    Called on the head. Raises TimeoutError if other commands hold the lock for ``timeout`` seconds.
    """
    client = _worker().gcs_client
    with _alone(timeout):
        if look() != found:
            return False
        client.internal_kv_put(CONTROL, text, True, NAMESPACE, _TIMEOUT)
        if hook is None:
            # That some processes have none stays true.
            client.internal_kv_del(HOOK, False, NAMESPACE, _TIMEOUT)
        elif found["hook"] is None:
            # In this order: a process that sees the hook also sees that others have not run it.
            client.internal_kv_put(SET_LATE, b"1", True, NAMESPACE, _TIMEOUT)
            client.internal_kv_put(HOOK, hook.encode(), True, NAMESPACE, _TIMEOUT)
    return True


@contextmanager
def _alone(timeout: float) -> Iterator[None]:
    """Hold the lock of this node's folder. Where the folder cannot be used, the block runs without one, and
    :func:`apply` reports it.
    """
    with ExitStack() as stack:
        try:
            folder = open_folder(_folder())
            stack.callback(os.close, folder)
            stack.enter_context(locked(inside(folder), time.monotonic() + timeout))
        except TimeoutError:
            raise
        except OSError:
            pass
        yield


def processes() -> list[dict[str, Any]]:
    """The drivers and workers of the cluster that live: ``id``, ``node``, ``pid`` and ``is_driver`` of each.

    Without those of commands of this package.
    """
    from ray.core.generated import common_pb2, gcs_pb2  # noqa: PLC0415  only where a cluster is asked

    kinds: Any = common_pb2
    tables: Any = gcs_pb2
    accessor = _accessor()
    rows = map(tables.WorkerTableData.FromString, accessor.get_worker_table())
    found = [
        {
            "id": row.worker_address.worker_id.hex(),
            # The second name is that in older Rays.
            "node": (
                getattr(row.worker_address, "node_id", b"") or getattr(row.worker_address, "raylet_id", b"")
            ).hex(),
            "pid": int(row.pid),
            "is_driver": row.worker_type == kinds.DRIVER,
        }
        for row in rows
        if row.is_alive and row.worker_type in {kinds.DRIVER, kinds.WORKER}
    ]
    of_commands = _of_commands(accessor, tables)  # after the others, so that none of them is missing
    return [each for each in found if each["id"] not in of_commands]


def _of_commands(accessor: Any, tables: Any) -> set[str]:
    """The ids of the processes of commands of this package: their drivers, and the actors that visit nodes."""
    import ray  # noqa: PLC0415  as above
    from ray._private import utils  # noqa: PLC0415

    found = set()
    # Without these arguments, the head asks each driver.
    jobs = accessor.get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    for job in map(tables.JobTableData.FromString, jobs):
        if job.config.ray_namespace != head.COMMAND_NAMESPACE:
            continue
        identity = ray.JobID(job.job_id)
        found.add(utils.compute_driver_id_from_job(identity).hex())
        # The actors of a command that has just ended may still be ending.
        if not job.is_dead or time.time() - job.end_time / 1000 < _ENDING:
            actors = map(tables.ActorTableData.FromString, accessor.get_actor_table(identity, None))
            found |= {actor.address.worker_id.hex() for actor in actors}
    return found


def _accessor() -> Any:
    from ray._private import state as states  # noqa: PLC0415  as above

    # Ray's public functions leave out drivers.
    state: Any = states.state
    connected = getattr(state, "_connect_and_get_accessor", None)
    if connected is not None:
        return connected()
    state._check_connected()  # noqa: SLF001  older Rays
    return state.global_state_accessor


def apply(text: bytes, expected: Collection[str], timeout: float) -> dict[str, str]:
    """Tell the processes of this node, as :func:`~ray_tracing_hooks._control.control.publish` does."""
    return publish(_folder(), Control.decode(text), expected, timeout)


def _folder() -> str:
    """The folder from which the processes of this node learn of changes. Raises OSError if it cannot be used."""
    folder = control_folder(_worker().node.get_session_dir_path())
    if folder is None:
        raise OSError("the folder of this package in Ray's session folder cannot be used")
    return folder


def titles(pids: Collection[int]) -> dict[int, str]:
    """What Ray calls these processes of this node, such as ``ray::Counter``."""
    found = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(4096).rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        is_ray = words[0].startswith(b"ray::")
        found[pid] = (words[0] if is_ray else b" ".join(words))[:80].decode("utf-8", "replace").strip()
    return found


def _worker() -> Any:
    from ray._private.worker import global_worker  # noqa: PLC0415  as above

    return global_worker


_OWN = "_ray_internal_"
"""How the namespaces of Ray's own actors begin."""


def run_hook(hook: str, timeout: float) -> dict[str, str]:
    """Run the hook in actors that have started without it; returns what failed in each, or an empty text.

    Ray lets that be done in actors with a name, such as Serve's. Every actor has a method ``__ray_call__`` that runs a
    function (Ray 2.60 ``actor.py``, ``_modify_class``). It waits for its turn like any other call: an actor that is
    busy for ``timeout`` seconds does not run it, unless it has begun.
    """
    import ray  # noqa: PLC0415  only where a cluster is asked

    found: dict[str, str] = {}
    asked: dict[Any, str] = {}
    for each in ray.util.list_named_actors(all_namespaces=True):
        namespace, name = each["namespace"], each["name"]
        if namespace.startswith(_OWN):
            continue
        try:
            actor: Any = ray.get_actor(name, namespace=namespace)
            asked[actor.__ray_call__.remote(_run_in_actor, hook)] = f"{namespace}:{name}"
        except Exception as error:  # noqa: BLE001  it has just ended, or takes no more calls
            found[f"{namespace}:{name}"] = describe(error)
    done, left = ray.wait(list(asked), num_returns=len(asked), timeout=timeout) if asked else ([], [])
    for reference in done:
        try:
            ray.get(reference)
            found[asked[reference]] = ""
        except Exception as error:  # noqa: BLE001  whatever Ray raises; or the hook cannot be imported there
            found[asked[reference]] = describe(getattr(error, "cause", None) or error)
    for reference in left:
        ray.cancel(reference, recursive=False)
        found[asked[reference]] = f"it was busy for {timeout:g} s"
    return found


def _run_in_actor(_actor: Any, hook: str) -> None:
    """Runs in the actor."""
    startup = sys.modules.get("ray_tracing_hooks._startup")
    if startup is None or not startup.is_called():
        module, _, name = hook.partition(":")
        getattr(importlib.import_module(module), name)()
