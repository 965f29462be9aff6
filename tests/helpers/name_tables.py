"""The tables of attributes and metrics on the reference pages, made from the texts in ``names.py``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks.names import Metric


class Attribute(NamedTuple):
    """One key: the type of its values, the spans that have it, and its meaning."""

    key: str
    kind: str
    where: str
    meaning: str


def attributes() -> list[Attribute]:
    """Those of this package, in the order of the module."""
    found = []
    for assigned, text in pairwise(ast.parse(inspect.getsource(names)).body):
        if isinstance(assigned, ast.Assign) and isinstance(text, ast.Expr):
            key, written = ast.literal_eval(assigned.value), " ".join(ast.literal_eval(text.value).split())
            if parts := re.fullmatch(r"((?:string|int|double|boolean)(?:\[\])?), (.+?): (.+)", written):
                found.append(Attribute(key, *parts.groups()))
    return found


def metrics() -> list[Metric]:
    return [each for each in vars(names).values() if isinstance(each, Metric)]


def delivery_metrics() -> list[Metric]:
    """Those that shippers have about themselves."""
    return [each for each in metrics() if each.startswith("ray.tracing.")]


def markdown_table() -> str:
    """The attributes."""
    rows = ["| attribute | type | on | meaning |", "| --- | --- | --- | --- |"]
    rows += [f"| `{each.key}` | {each.kind} | {each.where} | {each.meaning} |" for each in attributes()]
    return "\n".join(rows) + "\n"


def metrics_table() -> str:
    """The metrics of calls and nodes."""
    return _metrics_table(each for each in metrics() if each not in delivery_metrics())


def delivery_metrics_table() -> str:
    """The metrics of delivery."""
    return _metrics_table(delivery_metrics())


def _metrics_table(metrics: Iterable[Metric]) -> str:
    rows = ["| metric | kind | unit | attributes | meaning |", "| --- | --- | --- | --- | --- |"]
    for each in metrics:
        keys = ", ".join(f"`{key}`" for key in each.attributes)
        row = f"| `{each}` | {each.instrument} | `{each.unit}` | {keys} | {each.meaning} |"
        rows.append(row.replace("|  |", "| |"))
    return "\n".join(rows) + "\n"
