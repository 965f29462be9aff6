"""``ray-tracing-hooks config``: shows the settings that are in force in this shell; and ``completion``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
from click.shell_completion import get_completion_class

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._cli.options import examples, json_option
from ray_tracing_hooks._cli.screen import SafeError, warn
from ray_tracing_hooks._ops.diagnosis import PROBLEM, WARNING
from ray_tracing_hooks._ops.effective import Effective, effective, misspelled, severity
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._settings import otel
from ray_tracing_hooks._settings.otel import VARIABLES, Variable
from ray_tracing_hooks._settings.table import Setting, all_settings
from ray_tracing_hooks._settings.values import empty, masked
from ray_tracing_hooks._ship.registry import usable

_DEFAULT = "default"


class _Row(NamedTuple):
    """A setting and its current value, without secrets."""

    setting: Setting | Variable
    variable: str
    value: Any
    source: str
    note: str = ""
    """What applies here and now."""
    wrong: str = ""
    """The variable whose value is not used, or not all of it, since it is wrong."""

    @property
    def text(self) -> str:
        if self.setting.secret and isinstance(self.value, str):
            return self.value
        return self.setting.text(self.value)

    @property
    def meaning(self) -> str:
        meaning = self.setting.meaning.replace("`", "")
        return f"{meaning} ({self.note})" if self.note else meaning

    def described(self) -> dict[str, Any]:
        value = sorted(self.value) if isinstance(self.value, frozenset) else self.value
        described = {"variable": self.variable, "value": value, "source": self.source, "meaning": self.setting.meaning}
        return {**described, "wrong": self.wrong} if self.wrong else described


@click.command(
    epilog=examples(
        "ray-tracing-hooks config",
        "RAY_TRACING_CONFIG=traces.yaml ray-tracing-hooks config --json",
    ),
)
@json_option
@click.pass_context
def config(context: click.Context, in_json: bool) -> None:
    """Show every setting: its value, where it comes from, and what it means.

    Settings are the RAY_TRACING_* variables, the YAML file that RAY_TRACING_CONFIG names, and the standard OTEL_*
    variables that apply. Passwords, keys and headers are shown by name only. For a wrong value, the command shows the
    value that is used instead, and its exit code is 2. Hints do not change the exit code.
    """
    found = effective(os.environ)
    problems = [(severity(problem), problem) for problem in found.problems]
    problems += [
        (WARNING, f"nothing reads {wrong}; did you mean {right}? Set that instead")
        for wrong, right in misspelled(os.environ)
    ]
    ours = [
        _row(setting, (setting.variable,), found.settings.value(setting), found.sources.get(setting.name))
        for setting in all_settings()
    ]
    ours = [_exporters(row, found) if row.setting.name == "exporters" else row for row in ours]
    _compiled.use.allow(found.settings.compiled)
    ours = [
        row._replace(note=f"here it is {_compiled.use.described()}") if row.variable == _compiled.VARIABLE else row
        for row in ours
    ]
    standard = []
    for variable in VARIABLES:
        value, source = otel.read_with_source(variable.name, os.environ, lambda _problem: None)
        standard.append(_row(variable, variable.forms(), value, source))
    if in_json:
        described = {
            "settings": [{"name": row.setting.name, **row.described()} for row in ours],
            "standard": [row.described() for row in standard],
            "compiled": _compiled.use.described(),
            "problems": [text for _, text in problems],
        }
        click.echo(json.dumps(described, indent=2))
    else:
        _print(ours, standard, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
        for grade, problem in problems:
            warn(problem, "error" if grade == PROBLEM else "warning")
    if any(grade == PROBLEM for grade, _ in problems):
        context.exit(2)


def _row(
    setting: Setting | Variable,
    variables: Sequence[str],
    value: Any,
    source: str | None,
) -> _Row:
    """The row of a setting that these variables can set; the first that is set takes precedence."""
    given = next((name for name in variables if not empty(os.environ.get(name))), "")
    return _Row(
        setting,
        variables[-1],
        masked(setting.kind, value) if setting.secret else value,
        source or _DEFAULT,
        wrong=given if given != source else "",
    )


def _exporters(row: _Row, found: Effective) -> _Row:
    """The row of the exporters, with those that there are."""
    used = usable(found.settings.exporters)[0]
    if used == found.settings.exporters:
        return row
    is_part = set(used) <= set(found.settings.exporters)
    return row._replace(value=used, source=row.source if is_part else _DEFAULT, wrong=row.source)


def _print(ours: list[_Row], standard: list[_Row], width: int | None) -> None:
    """Print as text. ``width`` is that of the terminal; without one nothing is wrapped."""
    for row in ours:
        _print_in_full(row, width)
    given = [row for row in standard if row.source != _DEFAULT or row.wrong]
    if given:
        _print_heading("Standard variables that are set")
        for row in given:
            _print_in_full(row, width)
    unset = [row for row in standard if row not in given]
    if unset:
        _print_heading("Standard variables that are not set (and the defaults)")
    name_width = max((len(row.variable) for row in unset), default=0)
    for row in unset:
        instead = row.text.replace("`", "")
        _print_wrapped(f"{row.meaning}{f' ({instead})' if instead else ''}", width, f"{row.variable:{name_width}}  ")


def _print_heading(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


def _print_in_full(row: _Row, width: int | None) -> None:
    # A settings file may be untrusted.
    text = safe(row.text.replace("`", ""))
    source = f"{row.source}; the value of {row.wrong} is wrong" if row.wrong else row.source
    click.echo(f"{click.style(row.variable, bold=True)} ={f' {text}' if text else ''}  ({safe(source)})")
    _print_wrapped(row.meaning, width, "    ")


def _print_wrapped(text: str, width: int | None, head: str) -> None:
    """Print the text after ``head``, with further lines indented to its start."""
    if width is None:
        click.echo(head + text)
    else:
        indent = " " * len(head)
        click.echo(click.wrap_text(text, max(width, len(head) + 20), initial_indent=head, subsequent_indent=indent))


# --- Completion --------------------------------------------------------------------------------------------------

_SHELLS = ("bash", "zsh", "fish")
_PROGRAMS = ("ray-tracing-hooks", "rth")


@click.command(
    epilog=examples(
        "ray-tracing-hooks completion bash >> ~/.bashrc",
        "ray-tracing-hooks completion zsh >> ~/.zshrc",
        "ray-tracing-hooks completion fish > ~/.config/fish/conf.d/ray-tracing-hooks.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print a completion script for your shell, which completes commands, options and their values.

    SHELL defaults to the variable SHELL. bash must be 4.4 or newer.
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    found = get_completion_class(shell) if shell in _SHELLS else None
    if found is None:
        raise click.UsageError(f"{shell!r} (SHELL) has no completion: name the shell: one of {', '.join(_SHELLS)}")
    try:
        for program in _PROGRAMS:
            variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
            click.echo(found(context.find_root().command, {}, program, variable).source())
    except RuntimeError as error:  # bash is too old, or not installed
        raise SafeError(str(error)) from None
