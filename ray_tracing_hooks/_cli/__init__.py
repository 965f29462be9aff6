"""The command ``ray-tracing-hooks``; nearly each subcommand has a file."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any

import click

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._cli.text import examples
from ray_tracing_hooks._version import __version__


class _Commands(click.Group):
    """Imports the module of a command on demand: some imports take longer than most commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NAMES:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{_MODULES.get(cmd_name, cmd_name)}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Ends the command with an error if the output cannot be written, as on a full disk."""
        if sys.stdout is None:  # it was closed
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _UNWRITABLE or error.filename is not None:
                raise
            with open(os.devnull, "w") as nothing:  # for what is buffered, which would fail again at exit
                os.dup2(nothing.fileno(), 1)
            raise click.ClickException(f"the output cannot be written: {error.strerror}") from None
        return result


_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


_NAMES = (
    "demo",
    "run",
    "tree",
    "summary",
    "view",
    "export",
    "doctor",
    "status",
    "enable",
    "disable",
    "configure",
    "collect",
    "states",
    "replay",
    "config",
    "completion",
)
"""The commands, each in a module of its name, or of that in ``_MODULES``."""

_MODULES = dict.fromkeys(("enable", "disable", "configure"), "changing")

_FILE = "RAY_TRACING_CONFIG"


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("ray-tracing-hooks run program.py", "ray-tracing-hooks summary", "ray-tracing-hooks view --open"),
)
@click.version_option(__version__, prog_name="ray-tracing-hooks")
def main() -> None:
    """Trace Ray programs: record a run, analyse and export its spans; check and change tracing on a running cluster."""
    if _FILE in os.environ:
        from ray_tracing_hooks._settings.table import load  # noqa: PLC0415  most users have no settings file

        # Commands read spools. The command `config` reports what is wrong with the file.
        _compiled.use.allow(load(os.environ, lambda _problem: None).compiled)
