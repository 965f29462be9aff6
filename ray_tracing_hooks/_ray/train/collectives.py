"""The collective functions of Ray Train, such as ``ray.train.collective.barrier``: wraps what they call (Ray 2.60
``train/v2/_internal/execution/collective_impl.py``).
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray.library_calls import spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.steps import begin_step, end_step, step
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches) -> bool:
    """Wrap the collective functions; False if this Ray lacks one of them."""
    from ray.train.v2._internal.execution import collective_impl  # noqa: PLC0415  imported by now

    return patches.wrap(collective_impl, "barrier", spanned(_begin_barrier, _end)) and patches.wrap(
        collective_impl, "broadcast_from_rank_zero", spanned(_begin_broadcast, _end)
    )


def _begin_barrier(active: Tracing) -> Begun:
    return _begin(active, "barrier")


def _begin_broadcast(
    active: Tracing, _data: Any, *, caller_method_name: str = "broadcast_from_rank_zero", **_others: Any
) -> Begun:
    return _begin(active, caller_method_name.rpartition(".")[2])


def _begin(active: Tracing, name: str) -> Begun:
    from ray.train.v2._internal.execution.context import get_train_context  # noqa: PLC0415  as above

    context = get_train_context()
    return begin_step(active, names.TRAIN_COLLECTIVES + name, context, context.get_world_rank())


def _end(span: RecordedSpan, error: BaseException | None) -> None:
    # They do nothing but wait for the others.
    step.barrier = monotonic() - step.began
    end_step(span, error)
