"""What of a command line is in Ray's table of jobs."""

from __future__ import annotations

import pytest

from ray_tracing_hooks._ops.head import without_values


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "ray-tracing-hooks"),
        (["status", "--watch"], "ray-tracing-hooks status --watch"),
        (["enable", "exclude=a.*", "--json"], "ray-tracing-hooks enable exclude=... --json"),
        (["enable", "OTEL_EXPORTER_OTLP_HEADERS=a=b\nc"], "ray-tracing-hooks enable OTEL_EXPORTER_OTLP_HEADERS=..."),
        (["doctor", "--address", "http://me:secret@host/?key=1"], "ray-tracing-hooks doctor --address ..."),
        (["doctor", "--address=http://me:secret@host/?key=1"], "ray-tracing-hooks doctor --address=..."),
        (["collect", "--output", "s3://key:secret@bucket"], "ray-tracing-hooks collect --output ..."),
        (["enable", "\udcff=1"], "ray-tracing-hooks enable ..."),
    ],
)
def test_only_names_are_left(words: list[str], shown: str) -> None:
    assert without_values(words) == shown
