"""``ray-tracing-hooks config``: the settings that this shell's variables and their file amount to."""

from __future__ import annotations

import json
import os

import click

from ray_tracing_hooks._settings import SETTINGS, load_with_sources


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def config(context: click.Context, as_json: bool) -> None:
    """Show every setting: its value, where it comes from, and what it means.

    Settings are the RAY_TRACING_* variables and the YAML file that RAY_TRACING_CONFIG names. What is wrong with them is
    shown too, and ends with exit code 2.
    """
    problems: list[str] = []
    settings, sources = load_with_sources(os.environ, problems.append)
    rows = [(setting, getattr(settings, setting.name), sources[setting.name]) for setting in SETTINGS]
    if as_json:
        described = [
            {
                "name": setting.name,
                "variable": setting.variable,
                "value": sorted(value) if isinstance(value, frozenset) else value,
                "source": source,
                "meaning": setting.meaning,
            }
            for setting, value, source in rows
        ]
        click.echo(json.dumps({"settings": described, "problems": problems}, indent=2))
    else:
        for setting, value, source in rows:
            click.echo(f"{click.style(setting.variable, bold=True)} = {setting.text(value)}  ({source})")
            click.echo(f"    {setting.meaning.replace('`', '')}")
        for problem in problems:
            click.echo(f"error: {problem}", err=True)
    if problems:
        context.exit(2)
