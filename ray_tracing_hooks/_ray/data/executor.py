"""What Ray's executor keeps of its operators (Ray 2.60 ``streaming_executor_state.py``, ``OpState``)."""

from __future__ import annotations

from typing import Any


def state_of(op: Any, executor: Any) -> Any:
    """The state of an operator; None before the executor has set it up."""
    topology = getattr(executor, "_topology", None)
    return topology.get(op) if topology is not None else None
