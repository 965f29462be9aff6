"""Everything that users see of the package, as readable text, made from the tables in its code.

``make reference`` writes it to ``tests/unit/contract.txt``.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import name_tables

import ray_tracing_hooks
from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main as command
from ray_tracing_hooks._connection import folders
from ray_tracing_hooks._control import listener
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._settings import otel, table
from ray_tracing_hooks._ship import files
from ray_tracing_hooks._ship.sinks import local
from ray_tracing_hooks._spool import layout, progress

FILE = Path(__file__).parents[1] / "unit/contract.txt"
PACKAGE = "ray-tracing-hooks"


def text() -> str:
    """The whole contract, one thing a line, in sections."""
    sections = {
        "Modules: what they offer": public_names(),
        "Entry points": entry_points(),
        "Dependencies and extras": dependencies(),
        "Settings: default (live: `configure` changes it in running processes; secret: never shown)": settings(),
        "Standard variables: default": variables(),
        "Names of spans and events, and other words in them": words(),
        "Attributes: type, where": attributes(),
        "Metrics: instrument, unit, attributes": metrics(),
        "Commands: arguments, options, exit codes": commands(command, PACKAGE),
        "Files: patterns and examples of their names": file_names(),
    }
    return "\n".join(f"# {title}\n\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections.items())


def public_names() -> Iterator[str]:
    for name in ("", *sorted(module.name for module in pkgutil.iter_modules(ray_tracing_hooks.__path__))):
        if not name.startswith("_"):
            module = import_module(f"{ray_tracing_hooks.__name__}.{name}".rstrip("."))
            for attribute in sorted(module.__all__):
                value = getattr(module, attribute)
                if not isinstance(value, str):  # the names of spans, attributes and metrics are below
                    yield f"{module.__name__}:{attribute}{_signature(value)}"


def _signature(value: Any) -> str:
    if inspect.isclass(value):
        members = (name for name in (*vars(value), *inspect.get_annotations(value)) if not name.startswith("_"))
        return f" ({', '.join(sorted(set(members)))})"
    return str(inspect.signature(value))


def entry_points() -> Iterator[str]:
    for point in importlib.metadata.distribution(PACKAGE).entry_points:
        yield f"{point.group} {point.name} = {point.value}"


def dependencies() -> Iterator[str]:
    metadata = importlib.metadata.metadata(PACKAGE)
    yield f"python {metadata['Requires-Python']}"
    yield from sorted(row for row in metadata.get_all("Requires-Dist", []) if not re.search("'(dev|bench)'", row))


def settings() -> Iterator[str]:
    for row in table.all_settings():
        notes = [word for word, holds in (("live", row.name in table.LIVE), ("secret", row.secret)) if holds]
        standard = f", else {row.standard}" if row.standard else ""
        yield f"{row.variable} = {row.text(row.default)}{standard}{_notes(notes)}"


def variables() -> Iterator[str]:
    for row in otel.VARIABLES:
        notes = [word for word, holds in (("live", row.live), ("secret", row.secret)) if holds]
        yield f"{row.name} = {row.text(row.default)}{_notes(notes)}"


def _notes(notes: list[str]) -> str:
    return f" ({', '.join(notes)})" if notes else ""


def words() -> Iterator[str]:
    others = {row.key for row in name_tables.attributes()} | set(name_tables.metrics())
    for name in sorted(names.__all__):
        value = getattr(names, name)
        if isinstance(value, str) and value not in others:
            yield f"{value}  {name}"


def attributes() -> Iterator[str]:
    for row in sorted(name_tables.attributes()):
        yield f"{row.key}: {row.kind}, {row.where}"


def metrics() -> Iterator[str]:
    for row in name_tables.metrics():
        yield f"{row}: {row.instrument}, {row.unit}" + "".join(f", {key}" for key in row.attributes)


def commands(group: click.Command, name: str) -> Iterator[str]:
    """A command with its parameters, and the sentences of its help that state exit codes; then those below it."""
    with click.Context(group, info_name=name, **command.context_settings) as context:
        yield name
        for parameter in group.get_params(context):
            yield f"    {_parameter(parameter)}"
        help_text = " ".join((group.help or "").split())
        for sentence in re.findall(r"[^.]*\bexit codes?\b.*?(?:\.(?= |$)|$)", help_text, flags=re.IGNORECASE):
            yield f"    exit: {sentence.strip()}"
        if isinstance(group, click.Group):
            for each in sorted(group.list_commands(context)):
                below = group.get_command(context, each)
                assert below is not None
                yield from commands(below, f"{name} {each}")


def _parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return parameter.make_metavar(click.Context(click.Command("")))
    assert isinstance(parameter, click.Option)
    parts = [", ".join((*parameter.opts, *parameter.secondary_opts))]
    if isinstance(parameter.type, click.Choice):
        parts.append("|".join(map(str, parameter.type.choices)))
    elif not parameter.is_flag:
        parts.append(parameter.metavar or parameter.type.name.upper())
    notes = [word for word in ("required", "multiple", "hidden") if getattr(parameter, word)]
    default = parameter.to_info_dict()["default"]
    if parameter.default is not None and isinstance(default, (str, int, float)) and not parameter.is_flag:
        notes.append(f"default {json.dumps(default)}")
    if parameter.envvar:
        notes.append(f"from {parameter.envvar}")
    return " ".join(parts) + _notes(notes)


def file_names() -> Iterator[str]:
    yield f"local files: {local._OURS.pattern}"
    yield f"states of tasks: {task_states.file_name('SESSION')}"
    yield f"in Ray's session folder: {folders.FOLDER}"
    yield f"spool: {layout.spool_name('1234567890abcdef', '12345678')}"
    yield f"segment: {layout.segment_name('PROCESS', 1)}, with the header {layout.MAGIC!r}"
    yield f"progress: {progress.file_name('EXPORTER')}"
    for module in (layout, files, listener):
        for name, value in sorted(vars(module).items()):
            if re.fullmatch("[A-Z][A-Z_]*", name) and isinstance(value, str) and re.search("[a-z]", value):
                yield f"{value}  {name}"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
