"""Trace and span ids: random, fast, and never the same in a forked child."""

from __future__ import annotations

import functools
import os
import random
import struct

_number = struct.Struct("<Q").unpack_from
_pack = struct.Struct("<Q").pack

# A separate generator: `random.seed()` in the program does not affect it, and it does not affect the program.
_generator = random.Random(os.urandom(32))  # noqa: S311  ids must be unique, not secret
os.register_at_fork(after_in_child=lambda: _generator.seed(os.urandom(32)))


def new_trace_id() -> bytes:
    """16 random bytes, not all zero."""
    return (random_64() << 64 | random_64() or 1).to_bytes(16, "big")


def new_span_id() -> bytes:
    """8 random bytes, not all zero."""
    return (_generator.getrandbits(64) or 1).to_bytes(8, "big")


random_64 = functools.partial(_generator.getrandbits, 64)
"""The number that :func:`new_span_id` makes an id of, and :func:`new_trace_id` two of these; for the compiled part."""


def mask_of_driver(root_span_id: bytes) -> int:
    """The mask that makes the ids of :func:`span_id_of_task` specific to one driver."""
    (mask,) = _number(root_span_id)
    return int(mask)


def span_id_of_task(task_id: bytes, mask: int) -> bytes:
    """The span id of a task's submission, where caller and worker both derive it so that it need not be sent.

    A task's id begins with 8 bytes of a hash of its caller and a counter (Ray 2.60 ``src/ray/common/id.cc``,
    ``GenerateUniqueBytes``). These differ between the tasks of one driver, but are the same in each run of a program.
    The ``mask`` makes runs differ: two runs may be part of one trace, but the id of a driver's root span is always
    random.
    """
    return _pack((_number(task_id)[0] ^ mask) or 1)
