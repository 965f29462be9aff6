"""What was found of a cluster and its nodes, read from the plain data of probes.

A node may have another version of this package, so what is missing counts as unknown.

The report of ``doctor --json`` is for programs, so members are added, and not changed. It is an object with:

``version``
    1.
``healthy``
    Whether there is no problem; the exit code is then 0.
``address``, ``session``, ``hook``, ``ray``
    The cluster: its address, session, hook and version of Ray; null where unknown, or without a cluster.
``nodes``
    A list with an object for each node: ``name``, ``id``, ``ip``, ``answered``, ``python``, ``ray``, ``package`` (the
    version of this package), ``exporters``, ``clock_offset`` (seconds ahead of this machine) and ``spools``, as
    ``status --json`` has them. Unknown values are null.
``here``
    The same of this machine.
``findings``
    A list of objects: ``id``, which is stable, ``severity`` (``problem``, ``warning`` or ``ok``), ``what``, ``where``
    (names of nodes, ``here`` for this machine; empty for the cluster), ``advice`` and ``details``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec

from ray_tracing_hooks._ops.cluster import Node
from ray_tracing_hooks._ops.diagnosis import PROBLEM, Diagnosis
from ray_tracing_hooks._ops.head import Head
from ray_tracing_hooks._ship.figures import Figures

LOCAL_HOST = "here"
"""The name of the machine that the command runs on, in findings."""


class Clock(NamedTuple):
    """How far the clock of a node is ahead of that of this machine, and how exactly that is known, in seconds."""

    offset: float
    uncertainty: float


class DeliveryTrial(msgspec.Struct, frozen=True):
    """What became of a test span at one destination.

    Attributes:
        error: Why it did not arrive, or None.
        is_setting: Whether a setting is at fault, or a missing package.
        is_refused: Whether the destination answered, and will never accept it.
    """

    exporter: str = ""
    text: str = ""
    sent: bool = False
    error: str | None = None
    is_setting: bool = False
    is_refused: bool = False
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class FolderFacts(msgspec.Struct, frozen=True):
    """A folder for spans: why it takes none, if so, and the room on its disk in bytes, if known."""

    what: str = ""
    path: str = ""
    error: str | None = None
    is_full: bool = False
    free: int | None = None
    limit: int = 0


class SpoolFacts(msgspec.Struct, frozen=True):
    """One spool: whether its shipper runs and works, its figures, and what a change of settings reaches."""

    path: str = ""
    runs: bool = False
    is_stuck: bool = False
    error: str | None = None
    exporters: tuple[str, ...] = ()
    figures: Figures = Figures()
    reached: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> SpoolFacts:
        """What a node says of a spool; an error where its version of this package says it in another way."""
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            return cls(str(found.get("path", "")), error=f"the answer of its node cannot be read: {error}")


class Examined(msgspec.Struct, frozen=True):
    """What the node's own package found.

    Attributes:
        settings: The settings that are set: by variable the value, without secrets, and its source.
        problems: What is wrong with them, each with its severity.
        misspelled: Variables that nothing reads, each with the one that it resembles.
        is_on: Whether spans are recorded, as far as `enable` and `disable` have set it.
        configured: The variables that commands have set while the cluster was running.
    """

    exporters: tuple[str, ...] = ()
    settings: dict[str, tuple[str, str]] = {}  # msgspec gives each its own
    problems: tuple[tuple[str, str], ...] = ()
    misspelled: tuple[tuple[str, str], ...] = ()
    trials: tuple[DeliveryTrial, ...] = ()
    folders: tuple[FolderFacts, ...] = ()
    spools: tuple[SpoolFacts, ...] = ()
    is_on: bool = True
    configured: tuple[str, ...] = ()

    def value(self, variable: str) -> str:
        """The value of a setting, empty if it is not set."""
        return self.settings.get(variable, ("", ""))[0]

    def where_to_set(self, text: str) -> str:
        """What to add to an advice about the variables in a text; empty if they are set where Ray is started."""
        words = re.findall(r"\w+", text)
        found = [name for name in self.configured if name in words]
        if not found:
            return ""
        return f"; a command has set {', '.join(found)} for the running cluster: use `ray-tracing-hooks configure`"


class Host(msgspec.Struct, frozen=True):
    """What was found on one node, or on this machine, which has no ``node``.

    Attributes:
        failure: Why there is no answer: see :class:`~ray_tracing_hooks._ops.cluster.Answer`; None if there is one.
        text: The error in that case.
        hook_failed: Whether the workers of the node end when they start, and the answer is from one without the hook.
        executable: Python itself.
        ray: The version of Ray; empty if Ray is not there.
        package: The version of this package; empty if it cannot be imported, for the reason in ``package_error``.
        distributions: Versions of installed packages of interest.
        called: Whether a hook of this package was called in the worker.
        traced: Whether it then traced the worker.
        reported: What it reported there.
        examined: What the package found; None if it could not be asked, for the reason in ``examination_error``.
    """

    name: str = ""
    node: Node | None = None
    failure: str | None = None
    text: str = ""
    hook_failed: bool = False
    python: str = ""
    executable: str = ""
    ray: str = ""
    package: str = ""
    package_error: str = ""
    distributions: dict[str, str] = {}
    hook_error: str = ""
    called: bool = False
    traced: bool = False
    reported: tuple[str, ...] = ()
    examined: Examined | None = None
    examination_error: str = ""
    clock: Clock | None = None

    @classmethod
    def of(cls, name: str, found: Mapping[str, Any], node: Node | None = None, *, hook_failed: bool = False) -> Host:
        """What an answer says. Raises msgspec.ValidationError."""
        return msgspec.structs.replace(msgspec.convert(found, cls), name=name, node=node, hook_failed=hook_failed)


class Facts(NamedTuple):
    """All that was found.

    Attributes:
        address: The address of the cluster; None if only this machine was looked at.
        head: What its head says; None if there is no cluster, or no answer.
        unreachable: Why there is no connection to the cluster; empty if there is one.
        needs_token: Whether the cluster asks for a token that is not here.
        hook: The hook of the cluster, or the one that is to be used.
        alone: Why there is no cluster, if somebody looked for one; else empty.
    """

    address: str | None
    head: Head | None
    unreachable: str
    needs_token: bool
    hook: str | None
    nodes: tuple[Host, ...]
    here: Host
    alone: str = ""

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The nodes that answered, and this machine."""
        return (*self.answered, self.here)

    @property
    def answered(self) -> tuple[Host, ...]:
        return tuple(node for node in self.nodes if node.failure is None)


