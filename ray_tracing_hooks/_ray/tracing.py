"""The instrumentation of one connection to Ray, and whether tracing is on at all.

Wrappers look at :data:`active` on each call and take the part that they need. It is None before a hook ran, after
``ray.shutdown()``, in a forked child, and while the process is connected to a cluster without a tracing hook; every
wrapper then does what the original does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ray_tracing_hooks._ray.calls import Calls
from ray_tracing_hooks._ray.cluster import Cluster, SharedTrace
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._ray.resources import HeldResources
from ray_tracing_hooks._ray.templates import Selection, Templates, Whereabouts
from ray_tracing_hooks._record.recorder import Recorder

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.rates import RateLimits
    from ray_tracing_hooks._record.argument_text import Redactor


class Tracing:
    """The parts of the instrumentation of one connection. It only puts them together.

    Args:
        recorder: Where spans go.
        process: This process.
        cluster: The cluster that it is connected to.
        selection: Which calls make spans.
        redactor: What shows the arguments and results of executions, or None.
        rate_limits: How many calls a second make spans, if that is limited.
        join_serve: Traces what this process has imported of Ray Serve; whether that is asked for.

    Attributes:
        whereabouts: Where spans of this process are made.
        templates: What the spans of each call site share.
        job: The trace of this process's job.
        calls: The calls that it makes.
        held: What the task that it runs holds.
        waits: Whether waiting for objects and storing them makes spans here. In the server of a traced client it is the
            client that waits.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: RayProcess,
        cluster: Cluster,
        selection: Selection,
        *,
        redactor: Redactor | None = None,
        rate_limits: RateLimits | None = None,
        join_serve: Callable[[], bool] = lambda: False,
    ) -> None:
        self.recorder = recorder
        self.process = process
        self.selection = selection
        self.redactor = redactor
        self.rate_limits = rate_limits
        self.join_serve = join_serve
        self.driver_task_id = process.current_task_id() if process.is_driver else b""
        self.whereabouts = Whereabouts(process)
        self.templates = Templates(process, self.whereabouts, selection)
        self.job = SharedTrace(cluster, process, recorder, self.driver_task_id)
        self.calls = Calls(
            recorder,
            process,
            self.driver_task_id,
            self.templates,
            self.whereabouts,
            self.job,
            rate_limits,
            join_serve,
        )
        self.held = HeldResources()
        self.waits = True


active: Tracing | None = None
"""That of this process's connection to Ray, if it is traced: the one place where a process keeps it."""
