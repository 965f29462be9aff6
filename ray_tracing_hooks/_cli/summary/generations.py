"""Generations of LLM engines in a summary: by model, and what the time to the first chunk of responses went to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_tracing_hooks._cli.screen import Row, aligned
from ray_tracing_hooks._cli.summary.requests import two
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.generated import (
    FIRST_PARTS,
    Engines,
    FirstChunks,
    Generated,
    Generating,
    percentile_of,
)
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, plain, shortened

_SHOWN_MODELS = 6
_SHOWN_REPLICAS = 8
_SHOWN_CHUNKS = 3
_NAME_WIDTH = 30


def lines(found: Engines | None) -> Iterator[str | Row]:
    """The time to the first chunk, and a table of models."""
    if found is None:
        return
    for each in found.first_chunks[:_SHOWN_CHUNKS]:
        yield from _first_chunks(each)
    if (more := len(found.first_chunks) - _SHOWN_CHUNKS) > 0:
        yield f" and those of {count(more, 'other model')}: --json has them"
    yield ""
    unread = f"; without {found.unread:,} later ones" if found.unread else ""
    yield f"Generations of LLM engines: tokens, time to the first and for each later one, and in the queue{unread}"
    titles = ("MODEL", "COUNT", "FAILED", "ABORTED", "IN", "OUT", "CACHED", "FIRST", "P95", "EACH", "P95", "QUEUE P95")
    rows = []
    for model in found.models[:_SHOWN_MODELS]:
        rows.append(_generated(model, plain(model.model) or "(unknown)"))
        if len(model.replicas) > 1:
            rows += [_generated(each, f"  in {each.replica}") for each in model.replicas[:_SHOWN_REPLICAS]]
    yield from aligned(titles, rows)
    if (more := len(found.models) - _SHOWN_MODELS) > 0:
        yield f" and {count(more, 'other model')}: --json has them"


def _first_chunks(found: FirstChunks) -> Iterator[str | Row]:
    many, half, at_95 = len(found.times), percentile(found.times, 0.5), percentile(found.times, 0.95)
    yield ""
    yield (
        f"Time to the first chunk of {count(many, 'streamed request')} to {shortened(plain(found.name))}: "
        f"median {duration(half)}, p95 {duration(at_95)}"
    )
    slowest = found.slow_time if found.slow else 0
    rows = [
        (
            FIRST_PARTS[part.kind],
            percent(part.time / found.time),
            *([percent(part.slow_time / slowest)] if slowest else []),
            duration(part.median),
        )
        for part in found.parts
    ]
    yield from aligned(("WHERE IT WENT", "ALL", *(["SLOWEST 5 %"] if slowest else []), "MEDIAN"), rows)


def _generated(found: Generated, name: str) -> tuple[str, ...]:
    tokens = (f"{each:,}" if each else "" for each in (found.failed, found.aborted))
    return (
        shortened(name, _NAME_WIDTH) + (", prefill only" if found.is_leg else ""),
        f"{found.count:,}",
        *tokens,
        f"{found.input:,}",
        f"{found.output:,}",
        f"{found.cached:,}" if found.cached else "",
        *two(found.first),
        *two(found.per_token),
        two(found.queue)[1],
    )


def of_operators(found: Sequence[Generating]) -> Iterator[str | Row]:
    """A table of the operators of datasets."""
    if not found:
        return
    yield ""
    yield "All generations by operators of datasets, including those without a span; times to about 5 %"
    rows = [
        (
            shortened(plain(each.name), _NAME_WIDTH),
            *(f"{value:,}" for value in (each.count, each.input, each.output, each.cached)),
            f"{each.per_second:,.0f}",
            *(
                "" if time is None else duration(time)
                for buckets in (each.first, each.queue)
                for time in (percentile_of(buckets, 0.5), percentile_of(buckets, 0.95))
            ),
        )
        for each in found[:_SHOWN_MODELS]
    ]
    titles = ("OPERATOR", "COUNT", "IN", "OUT", "CACHED", "OUT/S", "FIRST", "P95", "QUEUE", "P95")
    yield from aligned(titles, rows)
    if (more := len(found) - _SHOWN_MODELS) > 0:
        yield f" and {count(more, 'other operator')}: --json has them"