VERSION = 1


def as_json(facts: Facts, findings: Sequence[Diagnosis]) -> dict[str, Any]:
    head = facts.head
    return {
        "version": VERSION,
        "healthy": not any(finding.severity == PROBLEM for finding in findings),
        "address": facts.address,
        "session": (head.session or None) if head is not None else None,
        "hook": facts.hook,
        "ray": (head.ray_version or None) if head is not None else None,
        "nodes": [_host_as_json(node) for node in facts.nodes],
        "here": _host_as_json(facts.here),
        "findings": [finding.as_json() for finding in findings],
    }


def _host_as_json(host: Host) -> dict[str, Any]:
    examined = host.examined
    return {
        "name": host.name,
        "id": host.node.id if host.node is not None else None,
        "ip": host.node.ip if host.node is not None else None,
        "answered": host.failure is None,
        "python": host.python or None,
        "ray": host.ray or None,
        "package": host.package or None,
        "exporters": list(examined.exporters) if examined is not None else None,
        "clock_offset": host.clock.offset if host.clock is not None else None,
        "spools": [spool_as_json(spool) for spool in examined.spools] if examined is not None else None,
    }


def spool_as_json(spool: SpoolFacts) -> dict[str, Any]:
    """One spool: ``path``, ``shipper_runs``, ``exporters`` and the figures of ``status.json``."""
    return {
        "path": spool.path,
        "shipper_runs": spool.runs,
        "exporters": list(spool.exporters),
        "figures": asdict(spool.figures),
    }
