"""Exports recorded spans to file formats of other viewers; one module per format, all with the same ``write``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from ray_tracing_hooks._insight.analysis.wording import count
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


Write = Callable[[Table, Redaction, BinaryIO, Callable[[int], None]], Sequence[str]]
"""Writes a table without what is to be hidden; calls back with the number of spans written since the last time.

Returns notes for the user about what the file does not contain.
"""


def writer(name: str) -> Write:
    """The function that writes this format."""
    write: Write = import_module(f"{__name__}.{name}").write
    return write


def gone(table: Table) -> list[str]:
    """A note on spans whose file was removed or has changed since it was read; none without any."""
    if not table.gone:
        return []
    return [f"{count(table.gone, 'span')} could not be read again: most of their attributes are missing"]


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
