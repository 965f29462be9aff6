"""What tracing costs a request of Ray Serve, in one and the same cluster with and without.

    python tests/benchmarks/serve_cost.py [--by http,handle,stream] [--sessions 3] [--turns 30] [--seconds 1.0]
    .venv/llm/bin/python tests/benchmarks/serve_cost.py --by llm --model MODEL --sessions 1 --turns 20 --seconds 2

Two clusters alike differ by as much as is to be measured. Here the proxy, the replicas and the driver have all that
tracing replaces in Ray put back, and replaced again, by turns (``switched_hook``); what is in place of methods of
``logging`` then does nothing more. Every second pair of turns begins with tracing.

``http`` and ``handle`` send one request after the other to a deployment that does nothing. ``stream`` is the shape of
Ray Serve LLM without an engine: an ingress calls another deployment, which answers a request with a few tokens at once,
or streams many. ``llm`` is Ray Serve LLM with vLLM on the CPU, which ``make prepare BESIDE=llm`` installs. This package
is on ``PYTHONPATH`` then, from ``pip install --no-deps --target FOLDER .``, since a checkout lacks the compiled part;
``MODEL`` is the folder that ``tests/ray/programs/llm_model.py`` writes. In each turn of these two, some clients at once
ask for a few tokens, and then one client streams responses with many.

Printed are the rate and the time that a request takes with tracing, relative to the turn without it beside: median over
the turns of all sessions, with quartiles, and the medians of each session. The 99th percentile is that of all requests
of a session, since a turn has too few. Then the processor time of each process, likewise, and that of the shipper for
each request that is traced; it works in both kinds of turns. Of streamed
responses, the time to the first token, the tokens a second, and the processor time that a response takes. Each session
has a new cluster, and counts its spans at the end: one in the last replica for each request of the turns with tracing,
and none of the others. Needs Ray Serve, which ``pip install 'ray[serve]'`` has.

With ``llm``, before that and without a cluster: what a generation takes of the processor in the front end of an engine
that answers at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import switching
from soak import shipper_of
from switched_hook import OFF, ON
from switching import WITH, WITHOUT, connect, hand_over

HERE = Path(__file__).parent
HELPERS, PROGRAMS = str(HERE.parent / "helpers"), str(HERE.parent / "ray" / "programs")

WARM_UP, AFTER_SWITCH = 400, 200
"""Requests before the first turn, and before each: Python makes code fast again that has been replaced, and the first
hundred requests with tracing take up to a tenth more."""

CLIENTS, FEW, MANY, AT_ONCE = 4, 4, 100, 10
"""Clients at once, the tokens of their responses and of those that are streamed, and the tokens of a part of these."""

GENERATIONS, ROUNDS = 500, 30

SHIPPER = "shipper"
PER_SECOND = "rate", "tokens"

Turn = dict[str, float]
"""Requests a second, the median of what one takes in us, and the processor time a request of each process in us; then
the same of streamed responses."""


class Session(NamedTuple):
    """What was measured in one cluster."""

    turns: list[dict[str, Turn]]
    """Pairs of turns, without tracing and with."""
    shipped: float
    """The processor time of the shipper for a traced request, in us."""
    slowest: dict[str, float]
    """The 99th percentile of what a request took in these turns, in us."""


class Service(NamedTuple):
    """What is measured."""

    request: Callable[[], Any]
    """Makes a request, and returns when it was answered."""
    executed: bytes
    """The name of the span that each request has once."""
    titles: dict[str, str]
    """What the titles of its processes have in them."""
    clients: int = 1
    stream: Callable[[], dict[str, Any]] | None = None
    """Makes a request for many tokens, and returns the seconds until the first of them and until the last."""


def started(by: str, model: str) -> Service:
    import loops

    if by in ("http", "handle"):
        loop = {"http": loops.serve_requests_by_http, "handle": loops.serve_requests_by_handle}[by]()
        return Service(loop, b"Nothing.__call__ serve.replica", {"proxy": "ProxyActor", "replica": "ServeReplica"})

    from llm_client import ONE, PORT, STREAMED, ask, chat, config  # type: ignore[import-not-found]  # mypy leaves it out
    from ray import serve

    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    ingress, server = "Ingress", "Engine"
    if by == "llm":
        from ray.serve.llm import build_openai_app

        ingress, server = "OpenAiIngress", "LLMServer:tiny"
        app = build_openai_app({"llm_configs": [config("tiny", model)], "ingress_deployment_config": ONE})
    else:
        app = without_engine()
    serve.run(app)
    titles = {"proxy": "ProxyActor", "ingress": f":{ingress}", "server": f":{server}"}
    return Service(
        lambda: ask("chat/completions", chat(tokens=FEW)),
        f"{server}.chat serve.replica".encode(),
        titles | ({"core": "VLLM::EngineCore", "worker": "VLLM::Worker"} if by == "llm" else {}),
        CLIENTS,
        lambda: dict(ask("chat/completions", chat(tokens=MANY, **STREAMED))),
    )


def without_engine() -> Any:
    from ray import serve
    from starlette.responses import StreamingResponse  # type: ignore[import-not-found]  # where Ray Serve is

    class Engine:
        async def chat(self, body: dict[str, Any]) -> AsyncIterator[Any]:
            count = body["max_tokens"]
            if not body.get("stream"):
                yield {"usage": {"completion_tokens": count}, "choices": [{"message": {"content": "a" * count}}]}
                return
            token = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': 'a'}}]})}\n\n"
            for _ in range(0, count, AT_ONCE):
                yield [token] * AT_ONCE

    class Ingress:
        def __init__(self, engine: Any) -> None:
            self._engine = engine.options(stream=True)

        async def __call__(self, request: Any) -> Any:
            body = await request.json()
            parts = self._engine.chat.remote(body)
            if body.get("stream"):
                return StreamingResponse(self._tokens(parts), media_type="text/event-stream")
            (answer,) = [part async for part in parts]
            return answer

        async def _tokens(self, parts: Any) -> AsyncIterator[str]:
            async for part in parts:
                for token in part:
                    yield token

    options = {"ray_actor_options": {"num_cpus": 0}}
    return serve.deployment(Ingress, **options).bind(serve.deployment(Engine, **options).bind())


def session(by: str, model: str, turns: int, seconds: float) -> None:
    import ray
    from ray import serve

    switch = connect(8 if by == "llm" else 2)
    service = started(by, model)
    traced = warm(service, WARM_UP)
    pids = processes(service.titles)
    found: list[dict[str, Turn]] = []
    times: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    begun, before = processor_times(pids)[SHIPPER], traced
    for number in range(turns):
        order = [(OFF, WITHOUT), (ON, WITH)]
        pair = {}
        for command, name in order if number % 2 else reversed(order):
            switch.turn(command)
            requests = warm(service, AFTER_SWITCH)
            pair[name], more = turn(service, pids, seconds, times[name])
            traced += requests + more if command == ON else 0
        found.append(pair)
    shipped = (processor_times(pids)[SHIPPER] - begun) / (traced - before)
    serve.shutdown()
    ray.shutdown()
    files = Path(os.environ["RAY_TRACING_LOCAL_DIR"]).iterdir()
    spans = sum(path.read_bytes().count(service.executed) for path in files)
    if spans != traced:
        sys.exit(f"{traced} requests were traced, and there are {spans} spans of the replica")
    slowest = {name: statistics.quantiles(taken, n=100)[-1] * 1e6 for name, taken in times.items()}
    hand_over([found, shipped, slowest])


def warm(service: Service, requests: int) -> int:
    with ThreadPoolExecutor(service.clients) as pool:
        list(pool.map(lambda _: service.request(), range(requests)))
    return requests


def processes(titles: dict[str, str]) -> dict[str, int]:
    found = {"driver": os.getpid(), SHIPPER: shipper_of(Path(os.environ["RAY_TRACING_SPOOL_DIR"])).pid}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            line = " ".join(process.cmdline())
            found.update({name: process.pid for name, title in titles.items() if title in line})
    if missing := titles.keys() - found.keys():
        sys.exit(f"not found among the processes: {', '.join(sorted(missing))}")
    return found


def turn(service: Service, pids: dict[str, int], seconds: float, taken: list[float]) -> tuple[Turn, int]:
    """The figures, and how many requests there were. What each took is added to ``taken``, in seconds."""

    def until(deadline: float) -> list[float]:
        times: list[float] = []
        now = time.perf_counter()
        while now < deadline or not times:
            service.request()
            last, now = now, time.perf_counter()
            times.append(now - last)
        return times

    before, begun = processor_times(pids), time.perf_counter()
    with ThreadPoolExecutor(service.clients) as pool:
        found = list(itertools.chain(*pool.map(until, [begun + seconds] * service.clients)))
    took, after = time.perf_counter() - begun, processor_times(pids)
    taken += found
    figures = {"rate": len(found) / took, "median": statistics.median(found) * 1e6}
    figures |= {name: (after[name] - before[name]) / len(found) for name in pids if name != SHIPPER}
    if service.stream is None:
        return figures, len(found)
    told, deadline = [service.stream()], time.perf_counter() + seconds
    before = processor_times(pids)
    while time.perf_counter() < deadline or len(told) == 1:
        told.append(service.stream())
    after = processor_times(pids)
    figures["first token"] = statistics.median(each["first"] for each in told) * 1e6
    figures["tokens"] = statistics.median(MANY / each["seconds"] for each in told)
    spent = {f"{name}, streamed": (after[name] - before[name]) / (len(told) - 1) for name in service.titles}
    return figures | spent, len(found) + len(told)


def processor_times(pids: dict[str, int]) -> dict[str, float]:
    """In us."""
    from family import processor_time_of

    return {name: processor_time_of(pid) / 1e3 for name, pid in pids.items()}


def front_end() -> None:
    """Print the processor time of a generation in the front end, with and without tracing."""
    sys.path += [HELPERS, PROGRAMS]
    from llm_stand_ins import OutputProcessor, Reason, request, timed
    from stand_ins import tracing_of

    from ray_tracing_hooks._ray import tracing
    from ray_tracing_hooks._ray.llm import engine
    from ray_tracing_hooks._safety.patching import Patches

    sys.modules[engine._PROCESSOR] = SimpleNamespace(OutputProcessor=OutputProcessor)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        active, patches = tracing_of(Path(folder)), Patches()
        best = {"off": 1.0, "on": 1.0}
        for number in range(2 * ROUNDS):
            name = ("off", "on")[number % 2]
            if name == "on":
                engine.patch(patches)
            tracing.active = active if name == "on" else None
            processor, begun = OutputProcessor(), time.thread_time()
            engine.note_model(SimpleNamespace(output_processor=processor), "tiny")
            for each in range(GENERATIONS):
                asked = request(f"chatcmpl-{each}")
                processor.add_request(asked)
                timed(processor, asked.request_id, 0.0, 0.1, 0.2, 0.3)
                processor.process_outputs(asked.request_id, 24, Reason.STOP)
            best[name] = min(best[name], (time.thread_time() - begun) / GENERATIONS)
            patches.undo()
        tracing.active = None
    print(f"front end: {(best['on'] - best['off']) * 1e6:.0f} us more for a generation, none for a token", flush=True)


def report(by: str, found: list[Session]) -> None:
    units = dict.fromkeys(PER_SECOND, "1/s")
    print("\n".join(switching.table(f"by {by}", [each.turns for each in found], units)))
    ratios = [each.slowest[WITH] / each.slowest[WITHOUT] for each in found]
    without = f"{statistics.median(each.slowest[WITHOUT] for each in found):,.1f} us"
    print(f"{'p99':22}{without:>14}   traced {switching.spread_of(ratios)}")
    shipped = statistics.median(each.shipped for each in found)
    print(f"{SHIPPER}: {shipped:,.0f} us a traced request, at low priority", flush=True)


def main() -> None:
    parser = switching.parser(__doc__, turns=30)
    parser.add_argument("--by", default="http,handle,stream")
    parser.add_argument("--model", default="", help="the folder of the model, for llm")
    parser.add_argument("--seconds", type=float, default=1.0)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.model, chosen.turns, chosen.seconds)
        return
    ways = chosen.by.split(",")
    if "llm" in ways:
        if not Path(chosen.model, "config.json").exists():
            parser.error("--model is needed for llm: the folder that tests/ray/programs/llm_model.py has written")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GB: by default, it takes most of the memory
        front_end()
    arguments = ["--seconds", str(chosen.seconds), "--model", os.path.abspath(chosen.model)]
    for by in ways:
        report(by, [Session(*each) for each in switching.sessions(__file__, by, chosen, arguments, PROGRAMS)])


if __name__ == "__main__":
    main()
