"""Switches Ray's own tracing off, and keeps it off.

Ray sets ``_global_is_tracing_enabled`` again at every ``ray.init`` that joins a traced cluster, whether or not it calls
the hook again (Ray 2.60 ``_private/worker.py``, end of ``connect()``; ``util/tracing/tracing_helper.py``,
``_enable_tracing``). The wrapper keeps it off, and reports that the cluster is traced.

Undoing the patches restores this: if our hook was the cluster's, Ray's own tracing is off, as before ``ray.init``; if
the user called it in a cluster with another hook, the previous state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._ray import cluster
from ray_tracing_hooks._safety.patching import ABSENT, Patches


def patch(patches: Patches, on_traced_cluster: Callable[[], None]) -> bool:
    """Switch Ray's own tracing off; ``on_traced_cluster`` is called at each later connection to a traced cluster."""
    import ray  # noqa: PLC0415
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    def enable(_original: Callable[..., Any]) -> Callable[..., Any]:
        def _enable_tracing() -> None:
            on_traced_cluster()

        return _enable_tracing

    connecting = cluster.is_connecting()
    if connecting:
        # Ray does the same when the hook returns. Removed, so that Ray's next ray.init() calls a hook again.
        patches.set(ray, "__traced__", True, back=ABSENT)
    # Only in versions of Ray that have this switch.
    if hasattr(tracing_helper, "_global_is_tracing_enabled"):
        was_on = tracing_helper._global_is_tracing_enabled  # noqa: SLF001
        patches.set(tracing_helper, "_global_is_tracing_enabled", False, back=was_on and not connecting)
        if connecting:
            # Only Ray's own tracing uses it, and up to Ray 2.55 it is in the pickles of actor classes. If the cluster
            # has another hook, Ray's tracing may be active in other processes and send its context here.
            patches.set(tracing_helper, "_opentelemetry", None, back=None)
    return patches.wrap(tracing_helper, "_enable_tracing", enable)


def is_on() -> bool:
    """Whether Ray has found that this process's cluster has a tracing hook; Ray sets this just before it calls the
    hook.
    """
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    return bool(getattr(tracing_helper, "_global_is_tracing_enabled", True))
