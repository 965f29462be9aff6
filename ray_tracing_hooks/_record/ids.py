"""Trace and span ids: random, fast, and never the same in a forked child."""

from __future__ import annotations

import os
import random

# A generator of our own: neither `random.seed()` in a user's program nor our drawing from it changes the other.
_generator = random.Random(os.urandom(32))  # noqa: S311  ids must be unique, not secret
os.register_at_fork(after_in_child=lambda: _generator.seed(os.urandom(32)))


def new_trace_id() -> bytes:
    """16 random bytes, not all zero."""
    return (_generator.getrandbits(128) or 1).to_bytes(16, "big")


def new_span_id() -> bytes:
    """8 random bytes, not all zero."""
    return (_generator.getrandbits(64) or 1).to_bytes(8, "big")


def span_id_of_task(task_id: bytes, trace_id: bytes) -> bytes:
    """The id of the span of a task's submission where both sides make it, and it is not sent.

    A task's id begins with 8 bytes of a hash over its caller and a counter (Ray 2.60 ``src/ray/common/id.cc``,
    ``GenerateUniqueBytes``), which are the same in each run of a program: ``trace_id`` makes the difference.
    """
    number = int.from_bytes(task_id[:8], "big") ^ int.from_bytes(trace_id[:8], "big")
    return (number or 1).to_bytes(8, "big")
