"""The training loop of a rank: wraps ``ThreadRunner.run`` (Ray 2.60
``train/v2/_internal/execution/worker_group/thread_runner.py``), which starts it in a thread of its own. The loop runs
within a span below the attempt that asked for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.library_calls import spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.failures import end
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches) -> bool:
    """Wrap training loops; False if this Ray lacks the wrapped method."""
    from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner  # noqa: PLC0415  imported by now

    return patches.wrap(ThreadRunner, "run", _run)


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(runner: Any, target: Callable[[], Any]) -> Any:
        if tracing.active is not None:
            try:
                target = spanned(functools.partial(_begin, context=get_current()), end)(target)
            except Exception as error:  # noqa: BLE001  the user's loop must run whatever fails here
                failed("tracing a training loop", error)
        try:
            return original(runner, target)
        except BaseException as error:
            hide_frame(error)
            raise

    return run


def _begin(active: Tracing, context: Context) -> Begun:
    from ray.train.v2._internal.execution.context import get_train_context  # noqa: PLC0415  as above

    train_context = get_train_context()
    return begin_rank(active, train_context.train_run_context.run_config.name, train_context, context)


def begin_rank(active: Tracing, run: Any, train_context: Any, context: Context) -> Begun:
    """Begin the span of this process's rank, given its context in Ray Train."""
    attributes = {
        names.RAY_TRAIN_WORLD_RANK: train_context.get_world_rank(),
        names.RAY_TRAIN_WORLD_SIZE: train_context.get_world_size(),
        names.RAY_TRAIN_LOCAL_RANK: train_context.get_local_rank(),
        names.RAY_TRAIN_NODE_RANK: train_context.get_node_rank(),
        **_held(active),
    }
    begun = library_spans.begin(active, names.run_name(run, names.TRAIN_WORKER), context, attributes)
    if begun[1] is not None and active.memory is not None:
        from ray_tracing_hooks._ray.memory import measure  # noqa: PLC0415  opt-in

        measure(begun[1], active.memory)
    return begun


def _held(active: Tracing) -> dict[str, Any]:
    """The resources of this worker; nothing in a driver."""
    return active.process.of_task() if not active.process.is_driver else {}
