"""Exports recorded spans to file formats of other viewers; one module per format, all with the same ``write``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import BinaryIO, NamedTuple

from ray_tracing_hooks._insight.views.exports.selection import Source


class Format(NamedTuple):
    suffix: str
    """The suffix of the output file if no name is given."""
    meaning: str
    """What can open it, for the help text."""


FORMATS = {
    "perfetto": Format(".pftrace", "Perfetto's own format, for https://ui.perfetto.dev"),
    "otlp": Format(".jsonl.gz", "one file of OTLP-JSON lines, for the OpenTelemetry Collector and others"),
}


def writer(name: str) -> Callable[[Source, BinaryIO], Sequence[str]]:
    """The function that writes this format.

    It writes all spans of the source and returns notes for the user about what the file does not contain.
    """
    write: Callable[[Source, BinaryIO], Sequence[str]] = import_module(f"{__name__}.{name}").write
    return write
