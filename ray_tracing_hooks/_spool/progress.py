"""The layout of progress files: how far a spool has been delivered to one exporter, and which spans are open.

``progress-<label>.json`` in a spool folder is a JSON object, padded with blanks, that the shipper replaces after each
delivery:

``version``
    :data:`VERSION`.
``processes``
    By the name of each process, as in the names of its segments, an object:

    ``sequence``, ``offset``
        The segment that delivery has reached, and the offset in it up to which everything is delivered.
    ``openings``
        The open spans: those that began before that offset and had not ended there. They are grouped by resource and
        scope; each group is a list of these two, the list of spans, and the list of their enclosing spans. Resource,
        scope and spans are encoded as in records and then in base64; a span has no end. An enclosing span is the
        hexadecimal id of the open span of this package that the span began in, or an empty text.
    ``in_order``
        Whether the process has written its ``EXIT`` record.
    ``interrupted``
        The hexadecimal ids of the spans of this package that have ended and report that the end of their process
        interrupted them. Missing where there are none.
    ``maybe_ended``
        The hexadecimal ids of the open spans that began before the process could not write some spans, so that their
        ends may be lost. Missing where there are none.
``sink``
    The state of the exporter, in a form that only this exporter knows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

VERSION = 1

_PREFIX, _SUFFIX = "progress-", ".json"

WHOLE = 1 << 62
"""An offset beyond the end of any segment, and a sequence beyond the last."""


class Progress(NamedTuple):
    """What a progress file holds: an object as described above for each process, and the state of the exporter."""

    processes: Mapping[str, Any]
    state: Mapping[str, Any]

    def read_of(self, process: str, sequence: int) -> int:
        """The offset up to which this segment has been processed; :data:`WHOLE` for one that is behind."""
        entry = self.processes.get(process)
        reached = -1 if entry is None else int(entry["sequence"])
        if entry is None or reached < sequence:
            return 0
        return int(entry["offset"]) if reached == sequence else WHOLE


class StoredSpan(NamedTuple):
    """An open span without an end, its resource and its scope, all encoded, and the id of the span that encloses it."""

    resource: bytes
    scope: bytes
    span: bytes
    within: bytes


def file_name(label: str) -> str:
    """The name of the progress file of the exporter, or other reader of the spool, with this label."""
    return f"{_PREFIX}{label.replace('/', '_')}{_SUFFIX}"


def is_progress_file(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def encode(progress: Progress) -> bytes:
    """The text of a progress file."""
    return json.dumps({"version": VERSION, "processes": progress.processes, "sink": progress.state}).encode()


def decode(text: str | bytes) -> Progress:
    """Raises ValueError, TypeError or KeyError if the text is not progress, or of a later version."""
    found = json.loads(text)
    if found["version"] != VERSION:
        raise ValueError(f"it has version {found['version']!r}, but this release reads version {VERSION}")
    return Progress(dict(found["processes"]), dict(found["sink"]))


def encode_open_spans(spans: Iterable[StoredSpan]) -> list[Any]:
    """The ``openings`` of a process."""
    groups: dict[tuple[bytes, bytes], tuple[list[str], list[str]]] = {}
    for resource, scope, span, within in spans:
        found, around = groups.setdefault((resource, scope), ([], []))
        found.append(_base64(span))
        around.append(within.hex())
    return [[*map(_base64, head), *lists] for head, lists in groups.items()]


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def open_spans(process: Mapping[str, Any]) -> Iterator[StoredSpan]:
    """The open spans of one of the processes. Raises ValueError, TypeError or KeyError if they are malformed."""
    for resource, scope, spans, within in process["openings"]:
        heads = base64.b64decode(resource), base64.b64decode(scope)
        for span, around in zip(spans, within, strict=True):
            yield StoredSpan(*heads, base64.b64decode(span), bytes.fromhex(around))
