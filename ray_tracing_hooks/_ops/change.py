"""Changes what is set for a running cluster, and finds out which of its processes have applied it.

Users write settings for running processes as ``NAME=VALUE``: some can be changed, and their values are checked here.
"""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._control.control import EXPORTERS, SAMPLER, Control
from ray_tracing_hooks._ops import change_on_node, probe
from ray_tracing_hooks._ops.cluster import Answer, Node, Visit
from ray_tracing_hooks._ops.hooks import HOOKS, OF_RAY, is_ours
from ray_tracing_hooks._safety.guard import SettingError, TracingError
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


VERSION = 1

APPLIED, FAILED, SILENT = "applied", "failed", "silent"

_ATTEMPTS = 20
"""How often it is tried where other commands change what is set meanwhile."""

_PATIENCE = 5.0
"""The most seconds to wait for processes where there may be some without the hook, which never answer."""


_UNSURE = "; `ray-tracing-hooks status` shows what is set now"
"""How an error goes on while the change is being stored."""

_STORED = "; the change is set, but processes that run may not have it: run the command again"
"""The same once it has been stored."""


class ControlError(TracingError):
    """It cannot be changed, or not everywhere; the text says so if something may have been changed."""


class UsageError(TracingError):
    """What is asked for does not fit this cluster; nothing has been changed."""


class ProcessOutcome(NamedTuple):
    """A driver or worker of the cluster, and what became of the change in it.

    Attributes:
        node: The id of its node.
        id: Ray's id of the process.
        kind: ``driver`` or ``worker``.
        title: What Ray calls it, such as ``ray::Counter``; empty if that was not asked.
        state: ``applied``, ``failed`` there, or ``silent``: no answer.
        error: What failed, or None.
    """

    node: str
    id: str
    pid: int
    kind: str
    title: str
    state: str
    error: str | None


class Outcome(NamedTuple):
    """What became of a change.

    Attributes:
        nodes: The nodes that were asked, each with why that failed, or an empty text.
        processes: All processes that were asked and live, on these nodes and others, but those of commands.
        is_hook_late: Whether the hook of the cluster was set while it was running.
        actors: The named actors in which the hook was run now, each with what failed, or an empty text.
    """

    control: Control
    nodes: dict[Node, str]
    processes: tuple[ProcessOutcome, ...]
    hook: str | None
    is_hook_late: bool
    actors: Mapping[str, str] = {}

    @property
    def counts(self) -> Counter[str]:
        return Counter(each.state for each in self.processes)

    @property
    def is_everywhere(self) -> bool:
        return not any(self.nodes.values()) and all(each.state == APPLIED for each in self.processes)


class SettingsChange(NamedTuple):
    """What to change.

    Attributes:
        enabled: Whether spans are recorded from now on; None leaves that as it is.
        variables: Environment variables to set; None removes what was set before.
        reset: Remove all that was set before, also whether spans are recorded.
        hook: The hook to set if the cluster has none.
        in_actors: Whether to run it then in named actors too.
        until: With ``enabled=False``: when spans are recorded again, in seconds since the epoch; None for never.
    """

    enabled: bool | None = None
    variables: Mapping[str, str | None] = {}
    reset: bool = False
    hook: str | None = None
    in_actors: bool = False
    until: float | None = None

    def __repr__(self) -> str:
        # Without values, which may be secrets.
        return f"Change({self.enabled}, {sorted(self.variables)}, {self.reset}, {self.hook})"

    def after(self, before: Control) -> Control:
        """What is set then."""
        variables = {} if self.reset else dict(before.variables)
        for name, value in self.variables.items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value
        enabled, until = self.enabled, self.until
        if enabled is None and not self.reset:
            enabled, until = before.enabled, before.until
        return Control(before.version + 1, enabled, variables, until)


