"""Builds the reports of ``serve``, each in its own process, so that its memory is freed afterwards."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, TextIO

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._insight.ingest import read as reading
from ray_tracing_hooks._insight.ingest.files import UNREADABLE, span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.views import page
from ray_tracing_hooks._insight.views.server import INDEX, PAGE, Made

Tell = Callable[[str], None]


class WrongChoiceError(ValueError):
    """No trace, or more than one, starts with what was asked for."""


class Asked(NamedTuple):
    """The arguments of the command."""

    paths: list[str]
    trace_id: str | None
    everything: bool
    max_spans: int
    """With more spans, the page queries the server."""


def make(asked: Asked, folder: str, tell: Tell) -> Made:
    """Read the spans and build their page in a folder, with an index beside it if they are many.

    Raises OSError or ValueError if the spans cannot be read, or there are none, and WrongChoiceError if none is of
    the trace that is asked for, or it is not clear which one that is.
    """
    with reading.collector_paused():
        files = span_files(asked.paths, with_subfolders=True)
        table = load(files, _reported_in_percent(files, tell))
        if not len(table):
            raise ValueError("the files contain no spans yet")
        tell("clocks")
        try:
            if asked.everything:
                analysis = inputs.analysed(table, asked.paths)
            else:
                analysis, _ = inputs.chosen(table, asked.trace_id, asked.paths)
            del table  # the analysis may have its own
        except click.ClickException as error:
            raise WrongChoiceError(error.message) from None
        where = ", ".join(asked.paths)
        with open(os.path.join(folder, PAGE), "wb") as file:
            if len(analysis.table) <= asked.max_spans:
                tell("page")
                page.write(file, analysis, source=where)
            else:
                from ray_tracing_hooks._insight.views.index.build import build  # noqa: PLC0415  for large runs only

                build(os.path.join(folder, INDEX), file, analysis, source=where, on_step=tell)
        return Made(len(analysis.table))


def _reported_in_percent(files: list[str], tell: Tell) -> Callable[[int], None]:
    whole = inputs.size_of(files)
    read = 0

    def add(size: int) -> None:
        nonlocal read
        read += size
        tell(f"reading, {100 * min(read, whole) // (whole or 1)} %")

    return add


_CHILD = """\
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from ray_tracing_hooks._cli.serving import answer
answer(sys.stdin.buffer, sys.stdout)
"""


def answer(request: BinaryIO, output: TextIO) -> None:
    """In the child process: build the report; each line of output is its progress, the last one its result."""
    asked, folder = pickle.load(request)  # noqa: S301  from our own parent

    def say(**what: object) -> None:
        print(json.dumps(what), file=output, flush=True)

    try:
        say(made=make(asked, folder, lambda doing: say(doing=doing)))
    except WrongChoiceError as error:
        say(wrong=str(error))
    except UNREADABLE as error:
        say(unreadable=str(getattr(error, "strerror", None) or error))


class Maker:
    """Builds each report in a child process."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    def make(self, folder: str, tell: Tell) -> Made:
        """Like :func:`make`. Raises ValueError; RuntimeError if the child ended unexpectedly."""
        with self._lock:
            if self._is_ended:
                raise ValueError("the server has ended")
            # Isolated, so that nothing of the current folder is imported. In its own session, since Ctrl-C is for this
            # process, which ends the child.
            child = self._child = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        assert child.stdin is not None
        assert child.stdout is not None
        with child:
            pickle.dump(list(sys.path), child.stdin)
            pickle.dump((self._asked, folder), child.stdin)
            child.stdin.flush()
            for line in child.stdout:
                what = json.loads(line)
                if "doing" in what:
                    tell(what["doing"])
                elif "wrong" in what:
                    raise WrongChoiceError(what["wrong"])
                elif "unreadable" in what:
                    raise ValueError(what["unreadable"])
                else:
                    return Made(*what["made"])
        raise RuntimeError(f"it ended with exit code {child.returncode}")

    def end(self) -> None:
        """Build no further reports, and abort the current one."""
        with self._lock:
            self._is_ended = True
            if self._child is not None:
                self._child.kill()
                self._child.wait()
