"""Requests to Ray Serve by hand, with the generations of LLM engines in them."""

from __future__ import annotations

from typing import Any

from hand_made import MS, HandMade
from typing_extensions import Self

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.requests import Requests
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER, SERVER

_ATTRIBUTES = {
    "to_queue": names.RAY_LLM_TIME_TO_QUEUE,
    "queue": names.GEN_AI_QUEUE_TIME,
    "prefill": names.GEN_AI_PREFILL_TIME,
    "decode": names.GEN_AI_DECODE_TIME,
    "first": names.GEN_AI_FIRST_CHUNK,
}


class Served(HandMade):
    """Requests to an application, as Ray Serve's parts make spans of them."""

    @classmethod
    def requested(cls, end: float, **more: Any) -> tuple[Self, str]:
        """One request, from 0 on."""
        run = cls()
        return run, run.request(0, end, **more)

    @classmethod
    def gated(cls, end: float) -> tuple[Self, str]:
        """One request, from 0 on, and the execution of ``Gate.__call__`` that takes as long."""
        run, root = cls.requested(end)
        return run, run.call(root, "Gate.__call__", 0, 0, 0, end)

    def request(
        self,
        start: float,
        end: float | None,
        *,
        trace: int = 1,
        route: str = "GET /",
        worker: str = "proxy",
        told: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """A request to a proxy. ``told`` are further attributes."""
        return self.span(
            route,
            start,
            end,
            kind=SERVER,
            worker=worker,
            trace=trace,
            state="ended" if end is not None else "running",
            attributes={names.RAY_SERVE_APPLICATION: "app"} | (told or {}),
            **more,
        )

    def call(
        self,
        parent: str,
        method: str,
        at: float,
        accepted: float,
        began: float | None = None,
        end: float | None = None,
        *,
        application: str = "app",
        replica: str = "r1",
        error: str = "",
        choice: float | None = None,
        loop: float = 0,
        object_id: str = "",
        caller: str = "driver",
        told: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """A call of a deployment, and its execution if it began, with further attributes; gives the id of that.

        ``choice``: how long it took to choose a replica, by default until one accepted it. ``loop``: how long it waited
        for the event loop of the replica. ``object_id``: what it returns, where waits are recorded.
        """
        deployment, _, name = method.rpartition(".")
        attributes = {
            names.RAY_SERVE_APPLICATION: application,
            names.RAY_SERVE_DEPLOYMENT: deployment,
            names.RAY_SERVE_METHOD: name,
        }
        failed = error if began is None else ""
        chosen = (accepted - at if choice is None else choice) / 1000
        made = self.span(
            f"{method} {names.SERVE_CALL}",
            at,
            accepted,
            parent,
            kind=PRODUCER,
            attributes=attributes
            | ({names.RAY_SERVE_CHOICE_TIME: chosen} if chosen else {})
            | ({names.RAY_OBJECT_IDS: [object_id]} if object_id else {}),
            error=failed,
            worker=caller,
            **more,
        )
        if began is None:
            return made
        return self.span(
            f"{method} {names.SERVE_REPLICA}",
            began,
            end,
            made,
            kind=CONSUMER,
            worker=replica,
            error=error,
            state="ended" if end is not None else "running",
            attributes=attributes
            | {names.RAY_SERVE_REPLICA_ID: replica}
            | ({names.RAY_SERVE_LOOP_WAIT: loop / 1000} if loop else {})
            | (told or {}),
            **more,
        )

    def user(self, parent: str, name: str, start: float, end: float, *, worker: str = "r1", **more: Any) -> str:
        """A span of the program, by default in the first replica."""
        made = self.span(name, start, end, parent, worker=worker, **more)
        self.spans[-1].scope = "shop"
        return made

    def generation(
        self,
        parent: str,
        start: float,
        end: float,
        *,
        model: str = "tiny",
        worker: str = "r1",
        tokens: tuple[int, int, int] = (0, 0, 0),
        told: dict[str, Any] | None = None,
        error: str = "",
        trace: int = 1,
        **times: float,
    ) -> str:
        """A generation. ``times`` are milliseconds, by :data:`_ATTRIBUTES`; ``tokens`` of input, output and cache."""
        keys = names.GEN_AI_INPUT_TOKENS, names.GEN_AI_OUTPUT_TOKENS, names.GEN_AI_CACHED_TOKENS
        attributes = {
            names.GEN_AI_OPERATION: "chat",
            names.GEN_AI_PROVIDER: "vllm",
            names.GEN_AI_REQUEST_MODEL: model,
            **dict(zip(keys, tokens, strict=True)),
            **{_ATTRIBUTES[key]: took / 1000 for key, took in times.items()},
            **(told or {}),
        }
        given = {key: value for key, value in attributes.items() if value is not None}
        name = f"chat {model}"
        return self.span(name, start, end, parent, worker=worker, attributes=given, error=error, trace=trace)

    def found(self) -> Requests:
        found = Analysis(self.table()).requests
        assert found is not None
        return found


def parts(found: Requests) -> dict[tuple[str, str], float]:
    """What the time of all requests went to, in milliseconds."""
    return {(each.kind, each.name): each.time / MS for each in found.parts}