def change(visit: Visit, wanted: SettingsChange, timeout: float, progress: Callable[[str, int, int], None]) -> Outcome:
    """Change what is set for the cluster of the visited nodes. Raises ControlError or UsageError.

    Each node may take ``timeout`` seconds to answer.
    """
    head = visit.nodes[0]

    def ask(function: Callable[..., Any], *arguments: Any, otherwise: str = "") -> Any:
        answer = visit.answer(visit.ask(head, function, *arguments), timeout)
        if answer.failure is not None:
            raise ControlError(f"{head.name}: {answer.text}{otherwise}")
        return answer.value

    progress("looking at the cluster", 0, 1)
    if _must_set(ask(change_on_node.look)["hook"], wanted):
        assert wanted.hook is not None
        _check_importable(visit, wanted.hook, timeout)
    _check_exporters(visit, wanted, timeout)
    # First where new processes find it, then in those that run.
    before, control, hook = _store(ask, wanted, timeout)
    sets_hook = hook is not None and before["hook"] is None
    late = before["late"] or sets_hook
    actors: dict[str, str] = {}
    if sets_hook and wanted.in_actors:
        progress("running the hook in named actors", 0, 1)
        actors = change_on_node.run_hook(str(hook), timeout)
    progress("telling the processes", 0, 1)
    told = ask(change_on_node.processes, otherwise=_STORED)
    by_node = _tell(visit, control, told, timeout, is_hook_late=late)
    nodes = {node: answer.problem for node, answer in by_node.items()}
    answers = {id_: text for answer in by_node.values() for id_, text in (answer.value or {}).items()}
    # Some have ended meanwhile; and what has started since then has learned it from the cluster.
    asked = {each["id"] for each in told}
    living = [each for each in ask(change_on_node.processes, otherwise=_STORED) if each["id"] in asked]
    return Outcome(control, nodes, _described(visit, living, answers, timeout), hook, late, actors)


def _store(
    ask: Callable[..., Any], wanted: SettingsChange, timeout: float
) -> tuple[Mapping[str, Any], Control, str | None]:
    """Store what is set after the change; returns what was found before, what is set now, and the hook now.

    If other commands change it at the same time, each begins with what the one before has set. Raises ControlError or
    UsageError.
    """
    for _ in range(_ATTEMPTS):
        found = ask(change_on_node.look)
        sets_hook = _must_set(found["hook"], wanted)
        try:
            known = Control.decode(found["control"])
        except ValueError as error:
            if not wanted.reset:
                raise ControlError(
                    f"what is set for this cluster cannot be understood: {error}; "
                    "`ray-tracing-hooks configure --reset` removes it"
                ) from None
            known = Control(int(time.time()))  # later than any version that a process may have
        control = wanted.after(known)
        removes_hook = found["late"] and wanted.enabled is False and wanted.until is None
        hook = wanted.hook if sets_hook else None if removes_hook else found["hook"]
        if ask(change_on_node.store, found, control.encode(), hook, timeout / 2, otherwise=_UNSURE):
            return found, control, hook
    raise ControlError(f"other commands have changed this cluster {_ATTEMPTS} times; this one has changed nothing")


def as_json(address: str, outcome: Outcome, shown: Mapping[str, str]) -> dict[str, Any]:
    """The outcome for programs: members are added, and not changed.

    An object with ``version``, ``address``, ``hook``, ``hook_is_late``, ``set`` (its ``version``, ``enabled``, null as
    the cluster was started, ``until``, when spans are recorded again, in seconds since the epoch or null, and
    ``variables``, without secrets), ``nodes`` (``name``, ``id``, ``error``), ``applied``,
    ``failed`` and ``silent`` (numbers of processes), ``processes`` (``node``, ``id``, ``pid``, ``kind``, ``title``,
    ``state``, ``error``), and ``actors``, where ``enable --hook --actors`` has run the hook (``name``, after the
    namespace, and ``error``).
    """
    counts = outcome.counts
    return {
        "version": VERSION,
        "address": address,
        "hook": outcome.hook,
        "hook_is_late": outcome.is_hook_late,
        "set": {**outcome.control._asdict(), "variables": dict(shown)},
        "nodes": [{"name": node.name, "id": node.id, "error": error or None} for node, error in outcome.nodes.items()],
        **{state: counts[state] for state in (APPLIED, FAILED, SILENT)},
        "processes": [each._asdict() for each in outcome.processes],
        "actors": [{"name": name, "error": error or None} for name, error in sorted(outcome.actors.items())],
    }


