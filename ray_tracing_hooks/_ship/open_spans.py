"""Open spans, which have begun and not ended: how they are stored, and how they are closed when their process is gone.

Most of them end. The others were interrupted by the end of their process, or their program never ended them, which only
happens to spans of the API and is not an error. If the process could not write some spans after a span began, the end
of this span may be among them: whether it was interrupted is unknown, so it is not shown as an error either.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_resource
from ray_tracing_hooks._formats.encoded_span.encode import IDS, SPAN_ID
from ray_tracing_hooks._formats.encoded_span.read import parent_id, start_time
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._spool.progress import StoredSpan, encode_open_spans, open_spans

_OURS = encode.scope(names.SCOPE)
_SAME_TRACE = slice(IDS.start, SPAN_ID.start)

_OVERHEAD = 400
"""Bytes of memory that an open span takes besides its encoding."""


class Scope:
    """A scope of one segment; compared by identity, which is cheaper than by its bytes."""

    __slots__ = ("is_ours", "resource", "scope")

    def __init__(self, resource: bytes, scope: bytes) -> None:
        self.resource = resource
        self.scope = scope
        self.is_ours = scope.startswith(_OURS)


class OpenSpan(NamedTuple):
    """A span that has begun: its scope, its encoding without an end, and the sequence of its segment.

    ``within`` is the id of the span of this package (such as a task's) that was open around it when it began, if it is
    a span of the API.
    """

    scope: Scope
    span: bytes
    sequence: int
    within: bytes = b""


_open_span: Callable[[tuple[Scope, bytes, int, bytes]], OpenSpan] = partial(tuple.__new__, OpenSpan)
"""Three times as fast as calling the class: there is one for each execution."""

OpenSpans = dict[bytes, OpenSpan]
"""Keyed by trace id and span id with their tags, which are the beginning of a span."""


def begun(spans: OpenSpans, scope: Scope, span: bytes, sequence: int) -> OpenSpan:
    """The entry for a span that has just begun; ``spans`` are open in its process."""
    within = b""
    if spans and not scope.is_ours:
        around = spans.get(span[_SAME_TRACE] + parent_id(span))
        if around is not None:
            within = around.span[SPAN_ID] if around.scope.is_ours else around.within
    return _open_span((scope, span, sequence, within))


def size(spans: OpenSpans) -> int:
    """The approximate size in memory, in bytes."""
    return sum(len(each.span) for each in spans.values()) + _OVERHEAD * len(spans)


def to_forget(spans: OpenSpans) -> list[bytes]:
    """The less important half: first the oldest of the API, which accumulate if a program never ends them."""
    order = sorted(spans, key=lambda ids: spans[ids].scope.is_ours)
    return order[: -(-len(order) // 2)]


def stored(spans: Iterable[OpenSpan]) -> list[Any]:
    """The entries of a progress file for these spans."""
    return encode_open_spans(
        StoredSpan(each.scope.resource, each.scope.scope, each.span, each.within) for each in spans
    )


def restored(process: Mapping[str, Any]) -> OpenSpans:
    """The open spans of a process in a progress file. Raises ValueError, TypeError or KeyError if malformed."""
    found: OpenSpans = {}
    scopes: dict[tuple[bytes, bytes], Scope] = {}
    for resource, scope, span, within in open_spans(process):
        shared = scopes.get((resource, scope)) or scopes.setdefault((resource, scope), Scope(resource, scope))
        found[span[IDS]] = OpenSpan(shared, span, -1, within)
    return found


def was_interrupted(span: bytes) -> bool:
    """Whether an ended span of this package reports that the end of its process interrupted it."""
    # Called for every such span, so first a fast check for the rare case.
    return _DIED in span and (_WORKER_DIED in span or _DRIVER_DIED in span)


def left_open(
    spans: OpenSpans,
    interrupted: AbstractSet[bytes],
    maybe_ended: AbstractSet[bytes],
    *,
    is_worker: bool,
    in_order: bool,
) -> Iterator[tuple[bytes, bool]]:
    """The ids of the spans that a dead process left open, and whether its end interrupted the span.

    If not, the program never ended the span, or it is one of ``maybe_ended``: the ids of spans whose end the process
    may not have been able to write. Of the others, a span of this package was interrupted, and so was a span of the API
    that began inside of an interrupted one, or inside of one of ``interrupted``: the ids of ended spans that report it
    themselves. The rest depends on the process: in one that ended ``in_order``, and in a worker, which Ray kills when
    it is idle, the program had not ended them.

    Spans of the API come first, since they depend on the others: a caller that stops in between gets the same result
    for the rest.
    """
    ours = {
        each.span[SPAN_ID]: start_time(each.span)
        for each in spans.values()
        if each.scope.is_ours and each.span[SPAN_ID] not in maybe_ended
    }
    first = min(ours.values(), default=None)
    for ids, each in sorted(spans.items(), key=lambda item: item[1].scope.is_ours):
        if each.span[SPAN_ID] in maybe_ended:
            yield ids, False
        elif each.scope.is_ours or not (is_worker or in_order):
            yield ids, True
        elif each.within:
            yield ids, each.within in ours or each.within in interrupted
        else:
            # A span that began before any open span of this package was not inside of one.
            yield ids, bool(interrupted) or (first is not None and first <= start_time(each.span))


def closed(span: bytes, ended_at: int, death: Death | None) -> bytes:
    """The encoded span with an end appended, and with the error if the death of its process interrupted it.

    ``ended_at`` is in nanoseconds since the epoch; the end is never before the start.
    """
    end = encode.end_time(max(ended_at, start_time(span)))
    return span + end + (_error(death) if death is not None else _NEVER_ENDED)


@lru_cache(maxsize=100)
def _error(death: Death) -> bytes:
    """The attributes ``ray.end_estimated`` and ``error.type``, and the status ERROR."""
    return (
        encode.attribute(names.RAY_END_ESTIMATED, True)
        + encode.attribute(names.ERROR_TYPE, death.error_type)
        + encode.status(encode.STATUS_ERROR, death.message)
    )


_DIED = b"r_died"
_WORKER_DIED, _DRIVER_DIED = (
    encode.attribute(names.ERROR_TYPE, error_type) for error_type in (names.WORKER_DIED, names.DRIVER_DIED)
)
_NEVER_ENDED = encode.attribute(names.RAY_NEVER_ENDED, True)


WORKER, _DRIVER = "worker", "driver"

_OWN_TAIL, _RAYLET_TAIL = 64 * 1024, 1024 * 1024
"""How many bytes at the end of a log are read: a raylet's log covers many workers."""

_MOST_TEXT = 300

# Ray 2.60: src/ray/util/logging.cc, raylet_ipc_client.cc, core_worker.cc and node_manager.cc. Older versions write the
# same in these parts.
_WORD = re.compile(
    rb"\*\*\* (SIG[A-Z]+) received at "
    rb"|Disconnect, exit_type=\w+, exit_detail=([^\n]+)"
    rb"|because (the local raylet failed)"
)
_REST = re.compile(r"(, has creation_task_exception| Owner Id: ).*")
_OUT_OF_MEMORY = rb"disconnect_type=4\b[^\n]* worker_id="
_FORCE_CANCELLED = "force ray.cancel"


class Death(NamedTuple):
    """The ``error.type`` and the status description of an interrupted span."""

    error_type: str
    message: str


def cause_of_death(logs: str | None, pid: str, resources: Iterable[bytes]) -> Death:
    """The death of the process ``pid`` that had one of these encoded Resources.

    ``logs`` is the log folder of its Ray session. If the logs do not show a cause, or it is None, the death has none.
    """
    kind, worker_id = identity(resources)
    death = Death(names.DRIVER_DIED, "driver died") if kind == _DRIVER else Death(names.WORKER_DIED, "worker died")
    if logs is None or not worker_id:
        return death
    own_log = _tail(f"{logs}/python-core-{kind}-{worker_id}_{pid}.log", _OWN_TAIL)
    cause = _logged_cause(own_log, is_driver=kind == _DRIVER)
    # The memory monitor sends SIGTERM a moment before SIGKILL.
    if (not cause or "SIGTERM" in cause) and _is_out_of_memory(logs, worker_id):
        return Death(names.OUT_OF_MEMORY, f"{death.message}: the node ran low on memory")
    if not cause:
        return death
    error_type = names.TASK_CANCELLED if _FORCE_CANCELLED in cause else death.error_type
    return Death(error_type, f"{death.message}: {cause}")


def _logged_cause(log: bytes, *, is_driver: bool) -> str:
    """The last cause in the log of the process itself."""
    for signal, detail, raylet in reversed(_WORD.findall(log)):
        if signal or not is_driver:  # a driver keeps running after it has disconnected, or lost its raylet
            text = (signal or detail or raylet).decode("utf-8", "replace")
            return _REST.sub("", text)[:_MOST_TEXT]
    return ""


def _is_out_of_memory(logs: str, worker_id: str) -> bool:
    killed = re.compile(_OUT_OF_MEMORY + worker_id.encode())
    return any(killed.search(_tail(path, _RAYLET_TAIL)) for path in glob.glob(f"{glob.escape(logs)}/raylet*.out"))


def identity(resources: Iterable[bytes]) -> tuple[str, str]:
    """``worker`` or ``driver``, and the worker id, from the first encoded Resource that has them."""
    for resource in resources:
        with contextlib.suppress(FormatError):
            attributes = decode_resource(resource)
            kind, worker_id = (attributes.get(key) for key in (names.RESOURCE_PROCESS_TYPE, names.RESOURCE_WORKER_ID))
            if kind in {WORKER, _DRIVER} and isinstance(worker_id, str) and worker_id.isalnum():
                return str(kind), worker_id
    return "", ""


def _tail(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""
