"""Recorded runs, cut and damaged at random, and what must hold of what the commands show of them."""

from __future__ import annotations

import copy
import gzip
import json
import re
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from click.testing import CliRunner
from recordings import recorded

from ray_tracing_hooks._cli import main

Part = tuple[Any, Any, Any]
"""A Resource, a scope and a span."""

SECOND = 1_000_000_000
SHIFTS = (0, 0, 10**6, -SECOND, 5 * SECOND, 3600 * SECOND, -3600 * SECOND, 10**18, -(10**18))
VALUES: tuple[Any, ...] = (
    *(None, [], {}, "", "x", -1, 0, 1.5, True, 2**63, -(2**63), 2**64, 10**30, "NaN", "\ud800", "\x1b[31m", [None]),
    *({"stringValue": None}, {"intValue": "x"}, {"doubleValue": "Infinity"}, "f" * 32, "f" * 16, str(2**64 - 1)),
)
_ALL = 1 + 1e-9
COMMANDS = (("summary", "--json"), ("summary", "-v"), ("tree",), ("view",))


@lru_cache(maxsize=4)
def _spans(name: str) -> list[Part]:
    found = []
    with gzip.open(recorded(name), "rt") as file:
        for line in file:
            for group in json.loads(line)["resourceSpans"]:
                for of_scope in group["scopeSpans"]:
                    found += [(group["resource"], of_scope["scope"], span) for span in of_scope["spans"]]
    return found


def mutated(random: Random, names: tuple[str, ...]) -> str:
    """The lines of a part of a recorded run: without some spans, with other clocks, times, parents and values."""
    spans = _spans(random.choice(names))
    begin, width = random.randrange(len(spans)), random.choice((2, 10, 40, 200, 400))
    kept = random.choice((0.3, 0.7, 1.0))
    part = copy.deepcopy([each for each in spans[begin : begin + width] if random.random() < kept])
    shifts: dict[str, int] = {}
    alone = random.random()
    for resource, _, span in part:
        shift = shifts.setdefault(json.dumps(resource), random.choice(SHIFTS) if alone < 0.5 else 0)
        for key in ("startTimeUnixNano", "endTimeUnixNano"):
            if key in span:
                span[key] = str(max(1, int(span[key]) + shift))
        if random.random() < 0.15:
            _damage(random, span, part)
    if random.random() < 0.3:
        # Only the workers, or only the driver: the files of one node.
        is_driver = [any(each["value"].get("stringValue") == "driver" for each in one[0]["attributes"]) for one in part]
        wanted = random.random() < 0.3
        part = [each for each, driver in zip(part, is_driver, strict=True) if driver == wanted]
    documents = [
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}
        for resource, scope, span in part
    ]
    for document in documents:
        if random.random() < 0.02:
            _replace(random, document)
    return "".join(json.dumps(each) + "\n" for each in documents)


def _damage(random: Random, span: dict[str, Any], part: list[Part]) -> None:
    other = random.choice(part)[2]
    match random.randrange(10):
        case 0:
            span.pop("endTimeUnixNano", None)
        case 1:
            span["endTimeUnixNano"] = str(int(span["startTimeUnixNano"]) - 5)
        case 2:
            span.pop("parentSpanId", None)
        case 3:
            span["status"] = {"code": 2, "message": "x"}
        case 4:
            span["parentSpanId"] = other["spanId"]
        case 5:
            span["attributes"] = [each for each in span.get("attributes", ()) if random.random() < 0.6]
        case 6:
            span["spanId"] = other["spanId"]
        case 7:
            span["traceId"] = other["traceId"]
        case 8:
            span["startTimeUnixNano"] = other["startTimeUnixNano"]
        case _:
            for each in span.get("attributes", ()):
                if "intValue" in each["value"] and random.random() < 0.5:
                    each["value"]["intValue"] = str(random.choice((0, -1, 1, 7, 10**9, 10**18, 2**63 - 1)))


def _replace(random: Random, document: Any) -> None:
    """Another value somewhere in the document."""
    place = document
    while isinstance(place, dict | list) and place:
        key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        below = place[key]
        if not isinstance(below, dict | list) or not below or random.random() < 0.1:
            place[key] = copy.deepcopy(random.choice(VALUES))
            return
        place = below


def problems(lines: str, folder: Path) -> Iterator[str]:
    """What is wrong with what the commands show of these spans: an error, or a share of more than all."""
    path = folder / "spans.jsonl"
    path.write_text(lines)
    for command, *options in COMMANDS:
        output = ["--output", str(folder / "report.html"), "--force"] if command == "view" else []
        result = CliRunner().invoke(main, [command, str(path), *options, *output])
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            yield f"{command}: " + "".join(traceback.format_exception(error)[-4:])
        elif result.exit_code not in (0, 1, 2):
            yield f"{command}: exit code {result.exit_code}"
        elif "--json" in options and result.exit_code == 0:
            document = json.loads(result.stdout)
            yield from (
                f"{command}: {place} is {share}" for place, share in _shares(document) if not 0 <= share <= 1 + 1e-9
            )
            total = sum(each["share"] for each in document["time_split"])
            if total > _ALL:
                yield f"{command}: the split adds up to {total}"
        else:
            yield from (f"{command}: {each} %" for each in re.findall(r"(\d+) %", result.stdout) if int(each) > 100)


def _shares(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if (key == "share" or key.endswith("_share")) and isinstance(each, int | float):
                yield f"{place}.{key}", each
            yield from _shares(each, f"{place}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _shares(each, f"{place}[{number}]")
