"""The flags of a span in the page: its kind, its state and what else colours it, in one byte.

``assets/figures.js`` has the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ray_tracing_hooks._insight.model.calls import WAITS
from ray_tracing_hooks._insight.model.span import CONSUMER, STATUS_ERROR
from ray_tracing_hooks._insight.model.table import LOST

KIND = 7
"""The bits of the kind."""

STATE, STATE_SHIFT = 3, 4
"""The bits of the state, once they are shifted."""

FAILED, WAITING, ON_PATH = 8, 64, 128


def flags_of(kind: Sequence[int], status: Sequence[int], state: Sequence[int], role: Sequence[int]) -> bytearray:
    """The flags of each span, but for :data:`ON_PATH`."""
    kinds, statuses, states, roles = (np.frombuffer(bytes(each), np.uint8) for each in (kind, status, state, role))
    failed = (statuses == STATUS_ERROR) | (states == LOST)
    found = np.where(kinds <= CONSUMER, kinds, 0) | np.where(failed, FAILED, 0) | states << STATE_SHIFT
    return bytearray((found | np.where(np.isin(roles, WAITS), WAITING, 0)).astype(np.uint8))
