"""What a rank reports: wraps ``TrainContext.report`` and the parts of it that take time (Ray 2.60
``train/v2/_internal/execution/context.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.library_calls import spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.steps import begin_step, end_step, of_metrics, step
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.patching import Patches

_MOST_TRANSFERS = 100
"""Bounds the transfers that are known to follow, in case one never does."""

_transfers: dict[str, Context] = {}
"""The contexts of reports whose checkpoints may be transferred in another thread, by the name of the folder."""


def patch(patches: Patches) -> bool:
    """Wrap reports; False if this Ray lacks one of these methods."""
    from ray.train.v2._internal.execution.context import TrainContext  # noqa: PLC0415  imported by now

    return (
        patches.wrap(TrainContext, "report", spanned(_begin, end_step))
        and patches.wrap(TrainContext, "_sync_checkpoint_dir_name_across_ranks", _synchronizing)
        and patches.wrap(TrainContext, "_upload_checkpoint", spanned(_begin_transfer))
        and patches.wrap(TrainContext, "_wait_then_report", _handing_over)
    )


def _begin(active: Tracing, context: Any, metrics: Any, *_args: Any, **_others: Any) -> Begun:
    return begin_step(active, names.TRAIN_REPORT, context, context.get_world_rank(), of_metrics(active, metrics))


def _synchronizing(original: Callable[..., Any]) -> Callable[..., Any]:
    """At the barrier, all ranks learn the name of the folder for the checkpoint."""

    @functools.wraps(original)
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        began = monotonic()
        try:
            folder = original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            step.barrier = monotonic() - began
        if tracing.active is not None:
            if len(_transfers) >= _MOST_TRANSFERS:
                _transfers.clear()
            _transfers[folder] = get_current()
        return folder

    return synchronize


def _begin_transfer(
    active: Tracing, _context: Any, folder: str, _metrics: Any, checkpoint: Any = None, *_args: Any, **_others: Any
) -> Begun | None:
    around = _transfers.pop(folder, None) or get_current()
    if not checkpoint:
        return None
    attributes = {names.RAY_TRAIN_CHECKPOINT: folder}
    if step.span is not None:
        step.span.set_attributes(attributes)
    return library_spans.begin(active, names.TRAIN_TRANSFER, around, attributes)


def _handing_over(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def hand_over(*args: Any, **kwargs: Any) -> Any:
        began = monotonic()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            step.handover = monotonic() - began

    return hand_over
