"""The control channel of a shipper: how it is asked to flush, and what it answers.

A request is one line of JSON on the FIFO ``wake`` in the spool folder: an object with ``answer``, the name of the
answer, ``timeout`` in seconds, ``until_writers_end``, and the ``pid`` of the asking process. The shipper answers with
one line of JSON on a FIFO that the asking process has made under that name: ``done``, the lists of sentences
``problems`` and ``waiting``, and ``written``, a number or null. Both are shorter than what a pipe takes in one piece. A
line without content asks for nothing: by writing one a process finds out whether a shipper listens.

Where the volume has no FIFOs, request and answer are files of the same contents: the names of requests begin with
:data:`REQUEST`, those of answers with :data:`ANSWER`. Sockets would not do: their paths have at most 107 bytes.

:mod:`~ray_tracing_hooks._ship.flush` is the end of those who ask, :mod:`~ray_tracing_hooks._ship.inbox` that of the
shipper.
"""

from __future__ import annotations

import errno
import json
import os
import select
from dataclasses import dataclass, field
from typing import Any

WAKE = "wake"
"""The FIFO on which a shipper listens."""

REQUEST, ANSWER = "ask-", "flush-"
"""What the names of requests begin with, where these are files, and those of answers."""

NO_FIFOS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""How a volume says that it has no FIFOs."""

_MOST_TEXT = 700


@dataclass(frozen=True)
class Request:
    """Deliver everything that is in the spool now.

    Attributes:
        answer: The name of the FIFO, or file, for the answer.
        timeout: How many seconds the asking process waits.
        until_writers_end: Wait until every other process that writes to this spool has ended.
        pid: The asking process.
    """

    answer: str
    timeout: float
    until_writers_end: bool
    pid: int

    def encode(self) -> bytes:
        found = {
            "answer": self.answer,
            "timeout": self.timeout,
            "until_writers_end": self.until_writers_end,
            "pid": self.pid,
        }
        return json.dumps(found).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        """Raises ValueError, TypeError or KeyError for a line that is no request."""
        found: dict[str, Any] = json.loads(line)
        return cls(
            answer=os.path.basename(found["answer"]),
            timeout=float(found["timeout"]),
            until_writers_end=bool(found["until_writers_end"]),
            pid=int(found["pid"]),
        )


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        done: Everything that was in the spool has been delivered to every sink.
        problems: What keeps spans from being delivered, and what has been lost.
        waiting: How many spans are still to be delivered, and where they wait.
        written: How many spans the shippers of this spool have written to local files; None if that is not known.
    """

    done: bool
    problems: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    written: int | None = None

    def encode(self) -> bytes:
        """One line that a pipe takes in one piece; as many sentences are left out at the end as that takes."""
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
