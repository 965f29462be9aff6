"""Selects which calls make spans, and builds the templates of their call sites.

Also the resources that the current task of this worker holds: wraps ``set_visible_accelerator_ids`` (Ray 2.60
``_private/utils.py``), which the worker calls before each task (``_raylet.pyx``, ``execute_task``), but not before the
methods of actors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches

INTERNAL, SERVER, PRODUCER, CONSUMER = 1, 2, 4, 5
"""Span kinds, by OTLP's numbers."""

SERVE = "serve"
"""The part in ``RAY_TRACING_RAY`` for requests to Ray Serve."""

OF_SERVE = "ray.serve._private."
"""The package of Serve's actors: a process that runs or calls one takes part in Serve."""

HAS_SERVE = "ray.serve.schema"
"""A module that every process with Serve has imported."""

_INTERNAL_MODULES = (
    *(f"ray.{name}." for name in ("_private", "autoscaler", "dashboard", "util.client")),
    *(prefix for library in LIBRARIES for prefix in library.internal),
)
"""Modules with internal tasks and actors of Ray, which run user code only through further calls, or for Ray Data."""

_OWN_MODULES = "ray_tracing_hooks._ops."
"""The modules of this package's own actors, which make no spans whatever the settings say."""

_WORKERS = tuple(name for library in LIBRARIES for name in library.workers)

_RUNS_CODE_OF_THE_USER = "__ray_call__"
"""The one method that Ray adds to each actor which runs user code."""

_INTERNAL_METHODS = frozenset(name for library in LIBRARIES for name in library.internal_methods)

MOST_TEMPLATES = 10_000
"""Bounds the cache, since names of library calls and of datasets may come without limit."""


class Selection:
    """Selects calls by the settings.

    Args:
        parts: The parts of Ray that make spans, as in ``RAY_TRACING_RAY``.
        include: Patterns for ``module.function`` or ``Class.method``; if there are any, only matches make spans. Those
            with a slash are for requests: if there are any, only matches and what they call make spans.
        exclude: Patterns for calls that make no spans, and for requests that make none with all that they call.
        internal: Whether internal tasks and actors of Ray make spans even if ``include`` does not match them.
    """

    def __init__(
        self,
        parts: Iterable[str],
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        *,
        internal: bool = False,
    ) -> None:
        self.parts = frozenset(parts)
        self._include, self._include_requests = _apart(include)
        self._exclude, self._exclude_requests = _apart(exclude)
        self.has_patterns = bool(self._include or self._exclude)
        self.has_requests = bool(self._include_requests or self._exclude_requests)
        self.shows_internal = internal

    def selects(self, function: str, part: str, *others: str, is_internal: bool = False) -> bool:
        """Whether calls of ``function`` make spans; ``is_internal`` marks internal ones of Ray.

        ``others`` are other forms of its name that patterns match.
        """
        if part not in self.parts:
            return False
        if self._include:
            if not any(matches(pattern, function, *others) for pattern in self._include):
                return False
        elif is_internal and not self.shows_internal:
            return False
        return not any(matches(pattern, function, *others) for pattern in self._exclude)

    def selects_request(self, *named: str) -> bool:
        """Whether a request to Serve makes spans, with what it calls: one ``named`` as ``/path`` and ``GET /path``, or
        as ``/package.Service/Method``. Patterns for calls do not matter here.
        """
        if self._include_requests and not any(matches(pattern, *named) for pattern in self._include_requests):
            return False
        return not any(matches(pattern, *named) for pattern in self._exclude_requests)


