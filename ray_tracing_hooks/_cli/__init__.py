"""The command ``ray-tracing-hooks``; nearly each subcommand has a file."""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._cli.options import examples
from ray_tracing_hooks._version import __version__

_GROUPS = {
    "Record": {
        "demo": "Show the bottleneck of a small Ray program.",
        "run": "Run your program with tracing, and show where its time went.",
    },
    "Look": {
        "summary": "Show where the time of a run went.",
        "compare": "Compare runs with earlier ones.",
        "trend": "Show a function over the last runs, and where it changed.",
        "tree": "Show the traces of a run as trees.",
        "view": "Write the report of a run, one HTML file.",
        "export": "Write the spans of a run for another viewer.",
        "runs": "List the runs of a store, or of a folder of spans.",
    },
    "Cluster": {
        "doctor": "Find out why spans are missing, on every node.",
        "status": "Show what each node records, delivers and has waiting.",
        "enable": "Record spans on a running cluster, without a restart.",
        "disable": "Record nothing on a running cluster, until you enable it.",
        "configure": "Change settings of a running cluster, without a restart.",
        "states": "Fetch task states, which say what calls waited for.",
        "collect": "Fetch the span files of all nodes into one folder.",
    },
    "Delivery": {"replay": "Send recorded spans to an exporter."},
    "Set-up": {
        "config": "Show every setting and where its value comes from.",
        "completion": "Print a completion script for your shell.",
    },
}
"""The commands with a sentence on each. It stands here, since some modules take longer to import than help may take."""

_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}

_MODULES = {
    **dict.fromkeys(("enable", "disable", "configure"), "changing"),
    **dict.fromkeys(("states", "collect"), "fetching"),
    "completion": "config",
}
"""The modules of commands that have no module of their own name."""


class _Commands(click.Group):
    """Imports the module of a command on demand: some imports take longer than most commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{_MODULES.get(cmd_name, cmd_name)}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Ends the command with an error if the output cannot be written, as on a full disk."""
        if sys.stdout is None:  # it was closed
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # as standard error, for terminals that lack Unicode
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


_FILE = "RAY_TRACING_CONFIG"


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("ray-tracing-hooks demo --open", "ray-tracing-hooks run program.py", "rth summary    # in short"),
)
@click.version_option(__version__, prog_name="ray-tracing-hooks")
def main() -> None:
    """Trace Ray programs: record a run, look at it, and change tracing on a running cluster."""
    if _FILE in os.environ:
        from ray_tracing_hooks._settings.table import load  # noqa: PLC0415  most users have no settings file

        # Commands read spools. The command `config` reports what is wrong with the file.
        _compiled.use.allow(load(os.environ, lambda _problem: None).compiled)
