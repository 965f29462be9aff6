"""The command ``ray-tracing-hooks``, with one file per subcommand."""

from __future__ import annotations

import os
from importlib import import_module

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
        command: click.Command = getattr(import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command


_NAMES = (
    "run",
    "tree",
    "summary",
    "view",
    "serve",
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
"""The commands, each with a module of its name."""

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
        from ray_tracing_hooks._settings import load  # noqa: PLC0415  most users have no settings file

        # Commands read spools. The command `config` reports what is wrong with the file.
        _compiled.use.allow(load(os.environ, lambda _problem: None).compiled)
