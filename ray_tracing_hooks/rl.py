"""Trajectories of reinforcement learning, as spans that know their step and sample.

    from ray_tracing_hooks import names, rl

    with rl.trajectory(step=12, sample=7, rollout=3) as span:
        reward = play(prompt)
        span.set_attribute(names.RAY_RL_OUTCOME, "accepted" if reward > 0 else "rejected")

This works in any framework: call it where one trajectory is made, in a task, an actor or an ``asyncio`` task. Calls,
generations and requests of the block are below its span.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks._safety.guard import failed, guarded

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.trace import Span

__all__ = ["trajectory"]


def trajectory(
    step: int, sample: int | str, rollout: int = 0, *, staleness: int | None = None, share: float = 1.0
) -> AbstractContextManager[Span]:
    """Record the ``with`` block as one trajectory.

    ``step`` is the training step that it is for, ``sample`` the prompt or task, and ``rollout`` its number among those
    of this sample. ``staleness`` is the number of steps by which the weights that generate it are older.

    The block gets the span. An exception of the block is recorded and makes it an error. The span is always recorded if
    its trace is. ``share``, from 0 to 1, is for what is below it: for so many pairs of step and sample, it is recorded
    too. All processes choose the same ones, so a chosen sample has all its rollouts.

    Without tracing, the block runs with a span that records nothing. It never raises.
    """
    return _Trajectory({"step": step, "sample": sample, "rollout": rollout, "staleness": staleness}, share)


class _Trajectory(AbstractContextManager[Any]):
    """The ``with`` block; a class, since a generator would be in the tracebacks of its exceptions."""

    def __init__(self, given: dict[str, Any], share: float) -> None:
        self._given, self._share = given, share
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> Span:
        from opentelemetry import trace  # noqa: PLC0415  heavy

        try:
            self._begin()
        except Exception as error:  # noqa: BLE001  the block must run whatever fails here
            failed("recording a trajectory", error)
        return self._span or trace.INVALID_SPAN

    def _begin(self) -> None:
        from ray_tracing_hooks import names  # noqa: PLC0415  as above
        from ray_tracing_hooks._ray import library_spans, tracing  # noqa: PLC0415  as above
        from ray_tracing_hooks._record.current import attach, get_current  # noqa: PLC0415  as above

        active = tracing.active
        if active is None:
            return
        keys = {
            names.RAY_RL_STEP: self._given["step"],
            names.RAY_RL_SAMPLE: str(self._given["sample"]),
            names.RAY_RL_ROLLOUT: self._given["rollout"],
        }
        if self._given["staleness"] is not None:
            keys[names.RAY_RL_STALENESS] = self._given["staleness"]
        is_chosen = _is_chosen(self._given["step"], self._given["sample"], self._share)
        context, self._span = library_spans.begin(active, names.RL_TRAJECTORY, get_current(), keys)
        if self._span is not None and not is_chosen:
            context = library_spans.without_children(context, self._span)
        self._token = attach(context)

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._token is None:
            return
        from ray_tracing_hooks._ray.library_spans import end_call  # noqa: PLC0415  as above
        from ray_tracing_hooks._record.current import detach  # noqa: PLC0415  as above

        detach(self._token)
        if self._span is not None:
            with guarded("ending a trajectory"):
                end_call(self._span, error)


def _is_chosen(step: int, sample: int | str, share: float) -> bool:
    digest = hashlib.sha256(f"{step}/{sample}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
