"""The instrumentation of one connection to Ray, and whether tracing is on.

Wrappers read :data:`active` on each call and use the part that they need. It is None before a hook ran, after
``ray.shutdown()``, in a forked child, and while the process is connected to a cluster without a tracing hook; every
wrapper then only calls the original.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple

from ray_tracing_hooks._ray.calls import Calls
from ray_tracing_hooks._ray.cluster import Cluster, SharedTrace
from ray_tracing_hooks._ray.labels import Namings
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._ray.templates import HeldResources, ProcessAttributes, Selection, Templates
from ray_tracing_hooks._record.recorder import Recorder

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.memory import Memory
    from ray_tracing_hooks._ray.rates import RateLimits
    from ray_tracing_hooks._record.argument_text import Redactor


class GenerationOptions(NamedTuple):
    """What the settings say of the spans of generations.

    Attributes:
        phases: Whether the phases of a generation are spans too.
        usage: Whether tokens are counted under the standard names, which viewers add up.
    """

    phases: bool = False
    usage: bool = True


class Options(NamedTuple):
    """What the settings say of the spans of calls.

    Attributes:
        selection: Which calls make spans.
        redactor: Renders the arguments and results of executions, or None.
        redact: Patterns of what is redacted in the configurations of a library, which are recorded in any case.
        rate_limits: The rate limits on calls that make spans, or None.
        memory: Measures the memory of executions, or None.
        llm: What they say of generations.
    """

    selection: Selection
    redactor: Redactor | None = None
    redact: tuple[str, ...] = ()
    rate_limits: RateLimits | None = None
    memory: Memory | None = None
    llm: GenerationOptions = GenerationOptions()


class Tracing:
    """The parts of the instrumentation of one connection.

    Args:
        recorder: Records the spans.
        process: This process.
        cluster: The cluster that it is connected to.
        options: What the settings say of the spans of calls; each of them is an attribute too.
        carries_submit_time: Whether recorded calls of tasks carry the time of their submission (:class:`SharedTrace`).
        join_serve: Traces what this process has imported of Ray Serve; returns whether Serve is traced.

    Attributes:
        process_attributes: The attributes that say where spans are made.
        templates: The templates of call sites.
        namings: The namings of calls that run something else than their function's name says.
        job: The trace of this process's job.
        calls: The calls that it makes.
        held: The resources that its current task holds.
        service: The service as which SkyWalking knows this process, if it knows deployments of Ray Serve as services of
            their own; else empty.
        on_replica: Called in a replica that starts, with its deployment and application, or None.
        thread: The thread in which this process connected to Ray: that of a driver's own code.
        waits: Whether waiting for objects and storing them makes spans here. For a traced client, the
            client waits and not its server.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: RayProcess,
        cluster: Cluster,
        options: Options,
        *,
        carries_submit_time: bool = False,
        join_serve: Callable[[], bool] = lambda: False,
    ) -> None:
        self.process = process
        self.join_serve = join_serve
        self.driver_task_id = process.current_task_id() if process.is_driver else b""
        self.process_attributes = ProcessAttributes(process)
        self.job = SharedTrace(cluster, process, recorder, self.driver_task_id, carries_submit_time=carries_submit_time)
        self.held = HeldResources()
        self.service = ""
        self.on_replica: Callable[[str, str], None] | None = None
        self.thread = get_ident()
        self.waits = True
        self._set(recorder, options)

    def changed(self, recorder: Recorder, options: Options) -> Tracing:
        """The instrumentation of the same connection with other settings. What has begun keeps those it began with."""
        found = copy.copy(self)
        found.job.recorder = recorder
        found._set(recorder, options)  # noqa: SLF001  of this class
        return found

    def _set(self, recorder: Recorder, options: Options) -> None:
        self.recorder = recorder
        self.selection, self.redactor, self.redact, self.rate_limits, self.memory, self.llm = options
        self.templates = Templates(self.process, self.process_attributes, self.selection)
        self.namings = Namings(self.selection.parts)
        self.calls = Calls(
            recorder, self.process, self.templates, self.job, self.rate_limits, self.join_serve, self.namings
        )


active: Tracing | None = None
"""The instrumentation of this process's connection to Ray, or None if it is not traced."""