def _must_set(hook: str | None, wanted: SettingsChange) -> bool:
    """Whether to set the hook of the cluster. Raises UsageError if it cannot be traced otherwise."""
    if hook is None and wanted.hook is not None:
        return True
    if hook is None:
        raise UsageError(
            "this cluster was started without a tracing hook: `ray-tracing-hooks enable --hook "
            f"{HOOKS[0]}` sets one for the processes that start from now on"
        )
    if wanted.hook is not None and wanted.hook != hook:
        raise UsageError(f"this cluster has the hook {hook} already, and can have no other one: leave out --hook")
    if not is_ours(hook):
        by = "Ray's own hook" if hook == OF_RAY else f"the hook {hook}"
        raise UsageError(f"this cluster was started with {by}, which does not belong to this package")
    return False


def _check_importable(visit: Visit, hook: str, timeout: float) -> None:
    """Ray ends each worker in which the hook cannot be imported."""
    for node, answer in visit.call(probe.import_error, hook, timeout=timeout).items():
        problem = answer.text if answer.failure is not None else answer.value
        if problem:
            raise ControlError(
                f"{node.name}: the hook {hook} cannot be imported there, so new workers would end: {problem}; "
                "nothing has been changed"
            )


def _check_exporters(visit: Visit, wanted: SettingsChange, timeout: float) -> None:
    """Raise UsageError for an exporter that a node does not have: spans would wait there."""
    value = wanted.variables.get(EXPORTERS)
    if not value:
        return
    for node, answer in visit.call(change_on_node.unknown_exporter, value, timeout=timeout).items():
        if answer.value:
            raise UsageError(f"{node.name}: {answer.value}; nothing has been changed")


def _tell(
    visit: Visit, control: Control, living: Sequence[Mapping[str, Any]], timeout: float, *, is_hook_late: bool
) -> dict[Node, Answer]:
    expected: dict[str, list[str]] = {}
    for each in living:
        expected.setdefault(each["node"], []).append(each["id"])
    # Processes that started before the hook was set never answer.
    timeout = min(timeout, _PATIENCE) if is_hook_late else timeout
    # A node has a little longer than it waits for its processes.
    asked = {
        node: visit.ask(node, change_on_node.apply, control.encode(), expected.get(node.id, []), timeout)
        for node in visit.nodes
    }
    until = time.monotonic() + timeout + 5
    return {node: visit.answer(reference, max(0.1, until - time.monotonic())) for node, reference in asked.items()}


def _described(
    visit: Visit, living: Sequence[Mapping[str, Any]], answers: Mapping[str, str], timeout: float
) -> tuple[ProcessOutcome, ...]:
    titles: dict[tuple[str, int], str] = {}
    for node in visit.nodes:
        pids = [each["pid"] for each in living if each["node"] == node.id and answers.get(each["id"]) != ""]
        if pids:
            found = visit.answer(visit.ask(node, change_on_node.titles, pids), timeout).value or {}
            titles |= {(node.id, pid): title for pid, title in found.items()}
    return tuple(
        ProcessOutcome(
            each["node"],
            each["id"],
            each["pid"],
            "driver" if each["is_driver"] else "worker",
            titles.get((each["node"], each["pid"]), ""),
            SILENT if answers.get(each["id"]) is None else FAILED if answers[each["id"]] else APPLIED,
            answers.get(each["id"]) or None,
        )
        for each in living
    )
