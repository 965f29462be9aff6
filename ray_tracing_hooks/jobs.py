"""Jobs that are submitted from within a trace belong to it.

On the command line, where the trace is told by ``TRACEPARENT`` and ``TRACESTATE``::

    export RAY_JOB_SUBMIT_HOOK=ray_tracing_hooks.jobs.propagate
    ray job submit -- python program.py

and in Python, once, before the first job::

    from ray_tracing_hooks import jobs

    jobs.propagate()
    JobSubmissionClient(address).submit_job(entrypoint="python program.py")
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._guard import failed, guarded
from ray_tracing_hooks._patching import Patches

__all__ = ["propagate"]

_patches = Patches()


def propagate(**_arguments: Any) -> None:
    """Let each job that this process submits from now on carry the context that is current then.

    The context is added to the metadata of the job (``traceparent``, ``tracestate``, ``baggage``, or what else the
    propagators in use write), where the job's cluster looks for it if it is traced by this package. What the metadata
    says already stays. Where no span is current, it is the context that the environment tells of.

    Wraps ``JobSubmissionClient.submit_job`` (Ray 2.60 ``dashboard/modules/job/sdk.py``). Calling it again changes
    nothing; it never raises. Ray gives a submit hook the arguments of the command line, which are of no use here.
    """
    with guarded("letting submitted jobs belong to the trace"):
        from ray.dashboard.modules.job.sdk import JobSubmissionClient  # noqa: PLC0415  heavy

        _patches.wrap(JobSubmissionClient, "submit_job", _submit_job)


def _submit_job(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def submit_job(*args: Any, **kwargs: Any) -> Any:
        try:
            carrier = _carrier()
        except Exception as error:  # noqa: BLE001  the job is the user's, the fault would be ours
            failed("adding the trace to a job", error)
        else:
            if carrier:
                kwargs["metadata"] = {**carrier, **(kwargs.get("metadata") or {})}
        return original(*args, **kwargs)

    return submit_job


def _carrier() -> dict[str, str]:
    from opentelemetry import context, propagate  # noqa: PLC0415  heavy

    from ray_tracing_hooks._ray.environment import incoming  # noqa: PLC0415

    carrier: dict[str, str] = {}
    propagate.inject(carrier, incoming(os.environ, context.get_current()))
    return carrier
