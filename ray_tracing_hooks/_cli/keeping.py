"""Writes runs to a store, for the commands that do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.screen import LONG_SPANS, SafeError, counted, progress, warn
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.ingest.load import collector_paused
from ray_tracing_hooks._insight.ingest.sources import is_elsewhere, shown
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.store.targets import TargetError, target_of
from ray_tracing_hooks._insight.store.write import Store
from ray_tracing_hooks._insight.views.redaction import Redaction
from ray_tracing_hooks._safety.guard import safe

_NEEDED = "a store needs {}: pip install 'ray-tracing-hooks[insight]'"


def check(place: str, hint: str) -> None:
    """End the command with exit code 2 if there cannot be a store at ``place``, and with 1 without pyarrow."""
    if not is_elsewhere(place) and (place in {"", "-"} or (os.path.lexists(place) and not os.path.isdir(place))):
        raise click.BadParameter(f"{place!r} is no folder: name one for the store", param_hint=hint)
    if is_elsewhere(place):
        try:
            target_of(place).close()
        except TargetError as error:
            raise click.BadParameter(safe(str(error)), param_hint=hint) from None
    if find_spec("pyarrow") is None:
        raise SafeError(_NEEDED.format("pyarrow"))


def keep(
    place: str,
    table: Table,
    folders: Sequence[str],
    *,
    redaction: Redaction | None = None,
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _known: {},
    hint: str = "--output",
) -> list[dict[str, Any]]:
    """Write the runs of a table to the store at ``place``; returns what their ``run.json`` says.

    ``folders`` may hold their task states and samples of nodes, ``more`` is what it adds to that. Ends the command with
    exit code 1 if that fails, and with 2 if there cannot be a store at ``place``.
    """
    try:
        target = target_of(place, lambda: warn(f"another run writes to {place}: waiting for its end", "note"))
    except TargetError as error:
        raise click.BadParameter(safe(str(error)), param_hint=hint) from None
    size = len(table)
    try:
        with collector_paused(), progress(shown=size >= LONG_SPANS) as advance:
            on_spans = counted(advance, "writing spans", size)
            store = Store(target, lambda part: inputs.analysed(part, folders), folders, redaction, on_spans)
            return store.keep(table, more)
    except ImportError as error:
        raise SafeError(_NEEDED.format(error.name)) from None
    except TargetError as error:
        raise SafeError(str(error)) from None
    finally:
        target.close()


def written_text(place: str, kept: Sequence[Mapping[str, Any]]) -> str:
    """What was written, and what to do next."""
    spans = sum(each["counts"]["spans"] for each in kept)
    ids = f" ({kept[0]['id']})" if len(kept) == 1 else ""
    where = safe(shown(place))
    return (
        f"{count(spans, 'span')} of {count(len(kept), 'run')}{ids} in {where}\n"
        f"next: ray-tracing-hooks runs {shlex.quote(where)}"
    )
