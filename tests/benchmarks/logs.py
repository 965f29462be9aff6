"""What a log call costs that is made within a span, beside one without tracing.

    python tests/benchmarks/logs.py

Contenders take short turns in one process, so that a slow moment of the machine hits all of them alike. The figures are
medians of the rounds: microseconds of processor time a call, how many more than without tracing in the same round, and
the rate relative to that. The last row is without tracing again: as far as it is from 1, so far may the others be off.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from opentelemetry import trace
from ray._common.formatters import JSONFormatter

from ray_tracing_hooks import _logs
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.sampling import from_environment
from ray_tracing_hooks._spool.writer import SpoolWriter

CALLS, ROUNDS = 500, 151
UNTRACED, AGAIN = "without tracing", "without tracing, again"

Round = Callable[[], float]


def handlers(sink: int) -> dict[str, logging.Handler]:
    """What a program may do with its log lines."""
    nowhere = os.fdopen(sink, "w")
    text, in_json = logging.StreamHandler(nowhere), logging.StreamHandler(nowhere)
    text.setFormatter(logging.Formatter("%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"))
    in_json.setFormatter(JSONFormatter())
    return {"a handler that does nothing": logging.NullHandler(), "lines of text": text, "Ray's JSON": in_json}


def process(folder: str) -> _logs.Correlation:
    sampler = from_environment({})
    assert sampler is not None
    writer, resource = SpoolWriter(folder), encode.resource({"service.name": "bench"})
    recorder = Recorder(writer, resource=resource, scope=encode.scope("bench"), sampler=sampler, limits=SpanLimits())
    return _logs.Correlation(recorder, writer, resource)


@contextmanager
def traced(of: _logs.Correlation, *parts: str, within: bool = True) -> Iterator[None]:
    end = _logs.begin(frozenset(parts), of)
    span = of.recorder.start(Template("work", 5, {}), bytes(range(16)), 1, None)
    with trace.use_span(span) if within else nullcontext():
        yield
    span.end()
    end()


def seconds(logger: logging.Logger) -> float:
    begin = time.thread_time()
    for number in range(CALLS):
        logger.info("number %d of %s", number, "many")
    return time.thread_time() - begin


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        of = process(folder)

        def untraced(logger: logging.Logger) -> float:
            return seconds(logger)

        def within(*parts: str) -> Callable[[logging.Logger], float]:
            def run(logger: logging.Logger) -> float:
                with traced(of, *parts):
                    return seconds(logger)

            return run

        def outside(logger: logging.Logger) -> float:
            with traced(of, "ids", within=False):
                return seconds(logger)

        contenders = {
            UNTRACED: untraced,
            "ids, within a span": within("ids"),
            "ids, outside of spans": outside,
            "ids,otlp": within("ids", "otlp"),
            AGAIN: untraced,
        }
        for what, handler in handlers(os.open(os.devnull, os.O_WRONLY)).items():
            logger = logging.Logger("bench")  # noqa: LOG001  with no other handlers than this
            logger.addHandler(handler)
            times: dict[str, list[float]] = {name: [] for name in contenders}
            for number in range(ROUNDS + 1):
                for name, run in contenders.items():
                    took = run(logger)
                    if number:  # the first round warms up
                        times[name].append(took)
            print(f"\n{what:<28} {'us a call':>10} {'more':>8} {'relative rate':>14}")
            for name, each in times.items():
                pairs = list(zip(times[UNTRACED], each, strict=True))
                took, more = (statistics.median(values) / CALLS * 1e6 for values in (each, [b - a for a, b in pairs]))
                print(f"  {name:<26} {took:>10.2f} {more:>8.2f} {statistics.median(a / b for a, b in pairs):>14.2f}")


if __name__ == "__main__":
    main()
