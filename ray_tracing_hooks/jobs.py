"""Link submitted jobs to the current trace.

On the command line, where ``TRACEPARENT`` and ``TRACESTATE`` give the trace context::

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
from collections.abc import Callable, Mapping
from typing import Any

from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches

__all__ = ["propagate"]

_patches = Patches()


def propagate(**_arguments: Any) -> None:
    """Propagate the current context to each job that this process submits from now on.

    The context is added to the metadata of the job, as ``traceparent``, ``tracestate`` and ``baggage``, or in the
    formats of the propagators in use. The job's cluster reads it there, if this package traces the cluster. Existing
    keys of the metadata are kept. If no span is current, the context comes from the environment variables.

    Wraps ``JobSubmissionClient.submit_job`` (Ray 2.60 ``dashboard/modules/job/sdk.py``). Calling it again has no
    effect. It never raises. Ray passes the arguments of the command line to a submit hook; they are not used here.
    """
    with guarded("propagating the trace context to submitted jobs"):
        from ray.dashboard.modules.job.sdk import JobSubmissionClient  # noqa: PLC0415  heavy

        _patches.wrap(JobSubmissionClient, "submit_job", _submit_job)


def _submit_job(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def submit_job(*args: Any, **kwargs: Any) -> Any:
        try:
            metadata = kwargs.get("metadata") or {}
            # Ray refuses metadata of another type itself.
            if isinstance(metadata, Mapping) and (carrier := _carrier()):
                kwargs["metadata"] = {**carrier, **metadata}
        except Exception as error:  # noqa: BLE001  the job must be submitted whatever fails here
            failed("adding the trace context to a job", error)
        return original(*args, **kwargs)

    return submit_job


def _carrier() -> dict[str, str]:
    from opentelemetry import context, propagate  # noqa: PLC0415  heavy

    from ray_tracing_hooks._ray.jobs import from_driver_environment  # noqa: PLC0415

    carrier: dict[str, str] = {}
    propagate.inject(carrier, from_driver_environment(os.environ, context.get_current()))
    return carrier
