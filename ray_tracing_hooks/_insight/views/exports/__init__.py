"""Exports recorded spans to file formats of other viewers; one module per format, all with the same ``write``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.ingest.reread import Lines
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.page.pack import plain
from ray_tracing_hooks._insight.views.redaction import Redaction


class Format(NamedTuple):
    suffix: str
    """The suffix of the output file if no name is given."""
    meaning: str
    """What can open it, for the help text."""


FORMATS = {
    "perfetto": Format(".pftrace", "Perfetto's own format, for https://ui.perfetto.dev"),
    "otlp": Format(".jsonl.gz", "one file of OTLP-JSON lines, for the OpenTelemetry Collector and others"),
}


@dataclass
class Source:
    """The spans to write.

    Attributes:
        files: As :func:`ray_tracing_hooks._insight.ingest.files.span_files` returns them.
        redaction: Hides parts of the spans.
        select: Chooses the spans to write from all spans.
        on_bytes: Called with the number of bytes read since the previous call.
        on_read: Called once everything is read, with the number of spans and the problems with the data.
        on_spans: Called with the number of spans written since the previous call.
        lines: Where the spans of the table were read.
    """

    files: Sequence[str]
    redaction: Redaction = field(default_factory=Redaction)
    select: Callable[[Table], Table] | None = None
    on_bytes: Callable[[int], None] = lambda _count: None
    on_read: Callable[[int, Quality], None] = lambda _spans, _quality: None
    on_spans: Callable[[int], None] = lambda _count: None
    lines: Lines = field(default_factory=Lines)

    @cached_property
    def table(self) -> Table:
        """The spans, read on first use."""
        table = load(self.files, self.on_bytes, self.lines)
        if self.select is not None and len(table):
            table = self.select(table)
        self.redaction.apply(table)
        self.on_read(len(table), table.quality)
        return table

    def shown(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.redaction.shown(attributes)


def writer(name: str) -> Callable[[Source, BinaryIO], Sequence[str]]:
    """The function that writes this format.

    It writes all spans of the source and returns notes for the user about what the file does not contain.
    """
    write: Callable[[Source, BinaryIO], Sequence[str]] = import_module(f"{__name__}.{name}").write
    return write


def as_json(value: Any) -> str:
    """JSON that every reader accepts: NaN and infinity become text. :func:`encoded` replaces lone surrogates."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(plain(value, is_exact=False))


def encoded(text: str) -> bytes:
    """UTF-8, with characters that it cannot encode replaced."""
    return text.encode("utf-8", "replace")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode
