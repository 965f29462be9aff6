"""Keeps a driver of this package, such as that of ``doctor``, out of the traces of the cluster that it connects to.

Wraps, in this process only, what Ray 2.60 calls at the end of ``connect()`` (``_private/worker.py``):
``tracing_helper._enable_tracing``, which switches on Ray's own tracing, and the hook, which is not called while
``ray.__traced__`` is set. The hook may not even be importable here. Also ``listen_error_messages`` of the same file,
which would print what is reported as a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray_tracing_hooks._patching import ABSENT, Patches

NAMESPACE = "_ray_internal_ray_tracing_hooks"
"""That of such drivers. The beginning marks drivers of Ray's own: one that serves a Ray Client makes no root span for
it.
"""


@contextmanager
def untraced() -> Iterator[None]:
    """Connections of this process within this block make no spans and print nothing."""
    import ray  # noqa: PLC0415  only where a cluster is asked
    from ray._private import worker  # noqa: PLC0415
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    patches = Patches()
    patches.set(ray, "__traced__", True, back=getattr(ray, "__traced__", ABSENT))
    patches.wrap(tracing_helper, "_enable_tracing", _nothing)
    patches.wrap(worker, "listen_error_messages", _nothing)
    try:
        yield
    finally:
        patches.undo()


def _nothing(_original: Callable[..., Any]) -> Callable[..., None]:
    def nothing(*_arguments: Any, **_options: Any) -> None:
        """Takes the place of a function of Ray."""

    return nothing
