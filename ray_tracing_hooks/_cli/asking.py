"""What commands share that ask a running cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._ops.address import AddressError, find

NO_RAY = "Ray is not installed here"


def cluster_address(given: str | None, *, clients: bool = True) -> str:
    """The address of the cluster; an invalid one ends the command with exit code 2.

    Raises NoRayError, and NoClusterError if none is given and none runs here.
    """
    try:
        return find(given, clients=clients)
    except AddressError as error:
        raise click.BadParameter(safe(str(error)), param_hint="--address") from None


@contextmanager
def progress(*, shown: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows on standard error, if it is a terminal, what is being done, and how much of it is done."""
    from rich.console import Console  # noqa: PLC0415  slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("", total=1)

        def advance(doing: str, done: int, total: int) -> None:
            bar.update(task, description=doing, completed=done, total=max(1, total))

        yield advance
