"""The report as one self-contained HTML file: it needs no server, no network and no other file.

The data is base64 in inert script elements, so text from spans cannot become markup. The content security policy allows
only the page's own script, by its hash, and no connections.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from string import Template
from typing import Any, BinaryIO

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.views.page import pack
from ray_tracing_hooks._insight.views.page.content import content, on_path
from ray_tracing_hooks._insight.views.page.pack import truncated
from ray_tracing_hooks._insight.views.page.sample import with_details
from ray_tracing_hooks._insight.views.redaction import Redaction
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._safety.private import open_file

__all__ = ["MOST_DETAILS", "MOST_SPANS", "Redaction", "is_report", "truncated", "write"]

MOST_SPANS = 1_000_000
"""With more spans, browsers take long to load the page."""

MOST_DETAILS = 100_000
"""The most spans whose attributes the page holds; if there are more, it holds those of a sample."""

_SCRIPTS = (
    *("format", "dom", "codec", "figures", "store", "search", "colours", "scale"),
    *("timeline_layout", "timeline_drawing", "utilization", "timeline", "flame", "logical", "physical", "stack"),
    *("spans", "requests", "findings", "tracks", "datasets", "ranks", "details", "keys", "address", "compare", "main"),
)
"""The modules of the script, in order of their dependencies."""

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=((?:async )?function|class|const) (.*))", re.MULTILINE)
_CONSTANT, _NAME = re.compile(r"(?:^|, )(\w+) = "), re.compile(r"\w+")

_GENERATOR = b'<meta name="generator" content="ray-tracing-hooks">'


def is_report(path: str) -> bool:
    """Whether the file at ``path`` is such a page, according to its generator element."""
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            return _GENERATOR in file.read(512)
    except OSError:
        return False


def write(
    file: BinaryIO,
    analysis: Analysis,
    *,
    source: str,
    redaction: Redaction | None = None,
    most_spans: int = MOST_SPANS,
    most_details: int = MOST_DETAILS,
    trace_url: str = "",
    comparison: dict[str, Any] | None = None,
    whole: Sequence[Any] = (),
    on_spans: Callable[[int], None] = lambda _count: None,
) -> int:
    """Write the page of a run, and return how many of its spans the page shows.

    ``source`` is where the spans were found, for the title of a run without a name. ``trace_url`` is where another
    program shows a trace, with ``{trace_id}`` in place of its id. ``comparison`` comes from
    :func:`~ray_tracing_hooks._insight.views.page.compared.compared`. ``whole`` has sentences and tables on
    the run that the analysis has a part of. ``on_spans`` is called with the number of spans whose attributes were
    written since the previous call.
    """
    redaction = redaction or Redaction()
    source = truncated(analysis.name, 100) or source
    table = analysis.table
    made = content(analysis, source, most_spans, redaction)
    made.meta["trace_url"] = trace_url
    made.meta["comparison"] = comparison
    made.meta["whole"] = list(whole)
    held = with_details(table, made.ends, made.rows, most_details, on_path(analysis, analysis.path.steps))
    held = table.as_recorded(held)
    position = {row: number for number, row in enumerate(held, 1)}
    made.columns["detail"] = [position.get(row, 0) for row in made.rows]
    if len(held) < len(made.rows):
        made.meta["details_note"] = (
            f"The file holds the attributes of {len(held):,} of its {len(made.rows):,} spans, but not of this one."
        )
    head, between, tail, after = _parts(source)
    columns = pack.text(pack.packed(made.columns))
    file.writelines((head, pack.json_text(made.meta), between, columns, tail))
    chunks = pack.chunks(table, held, pack.Links(table, made.rows).row, redaction, on_spans)
    file.writelines(b"\n" + chunk if number else chunk for number, chunk in enumerate(chunks))
    file.write(after)
    return len(made.rows)


def _parts(source: str) -> list[bytes]:
    """The page without its data: what is before, between and after the figures, the columns and the details."""
    script = "(() => {\n" + "\n".join(['"use strict";', *map(_script, _SCRIPTS)]) + "\n})();\n"
    style = _read("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = Template(_read("page.html")).safe_substitute(
        policy=html.escape(policy, quote=True),
        # A dollar sign would be treated as a placeholder for data.
        title=html.escape(f"{safe(source)} - ray-tracing-hooks", quote=True).replace("$", "&#36;"),
        style=style,
        script=script,
    )
    return [part.encode() for part in re.split(r"\$meta|\$columns|\$details", page)]


def _script(name: str) -> str:
    """A module as part of the page's script: a function that returns what the module exports."""
    text = _read(f"{name}.js")
    exported: list[str] = []
    for kind, declared in _EXPORT.findall(text):
        # One statement may declare several constants.
        exported += _CONSTANT.findall(declared.partition("(")[0]) if kind == "const" else _NAME.findall(declared)[:1]
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = module_\2;", text))
    return f"const module_{name} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files(__package__).joinpath("assets").joinpath(name).read_text("utf-8")