def _apart(patterns: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns for calls, and those for requests: only these have a slash."""
    given = tuple(patterns)
    return tuple(each for each in given if "/" not in each), tuple(each for each in given if "/" in each)


def matches(pattern: str, function: str, *others: str) -> bool:
    """Whether a pattern matches a function by its name, or by one of the ``others``, where they are not empty."""
    return fnmatchcase(function, pattern) or any(other and fnmatchcase(other, pattern) for other in others)


def plain_name(class_name: str, method: str) -> str:
    """A method with its class alone, without what that is defined in; empty for a function."""
    return f"{class_name.rpartition('.')[2]}.{method}" if class_name else ""


def shown_class(class_name: str) -> str:
    """A class as spans name it: Ray's name of it, with the classes around it, without functions around these."""
    # Ray makes names of classes from those of operators, in brackets, which may be any.
    return class_name if "(" in class_name else class_name.rpartition("<locals>.")[2]


class ProcessAttributes:
    """The attributes that say where spans are made. In a worker they are only valid while a task is running."""

    def __init__(self, process: RayProcess) -> None:
        self._process = process
        self._job_id = process.job_id

    def job_id(self) -> str:
        if not self._job_id:
            # A worker gets its job with its first task, and keeps it.
            self._job_id = self._process.current_job_id()
        return self._job_id

    def attributes(self) -> dict[str, str]:
        """The attributes of every span."""
        process = self._process
        return {
            names.RAY_PID: str(os.getpid()),
            names.RAY_JOB_ID: self.job_id(),
            **({names.RAY_NODE_ID: process.node_id} if process.node_id else {}),
            names.RAY_WORKER_ID: process.worker_id,
        }


class Templates:
    """The templates of tasks, actors and waits in this process, created when a call site is first seen."""

    def __init__(self, process: RayProcess, process_attributes: ProcessAttributes, selection: Selection) -> None:
        self._process = process
        self.process_attributes = process_attributes
        self._selection = selection
        self._made: dict[tuple[int, str, str, str, str, str, str], Template | None] = {}

    def of(
        self,
        kind: int,
        class_name: str,
        function: str,
        module: str = "",
        group: str = "",
        shown: str = "",
        part: str = "",
    ) -> Template | None:
        """The template of one call site, or None if its calls make no spans.

        ``class_name`` is Ray's name of a class, the same where a call is submitted and where it runs. It is empty for a
        task; ``function`` is then ``module.function``, else the method's name. ``module`` is that of the class, and
        ``group`` the concurrency group of the method. ``shown`` names a call that runs something else than its
        function's name says, for the ``part`` of a library (:mod:`ray_tracing_hooks._ray.labels`).
        """
        key = (kind, class_name, function, module, group, shown, part)
        try:
            return self._made[key]
        except KeyError:
            return self._keep(key, self._make(*key))

    def of_waiting(self, name: str) -> Template:
        """The template of a span around one of Ray's own functions, such as ``ray.get``."""
        key = (INTERNAL, "", name, "", "", "", "")
        found = self._made.get(key)
        if found is None:
            found = Template(name, INTERNAL, self.process_attributes.attributes())
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[int, str, str, str, str, str, str], made: Template | None) -> Template | None:
        if len(self._made) >= MOST_TEMPLATES:
            self._made.clear()
        self._made[key] = made
        return made

    def _make(
        self, kind: int, class_name: str, function: str, module: str, group: str, shown: str, part: str
    ) -> Template | None:
        if module.startswith(_OWN_MODULES):
            return None
        whole_name = f"{class_name}.{function}" if class_name else function
        # Patterns match these forms as well.
        others = plain_name(class_name, function), whole_name
        class_name = shown_class(class_name)
        full_name = shown or (f"{class_name}.{function}" if class_name else function)
        # What a library's call is shown as is worth a span, although the function is internal.
        is_internal = not shown and (
            (
                (f"{module}." if class_name else function).startswith(_INTERNAL_MODULES)
                and not full_name.endswith(_WORKERS)
            )
            or (function.startswith("__ray_") and function != _RUNS_CODE_OF_THE_USER)
            or function in _INTERNAL_METHODS
        )
        part = part or ("actor" if class_name else "task")
        if not self._selection.selects(full_name, part, *others, is_internal=is_internal):
            return None
        if class_name:
            what = {names.RAY_REMOTE: "actor", names.RAY_ACTOR_CLASS: class_name, names.RAY_ACTOR_METHOD: function}
        else:
            what = {names.RAY_REMOTE: "function"}
        attributes: dict[str, Any] = {**what, names.RAY_FUNCTION: full_name, **self.process_attributes.attributes()}
        if kind == PRODUCER:
            return Template(names.submission_name(full_name), kind, attributes)
        if class_name:
            with guarded("reading the attributes of this actor"):
                attributes |= self._process.of_actor()
            if group:
                attributes[names.RAY_CONCURRENCY_GROUP] = group
        return Template(names.execution_name(full_name), kind, attributes)


class HeldResources:
    """The resources of the current task: a worker runs one task at a time.

    Attributes:
        encoded: The encoded attributes. For actors they are part of the templates.
    """

    __slots__ = ("encoded",)

    def __init__(self) -> None:
        self.encoded = b""


def patch_resources(patches: Patches, process: RayProcess, held: HeldResources) -> bool:
    """Record the resources of each task in ``held``; False if this Ray lacks the wrapped function."""
    from ray._private import utils  # noqa: PLC0415  the hook's module must be importable without Ray

    def wrap(original: Callable[[], Any]) -> Callable[[], Any]:
        before: Mapping[str, Any] | None = None

        def set_visible_accelerator_ids() -> Any:
            nonlocal before
            try:
                resources = process.worker.core_worker.resource_ids()
                if resources != before:
                    before, held.encoded = resources, b""
                    held.encoded = encode.attributes(process.of_task())
            except Exception as error:  # noqa: BLE001  the user's task must run whatever fails here
                failed("reading the resources of a task", error)
            try:
                return original()
            except BaseException as error:
                hide_frame(error)
                raise

        return set_visible_accelerator_ids

    return patches.wrap(utils, "set_visible_accelerator_ids", wrap)
