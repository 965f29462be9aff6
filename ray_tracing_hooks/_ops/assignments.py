"""Settings for running processes, as a user writes them: what can be changed, and which values are valid."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ray_tracing_hooks._control.control import EXPORTERS, SAMPLER
from ray_tracing_hooks._safety.errors import SettingError
from ray_tracing_hooks._settings import otel
from ray_tracing_hooks._settings.otel import READABLE_FILE, VARIABLES, Variable
from ray_tracing_hooks._settings.table import LIVE, PREFIX, Setting, all_settings, load
from ray_tracing_hooks._settings.values import MASK, masked, unicode

_SIGNALS = ("traces", "metrics", "logs")
_SKYWALKING = "skywalking"

_RESTART = "it can only be set where the cluster is started"


def variables_of(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``NAME=VALUE`` pairs; a ``NAME`` alone has the value that it has in ``environ``.

    A name is a variable, or the name of a setting as in the YAML file. Raises SettingError.
    """
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        variable, row = _row(name.strip())
        if not equals:
            if variable not in environ:
                raise SettingError(f"{name} has no value: write {name}=VALUE, or set {variable} in this shell")
            value = environ[variable]
        try:
            unicode(value)
        except UnicodeError:
            raise SettingError(f"{variable} is not valid: its value is not text in UTF-8") from None
        if found.setdefault(variable, value.strip()) != value.strip():
            raise SettingError(f"{variable} is given twice, with different values")
        if value.strip():
            _check(variable, row, value)
    return found


def names_of(given: Sequence[str]) -> list[str]:
    """The variables of these names. Raises SettingError."""
    return [_row(name.strip())[0] for name in given]


def shown(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without the values that are secret."""
    return {name: _public(name, value) if value else value for name, value in sorted(variables.items())}


def _public(variable: str, value: str) -> str:
    """The value without what is secret, as in other commands."""
    try:
        _, row = _row(variable)
        found = masked(row.kind, row.kind.read(value)) if row.secret else value
    except (SettingError, ValueError):
        return MASK
    return found if isinstance(found, str) else row.text(found)


def _row(name: str) -> tuple[str, Setting | Variable]:
    """The variable of a name, and its row in its table. Raises SettingError for one that cannot be changed."""
    settings = {row.variable: row for row in all_settings()}
    variable = name if name.upper() == name else f"{PREFIX}{name.upper()}"
    ours = settings.get(variable)
    if ours is not None:
        if ours.name not in LIVE:
            raise SettingError(f"{variable} cannot be changed while processes run: {_RESTART}")
        return variable, ours
    standard = {form: row for row in VARIABLES for signal in _SIGNALS for form in row.forms(signal)}
    row = standard.get(name)
    if row is None:
        known = [*settings, *(setting.name for setting in all_settings()), *standard]
        closest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {closest[0]}?" if closest else "`ray-tracing-hooks config` lists all settings"
        raise SettingError(f"there is no setting {name!r}; {hint}")
    if not row.live:
        raise SettingError(f"{name} cannot be changed while processes run: {_RESTART}")
    return name, row


def _check(variable: str, row: Setting | Variable, value: str) -> None:
    """Raises SettingError for an invalid value."""
    problems: list[str] = []
    if isinstance(row, Setting):
        load({variable: value}, problems.append)
    elif row.kind is not READABLE_FILE:  # it is a file of the nodes
        try:
            row.kind.read(value)
        except ValueError:
            what = variable if row.secret else f"{variable}={value!r}"
            problems.append(f"{what} is not valid: expected {row.kind.expected}")
    if problems:
        # What is said of a process does not hold here: nothing is used instead.
        raise SettingError("; ".join(problems).replace(" is ignored:", " is not valid:").partition("; using ")[0])
    if variable == SAMPLER and value.strip().lower().removeprefix("parentbased_") not in otel.SAMPLERS:
        raise SettingError(f"{variable}={value!r}: running processes can only change to a built-in sampler")
    if variable == EXPORTERS and value.strip() == "none":
        raise SettingError(f"{variable}=none is not valid here: `ray-tracing-hooks disable` records nothing")
    if variable == EXPORTERS and _SKYWALKING in value:
        raise SettingError(
            f"the exporter {_SKYWALKING} cannot be added while processes run, since it adds headers to requests: "
            f"{_RESTART}"
        )
