"""``ray-tracing-hooks completion``: prints a completion script for a shell."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from ray_tracing_hooks._cli.text import SafeError, examples

_SHELLS = ("bash", "zsh", "fish")
_PROGRAM = "ray-tracing-hooks"


@click.command(
    short_help="Print a completion script for a shell.",
    epilog=examples(
        "ray-tracing-hooks completion bash >> ~/.bashrc",
        "ray-tracing-hooks completion zsh >> ~/.zshrc",
        "ray-tracing-hooks completion fish > ~/.config/fish/completions/ray-tracing-hooks.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print a script that makes a shell complete commands, options and their values.

    SHELL defaults to the variable SHELL. bash must be 4.4 or newer.
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    found = get_completion_class(shell) if shell in _SHELLS else None
    if found is None:
        raise click.UsageError(f"name the shell: one of {', '.join(_SHELLS)}")
    variable = f"_{_PROGRAM.replace('-', '_').upper()}_COMPLETE"
    try:
        click.echo(found(context.find_root().command, {}, _PROGRAM, variable).source())
    except RuntimeError as error:  # bash is too old, or not installed
        raise SafeError(str(error)) from None
