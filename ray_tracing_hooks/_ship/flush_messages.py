"""The messages to a shipper and from it: flush requests and their answers.

A request is one line of JSON on the FIFO ``wake`` in the spool folder: an object with ``answer``, the name of the
answer, ``timeout`` in seconds, ``until_writers_end``, and the ``pid`` of the requesting process with the ``namespace``
in which it counts. The shipper answers with one line of JSON on a FIFO of that name, which the requesting process has
created: ``done``, the lists of sentences ``problems`` and ``waiting``, and ``written``, a number or null. Both are
small enough for an atomic write to a pipe. An empty line requests nothing: writing one tells a process whether a
shipper is listening.

On a volume without FIFOs, request and answer are files with the same contents: the names of requests begin with
:data:`REQUEST`, those of answers with :data:`ANSWER`. Sockets are no alternative: their paths have at most 107 bytes.

:mod:`~ray_tracing_hooks._ship.flush` is the client side, :mod:`~ray_tracing_hooks._ship.inbox` that of the shipper.
"""

from __future__ import annotations

import errno
import json
import os
import select
from dataclasses import dataclass, field
from typing import Any

from ray_tracing_hooks._processes import UNKNOWN

WAKE = "wake"
"""The FIFO on which a shipper listens."""

REQUEST, ANSWER = "ask-", "flush-"
"""The prefixes of the names of requests, if these are files, and of answers."""

NO_FIFOS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors by which a volume reports that it does not support FIFOs."""

_MOST_TEXT = 700


@dataclass(frozen=True)
class Request:
    """Deliver everything that is in the spool now.

    Attributes:
        answer: The name of the FIFO, or file, for the answer.
        timeout: How many seconds the requesting process waits.
        until_writers_end: Wait until every other process that writes to this spool has ended.
        pid: The requesting process.
        namespace: Where its pid counts, as in the names of processes.
    """

    answer: str
    timeout: float
    until_writers_end: bool
    pid: int
    namespace: str = UNKNOWN

    def encode(self) -> bytes:
        found = {
            "answer": self.answer,
            "timeout": self.timeout,
            "until_writers_end": self.until_writers_end,
            "pid": self.pid,
            "namespace": self.namespace,
        }
        return json.dumps(found).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        """Raises ValueError, TypeError or KeyError for a malformed request."""
        found: dict[str, Any] = json.loads(line)
        return cls(
            answer=os.path.basename(found["answer"]),
            timeout=float(found["timeout"]),
            until_writers_end=bool(found["until_writers_end"]),
            pid=int(found["pid"]),
            namespace=str(found.get("namespace", UNKNOWN)),
        )


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        done: Everything that was in the spool has been delivered to every sink.
        problems: What prevents delivery, and what has been lost, as sentences.
        waiting: How many spans are still to be delivered, and where they wait.
        written: How many spans the shippers of this spool have written to local files; None if unknown.
    """

    done: bool
    problems: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    written: int | None = None

    def encode(self) -> bytes:
        """One line that a pipe accepts atomically; sentences at the end are left out as needed."""
        problems, waiting = [text[:_MOST_TEXT] for text in self.problems], list(self.waiting)
        while True:
            found = {"done": self.done, "problems": problems, "waiting": waiting, "written": self.written}
            line = json.dumps(found).encode() + b"\n"
            if len(line) <= select.PIPE_BUF:
                return line
            (problems or waiting).pop()

    @classmethod
    def decode(cls, line: bytes) -> Answer:
        found: dict[str, Any] = json.loads(line)
        return cls(bool(found["done"]), found["problems"], found["waiting"], found.get("written"))
