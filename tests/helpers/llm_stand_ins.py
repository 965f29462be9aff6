"""Stand-ins for what the front end of vLLM hands to the instrumentation: its output processor, with the bookkeeping
that decides when a request to the engine ends (vLLM 0.29 ``v1/engine/output_processor.py``). That it works with vLLM
itself is for ``tests/ray/test_llm.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import Any

REASONS = ("stop", "length", "abort", "error", "repetition")


class Reason(IntEnum):
    STOP, LENGTH, ABORT, ERROR, REPETITION = range(5)

    def __str__(self) -> str:
        return REASONS[self.value]


class Kind(Enum):
    CUMULATIVE, DELTA, FINAL_ONLY = range(3)


def asked(**values: Any) -> Any:
    """The parameters of a request."""
    defaults = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 16, "seed": None, "n": 1, "extra_args": None}
    return SimpleNamespace(**{"output_kind": Kind.DELTA, **defaults, **values})


def request(name: str, prompt: int = 7, **parameters: Any) -> Any:
    """A request to the engine with this id, by OpenAI's names for clients and another one for the engine."""
    return SimpleNamespace(
        request_id=f"{name}-internal",
        external_req_id=name,
        sampling_params=asked(**parameters),
        arrival_time=time.time(),
        trace_headers=None,
        prompt=prompt,
    )


class Detokenizer:
    """Makes text of tokens."""

    tokens = 0

    def num_output_tokens(self) -> int:
        return self.tokens


class OutputProcessor:
    """The front end's side of the requests to one engine."""

    def __init__(self, *, log_stats: bool = True, tracing_enabled: bool = False) -> None:
        self.log_stats, self.tracing_enabled = log_stats, tracing_enabled
        self.request_states: dict[str, Any] = {}
        self.parents: dict[str, Any] = {}
        self.headers: list[Any] = []

    def add_request(
        self, request: Any, prompt: Any = None, parent_req: Any = None, request_index: int = 0, queue: Any = None
    ) -> None:
        known = self.request_states.get(request.request_id)
        if known is not None:
            if not getattr(request, "resumable", True):
                del self.request_states[request.request_id]
            return
        if getattr(request, "fails", False):
            raise ValueError("no such request")
        self.request_states[request.request_id] = SimpleNamespace(
            request_id=request.request_id,
            parent_req=parent_req,
            prompt_len=request.prompt,
            num_cached_tokens=0,
            lora_name=None,
            detokenizer=Detokenizer(),
            stats=self._stats(request.arrival_time) if self.log_stats else None,
        )
        if parent_req is not None:
            self.parents[parent_req.request_id] = parent_req
            parent_req.children.add(request.request_id)
        self.headers.append(request.trace_headers)

    def _stats(self, arrival_time: float) -> Any:
        names = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts", "first_token_latency")
        return SimpleNamespace(arrival_time=arrival_time, num_generation_tokens=0, **dict.fromkeys(names, 0.0))

    def process_outputs(self, request_id: str, tokens: int, reason: Reason | None) -> None:
        """What the engine says of a request, all at once."""
        state = self.request_states[request_id]
        state.detokenizer.tokens += tokens
        if state.stats is not None:
            state.stats.num_generation_tokens += tokens
        if reason is not None:
            del self.request_states[request_id]
            self._update_stats_from_finished(state, reason, None)

    def _update_stats_from_finished(self, req_state: Any, finish_reason: Reason, iteration_stats: Any) -> None:
        pass

    def abort_requests(self, request_ids: Iterable[str], internal: bool) -> list[str]:
        gone: list[str] = []
        for request_id in request_ids:
            if request_id in self.request_states:
                del self.request_states[request_id]
                gone.append(request_id)
            elif request_id in self.parents:
                gone += self.abort_requests(sorted(self.parents.pop(request_id).children), internal=True)
        return gone

    def propagate_error(self, e: Exception) -> None:
        pass


def several(processor: Any, name: str, count: int, **parameters: Any) -> list[str]:
    """Ask for several completions of one prompt: a request to the engine for each. Returns their ids."""
    whole = request(name, n=count, **parameters)
    parent = SimpleNamespace(request_id=whole.request_id, sampling_params=whole.sampling_params, children=set())
    for index in range(count):
        child = request(name)
        child.request_id = f"{index}_{whole.request_id}"
        processor.add_request(child, None, parent, index)
    return sorted(parent.children)


def timed(processor: Any, request_id: str, *moments: float) -> None:
    """The times of the engine's core: queued, scheduled, first and last token, in seconds from now by its clock."""
    stats, now = processor.request_states[request_id].stats, time.monotonic()
    for name, moment in zip(("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"), moments, strict=False):
        setattr(stats, name, now + moment)
