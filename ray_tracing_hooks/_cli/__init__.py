"""The command ``ray-tracing-hooks``; one file a command."""

from __future__ import annotations

import click

from ray_tracing_hooks import __version__
from ray_tracing_hooks._cli.config import config
from ray_tracing_hooks._cli.export import export
from ray_tracing_hooks._cli.replay import replay
from ray_tracing_hooks._cli.serve import serve
from ray_tracing_hooks._cli.states import states
from ray_tracing_hooks._cli.summary import summary
from ray_tracing_hooks._cli.tree import tree
from ray_tracing_hooks._cli.view import view


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ray-tracing-hooks")
def main() -> None:
    """Tracing of Ray programs: look at what was recorded, send it on, see how it is set up."""


for command in (tree, summary, view, serve, export, states, replay, config):
    main.add_command(command)
