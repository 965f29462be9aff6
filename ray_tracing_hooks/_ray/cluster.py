"""Whether every worker of this cluster has run the hook, and so understands whatever a call carries.

Ray keeps one hook for a cluster, writes it before the first worker starts, and calls it in each process before the
first task (Ray 2.60 ``_private/node.py``, ``_write_cluster_info_to_kv``; ``_private/worker.py``, end of ``connect()``).
A worker in which it cannot be imported, or raises, ends. That makes all workers alike, except where

- the user calls our hook in a cluster whose own hook is another,
- this process joins such a cluster after a traced one: Ray does not call its hook a second time,
- the hook has been set while the cluster ran: whoever does that also writes :data:`SET_LATE`.
"""

from __future__ import annotations

from ray_tracing_hooks._guard import failed

NAMESPACE = b"tracing"
HOOK = b"tracing_startup_hook"
SET_LATE = b"ray_tracing_hooks_set_late"
"""A key beside Ray's own in the cluster's key-value store: there are processes that the hook was not called in."""

all_traced = False
"""What :func:`look` has found."""

_hook: bytes | None = None


def look() -> None:
    """Find out about the cluster that this process is being connected to; one short call to its head."""
    global all_traced, _hook  # noqa: PLW0603  a process is connected to one cluster at a time
    all_traced = False
    try:
        from ray._private.worker import global_worker  # noqa: PLC0415

        if global_worker.connected:
            return  # It is the user who calls, and not Ray.
        client = global_worker.gcs_client
        found = client.internal_kv_multi_get([HOOK, SET_LATE], NAMESPACE)
    except Exception as error:  # noqa: BLE001  a cluster that cannot be asked is one that we know nothing of
        failed("asking the cluster for its hook", error)
        return
    _hook = _hook or found.get(HOOK)
    all_traced = _hook is not None and found.get(HOOK) == _hook and SET_LATE not in found
