"""What tracing costs requests to a language model, in one and the same application with and without.

    .venv/llm/bin/python tests/benchmarks/llm_cost.py MODEL [--turns 20] [--seconds 2]

It runs with the packages that ``make prepare BESIDE=llm`` installs, and this one on ``PYTHONPATH``; ``MODEL`` is the
folder that ``tests/ray/programs/llm_model.py`` writes. vLLM on the CPU is behind Ray Serve LLM. Turns with and without
tracing follow each other as in ``serve_cost.py``, and every second pair begins with tracing. In each turn, some clients
at once ask for a few tokens, and then one client streams responses with many.

Printed are the rate, the time to the first token and the tokens a second with tracing, relative to the turn without it
beside, as medians with quartiles; and likewise the processor time that a request takes of each process, which depends
less on what else the machine does. Before that, without a cluster: what a generation takes of the processor in the
front end of an engine that answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "helpers"), str(HERE.parent / "ray" / "programs")]

import psutil  # noqa: E402  these are found beside this file
import switching  # noqa: E402
from switched_hook import OFF, ON  # noqa: E402

CLIENTS, FEW, MANY = 4, 4, 100
"""Clients at once, and the tokens of their responses and of those that are streamed."""

TITLES = {
    "proxy": "ProxyActor",
    "ingress": "ServeReplica:llm:OpenAiIngress",
    "server": "ServeReplica:llm:LLMServer",
    "core": "VLLM::EngineCore",
    "worker": "VLLM::Worker",
}
GENERATIONS, ROUNDS = 500, 30

Turn = dict[str, float]


def front_end() -> None:
    """Print the processor time of a generation in the front end, with and without tracing."""
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


def session(model: str, turns: int, seconds: float) -> None:
    import ray
    from llm_client import ONE, PORT, config  # type: ignore[import-not-found]  # mypy leaves programs out
    from ray import serve
    from ray.serve.llm import build_openai_app

    switch = switching.connect(8)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    app = build_openai_app({"llm_configs": [config("tiny", model)], "ingress_deployment_config": ONE})
    serve.run(app, name="llm")
    pids = processes()
    turn(pids, seconds)
    found = []
    for number in range(turns):
        pair = {}
        for command, name in [(OFF, "off"), (ON, "on")][:: 1 if number % 2 else -1]:
            switch.turn(command)
            turn(pids, 0.2)
            pair[name] = turn(pids, seconds)
        found.append(pair)
    switch.turn(ON)
    serve.shutdown()
    ray.shutdown()
    switching.hand_over(found)


def processes() -> dict[str, int]:
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            line = " ".join(process.cmdline())
            found.update({name: process.pid for name, title in TITLES.items() if title in line})
    if missing := TITLES.keys() - found.keys():
        sys.exit(f"not found among the processes: {', '.join(sorted(missing))}")
    return found


def turn(pids: dict[str, int], seconds: float) -> Turn:
    from llm_client import STREAMED, ask, chat

    def until(deadline: float) -> int:
        count = 0
        while time.perf_counter() < deadline:
            ask("chat/completions", chat(tokens=FEW))
            count += 1
        return count

    before, begun = processor_times(pids), time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        count = sum(pool.map(until, [begun + seconds] * CLIENTS))
    took, after = time.perf_counter() - begun, processor_times(pids)
    figures = {"requests a second": count / took}
    figures |= {f"{name}, us a request": (after[name] - before[name]) / count for name in pids}
    first: list[float] = []
    rates: list[float] = []
    tokens, deadline = 0, time.perf_counter() + seconds
    while not first or time.perf_counter() < deadline:
        told = ask("chat/completions", chat(tokens=MANY, **STREAMED))
        first.append(told["first"] * 1e3)
        rates.append(MANY / told["seconds"])
        tokens += MANY
    last = processor_times(pids)
    figures |= {"first token, ms": statistics.median(first), "tokens a second": statistics.median(rates)}
    figures |= {f"{name}, us a token": (last[name] - after[name]) / tokens for name in ("proxy", "ingress", "server")}
    return figures


def processor_times(pids: dict[str, int]) -> dict[str, float]:
    """In us."""
    from family import processor_time_of

    return {name: processor_time_of(pid) / 1e3 for name, pid in pids.items()}


def report(pairs: list[dict[str, Turn]]) -> None:
    print(f"{'':24}{'without':>12}{'with, relative':>22}   {len(pairs)} pairs")
    for name in pairs[0]["off"]:
        ratios = sorted(pair["on"][name] / pair["off"][name] for pair in pairs)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        without = statistics.median(pair["off"][name] for pair in pairs)
        print(f"{name:24}{without:>12,.1f}{statistics.median(ratios):>10.3f} ({low:.2f}-{high:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the folder of the model")
    parser.add_argument("--turns", type=int, default=20, help="pairs of turns")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--session", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.model, chosen.turns, chosen.seconds)
        return
    front_end()
    arguments = [os.path.abspath(chosen.model), "--session", "--turns", str(chosen.turns)]
    report(switching.session(__file__, [*arguments, "--seconds", str(chosen.seconds)]))


if __name__ == "__main__":
    main()
