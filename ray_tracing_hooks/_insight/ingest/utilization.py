"""Reads the samples of nodes from the metrics that shippers write next to the files of spans."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp import METRICS
from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._insight.ingest.files import JSON_SUFFIXES, UNREADABLE, FilePart, reason
from ray_tracing_hooks._insight.ingest.lines import lines_in
from ray_tracing_hooks._insight.ingest.otlp_json import plain_attributes
from ray_tracing_hooks._insight.model.utilization import Key, Series, Utilization, key

_MARKS = tuple(f'"{name}"'.encode() for name in (names.CPU_UTILIZATION, names.GPU_UTILIZATION))
"""Most lines are about calls: those with samples have one of these."""

_MOST = 5_000_000
"""The most samples that are read."""


def samples_beside(paths: Iterable[str], begin: int, end: int) -> tuple[Utilization, list[str]]:
    """The samples from ``begin`` to ``end`` (nanoseconds) in the folders ``paths``, or next to the files ``paths``; and
    why files could not be read. Damaged lines are skipped.
    """
    found: dict[Key, dict[int, float]] = {}
    limits: dict[Key | None, float] = {}
    problems: list[str] = []
    read = 0
    for path in _files(paths):
        try:
            for node, metric, accelerator, time, value in _samples(path):
                series = key(node, metric, accelerator)
                if metric == names.GPU_MEMORY_LIMIT and value > 0:
                    limits[key(node, names.GPU_MEMORY_USAGE, accelerator)] = value
                elif series is not None and begin <= time <= end and read < _MOST:
                    found.setdefault(series, {})[time] = value
                    read += 1
        except UNREADABLE as error:
            problems.append(f"{path}: {reason(error)}")
    made: Utilization = {}
    for each in sorted(found):
        if each.is_share or each in limits:
            kept = made[each] = Series()
            for time, value in sorted(found[each].items()):
                kept.times.append(time)
                kept.values.append(min(1.0, max(0.0, value / limits.get(each, 1.0))))
    return made, problems


def _files(paths: Iterable[str]) -> list[str]:
    folders = dict.fromkeys(path if os.path.isdir(path) else os.path.dirname(path) or "." for path in paths)
    found = []
    for folder in folders:
        with suppress(OSError):  # most folders have no metrics
            inside = os.path.join(folder, METRICS.name)
            found += [os.path.join(inside, name) for name in os.listdir(inside) if name.endswith(JSON_SUFFIXES)]
    return sorted(found)


def lines_between(paths: Iterable[str], begin: int, end: int) -> Iterator[bytes]:
    """The lines with samples of which any is from ``begin`` to ``end``. Files that cannot be read are left out."""
    for path in _files(paths):
        with suppress(*UNREADABLE):
            for line in _lines(path):
                with suppress(*MALFORMED):
                    if any(begin <= time <= end for _, _, _, time, _ in _of_line(json.loads(line))):
                        yield line


def _samples(path: str) -> Iterator[tuple[str, str, str, int, float]]:
    """Node, metric, accelerator, time and value of each."""
    for line in _lines(path):
        with suppress(*MALFORMED):
            yield from _of_line(json.loads(line))


def _lines(path: str) -> Iterator[bytes]:
    with open(path, "rb") as raw:
        for _, _, line in lines_in(FilePart(path), raw):
            if line is not None and any(mark in line for mark in _MARKS):
                yield line


def _of_line(document: Any) -> Iterator[tuple[str, str, str, int, float]]:
    for of_resource in document[METRICS.of_resources]:
        node = str(plain_attributes(of_resource["resource"].get("attributes")).get(names.RESOURCE_NODE_ID) or "")
        for of_scope in of_resource[METRICS.of_scopes]:
            for metric in of_scope[METRICS.of_items]:
                for point in metric.get("gauge", {}).get("dataPoints", ()):
                    described = plain_attributes(point.get("attributes"))
                    value = point["asDouble"] if "asDouble" in point else int(point["asInt"])
                    accelerator = str(described.get(names.RAY_ACCELERATOR_ID) or "")
                    yield node, str(metric["name"]), accelerator, int(point["timeUnixNano"]), float(value)
