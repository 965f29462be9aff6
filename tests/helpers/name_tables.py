"""The tables of attributes and metrics in the docs, made from the texts in ``names.py``.

``.venv/bin/python tests/helpers/name_tables.py`` writes them into the pages.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks.names import Metric

DOCS = Path(__file__).parents[2] / "docs"


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
    """The attributes, for docs/spans.md."""
    rows = ["| attribute | type | on | meaning |", "| --- | --- | --- | --- |"]
    rows += [f"| `{each.key}` | {each.kind} | {each.where} | {each.meaning} |" for each in attributes()]
    return "\n".join(rows) + "\n"


def metrics_table() -> str:
    """The metrics of calls and nodes, for docs/metrics.md."""
    return _metrics_table(each for each in metrics() if each not in delivery_metrics())


def delivery_metrics_table() -> str:
    """The metrics of delivery, for docs/metrics.md."""
    return _metrics_table(delivery_metrics())


def _metrics_table(metrics: Iterable[Metric]) -> str:
    rows = ["| metric | kind | unit | attributes | meaning |", "| --- | --- | --- | --- | --- |"]
    for each in metrics:
        keys = ", ".join(f"`{key}`" for key in each.attributes)
        row = f"| `{each}` | {each.instrument} | `{each.unit}` | {keys} | {each.meaning} |"
        rows.append(row.replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """The pages that have tables, with the tables of now between their markers, such as ``<!-- metrics -->``."""
    found: dict[Path, str] = {}
    for name, marker, table in (
        ("spans.md", "names", markdown_table()),
        ("metrics.md", "metrics", metrics_table()),
        ("metrics.md", "delivery", delivery_metrics_table()),
    ):
        page = DOCS / name
        text = found.get(page) or page.read_text(encoding="utf-8")
        before, _, after = text.split(f"<!-- {marker} -->\n")
        found[page] = f"<!-- {marker} -->\n".join((before, table, after))
    return found


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
