"""What the commands that show spans have in common: where the spans are, and reading them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from ray_tracing_hooks._cli.text import SafeError, warn
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.model import Span
from ray_tracing_hooks._settings import load

_LONG_BYTES = 32 * 1024 * 1024
"""From this size on, reading takes long enough for a progress bar."""

_HOW_TO_RECORD = (
    'To record some, run a program with ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup"), '
    "or name the folder that holds them."
)


def read(paths: Sequence[str]) -> tuple[list[Span], reading.Quality]:
    """The spans below ``paths``, or in the configured local folder if there are none.

    Ends the command with exit code 2 for a path that cannot be read and 1 where there are no spans.
    """
    given = list(paths) or [load(os.environ, warn).local_dir]
    where = ", ".join(given)
    try:
        files = reading.files(given)
    except FileNotFoundError as error:
        if not paths:
            raise SafeError(f"no spans yet: there is no folder {where}. {_HOW_TO_RECORD}") from None
        raise click.BadParameter(
            f"{error.filename!r} does not exist: expected a folder of spans or a file of them", param_hint="PATH"
        ) from None
    except OSError as error:
        raise click.BadParameter(f"{error.filename!r} cannot be read: {error.strerror}", param_hint="PATH") from None
    if not files:
        raise SafeError(f"no spans in {where}: it holds no *.jsonl, *.jsonl.gz or *.spool. {_HOW_TO_RECORD}")
    spans, quality = _read_files(files)
    if not spans:
        first = f" The first of {quality.bad_lines} problems: {quality.problems[0]}." if quality.problems else ""
        raise SafeError(f"no spans in {where}, though there are files for them.{first} {_HOW_TO_RECORD}")
    return spans, quality


def _read_files(files: Sequence[str]) -> tuple[list[Span], reading.Quality]:
    size = sum(os.path.getsize(file) for file in files if os.path.exists(file))
    if size < _LONG_BYTES:
        return reading.read(files)
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading spans", total=size)
        return reading.read(files, lambda count: progress.advance(task, count))
