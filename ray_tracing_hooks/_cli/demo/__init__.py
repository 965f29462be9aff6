"""``ray-tracing-hooks demo``: finds the bottleneck of a small program, and compares it with the mended one."""

from __future__ import annotations

import difflib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli import output as outputs
from ray_tracing_hooks._cli.compare.text import lines
from ray_tracing_hooks._cli.options import examples
from ray_tracing_hooks._cli.screen import SafeError, print_lines, progress, warn
from ray_tracing_hooks._cli.summary import print_summary
from ray_tracing_hooks._cli.view import opened_in_browser
from ray_tracing_hooks._cli.view import write as write_report
from ray_tracing_hooks._insight.analysis.comparison import compare
from ray_tracing_hooks._insight.views.page import is_report
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._safety.private import open_folder
from ray_tracing_hooks._settings.table import load

_SLOW, _FAST = (os.path.join(os.path.dirname(__file__), name) for name in ("slow.py", "fast.py"))
_REPORT = "report.html"

_SHOWN_OUTPUT = 20
"""The last lines of a program that failed."""

_PAUSE = 0.2
"""Seconds between two updates of the progress."""


@click.command(
    epilog=examples("ray-tracing-hooks demo", "ray-tracing-hooks demo --open"),
)
@click.option("-o", "--output", metavar="DIR", help="The folder to write; by default a new one with your spans.")
@click.option("--open", "opens", is_flag=True, help="Open the report in your browser.")
def demo(output: str | None, opens: bool) -> None:
    """Run a small Ray program, show its bottleneck, and compare it with the mended program.

    The demo starts a Ray cluster of its own twice, and takes less than half a minute. It shows the commands that give
    you the same for your own programs.
    """
    if find_spec("ray") is None:
        raise SafeError(f"the demo runs a Ray program, and {sys.executable} has no Ray: run pip install ray")
    folder = _made(output)
    report = os.path.join(folder, _REPORT)
    replace = outputs.may_replace(report, force=False, is_ours=is_report)

    click.echo(f"1. This program takes longer than it must:\n   {_SLOW}\n")
    before = inputs.chosen([_spans(_SLOW, folder)], inputs.Which())[0]
    print_summary(before, 1)
    write_report(report, before, replace=replace, source=os.path.basename(_SLOW))
    shown = opens and opened_in_browser(Path(report).absolute().as_uri())

    click.echo(f"\n2. The same program with that advice:\n   {_FAST}\n")
    for line in _difference():
        click.echo(click.style(line, fg="green" if line.lstrip().startswith("+") else "red"))
    now = inputs.chosen([_spans(_FAST, folder)], inputs.Which())[0]
    print_lines(lines(compare([now], [before])))

    click.echo(f"\n{'Opened' if shown else 'Open in a browser:'} {safe(report)}")
    click.echo(f"Every call: ray-tracing-hooks tree {safe(shlex.quote(_spans_of(_SLOW, folder)))}")
    click.echo("Your program: ray-tracing-hooks run --open program.py")


def _made(given: str | None) -> str:
    """The folder of this demo, which is there now."""
    if given == "":
        raise click.BadParameter("it is empty: name a folder", param_hint="--output")
    path = given or os.path.join(
        load(os.environ, warn).in_session().local_dir, f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    try:
        os.close(open_folder(path, given=given is not None))
    except OSError as error:
        raise SafeError(f"{path!r} cannot be the folder of the demo: {error.strerror}. Name another with -o") from None
    return os.path.abspath(path)


def _spans_of(program: str, folder: str) -> str:
    return os.path.join(folder, os.path.basename(program).removesuffix(".py"))


def _spans(program: str, folder: str) -> str:
    """Run a program of the demo, and return the folder of its spans. Ends the command with exit code 1 if it fails."""
    spans = _spans_of(program, folder)
    ours = ("RAY_TRACING_", "OTEL_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {"RAY_TRACING_LOCAL_DIR": spans, "RAY_TRACING_RAY": "+get,wait"}
    name, began = os.path.basename(program), time.monotonic()
    with (
        progress() as advance,
        subprocess.Popen(  # noqa: S603  a program of this package
            [sys.executable, program],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child,
    ):
        try:
            said = None
            while said is None:
                advance(f"running {name} on a Ray cluster of its own, {time.monotonic() - began:.0f} s", 0, 0)
                with suppress(subprocess.TimeoutExpired):
                    said, _ = child.communicate(timeout=_PAUSE)
        except BaseException:
            child.terminate()
            raise
    if child.returncode:
        for line in said.splitlines()[-_SHOWN_OUTPUT:]:
            click.echo(safe(line), err=True)
        raise SafeError(f"{program} ended with {child.returncode}: see above. `ray-tracing-hooks doctor` may know why")
    return spans


def _difference() -> Iterator[str]:
    slow, fast = (Path(path).read_text(encoding="utf-8").splitlines() for path in (_SLOW, _FAST))
    for line in difflib.unified_diff(slow, fast, n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"   {line}"
