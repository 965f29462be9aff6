"""Requests to LLM engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.findings.serve import deployment_of, share_on_path
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.requests import ENGINE_PREFILL, ENGINE_QUEUE
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.generations import Generations
from ray_tracing_hooks._insight.model.grouped import most_at_once, split
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans

_LEAST_GENERATIONS = 10
_QUEUE_SHARE = 0.2
_QUEUE_LEAST = 10_000_000
"""Of half of the generations, in nanoseconds."""
_PREFILL_SHARE = 0.3
_PREFILL_LEAST = 50_000_000
"""Likewise."""
_LET_IN = 2_000_000
"""By how many nanoseconds the next generation may seem to leave the queue before the last token of the one before it:
that is when the arrivals and the engine's own times do not have the same clock."""


class _Engine(NamedTuple):
    """The generations in the replicas of a deployment that told a phase, and how long that was."""

    deployment: str
    place: Any
    """In the generations of the run."""
    times: Any
    """Of the phase of each, in nanoseconds."""
    share: float
    """Of the time of requests that went to it, from 0 to 1."""
    requests: int
    """How many there are in all."""
    spans: ServeSpans
    found: Generations

    @property
    def median(self) -> int:
        return percentile(np.sort(self.times).tolist(), 0.5)

    @property
    def at_95(self) -> int:
        return percentile(np.sort(self.times).tolist(), 0.95)

    @property
    def rows(self) -> list[int]:
        """The longest first."""
        longest: list[int] = self.found.row[self.place[np.argsort(-self.times, kind="stable")]].tolist()
        return longest

    def on_path(self, analysis: Analysis, phase: int) -> float:
        """The share of the run whose critical path was in its replicas in this phase."""
        begin, end = self.found.edges[phase : phase + 2, self.place]
        times = list(zip(begin.tolist(), end.tolist(), strict=True))
        return share_on_path(analysis, self.spans, self.found.row[self.place].tolist(), times)


def _by_deployment(analysis: Analysis, kind: str) -> Iterator[_Engine]:
    """``kind``: the phase as a part of requests."""
    requests, spans, found = analysis.requests, analysis.serve_spans, analysis.generations
    if requests is None or spans is None or found is None or not requests.time:
        return
    column = found.queue if kind == ENGINE_QUEUE else np.where(found.is_leg, -1, found.prefill)
    places = np.nonzero((column >= 0) & (spans.above[found.row] >= 0))[0]
    methods, which = np.unique(spans.method[spans.above[found.row[places]]], return_inverse=True)
    named = [deployment_of(spans, each) for each in methods.tolist()]
    distinct = list(dict.fromkeys(named))
    numbers = np.array([distinct.index(each) for each in named], np.int64)[which]
    for (application, name), its in zip(distinct, split(numbers, len(distinct), places)[0], strict=True):
        took = sum(
            part.time
            for part in requests.parts
            if part.kind == kind and (part.application, part.name.rpartition(".")[0]) == (application, name)
        )
        yield _Engine(name, its, column[its], took / requests.time, requests.count, spans, found)


def engine_queues(analysis: Analysis) -> Iterator[Finding]:
    """Requests that wait in the queue of an LLM engine, which runs only so many at once.

    Measures: these waits on the critical path, where a driver may wait for requests; the text has their share.
    Threshold: a fifth of the time of requests, and 10 ms in the median of 10 generations.
    Looks the same: an engine whose KV cache is full, for which it does not help to run more at once.
    Advice: more replicas, or a larger max_num_seqs; Ray Serve LLM hands all requests to the engine in any case.
    Needs: generations in replicas, with the time in the queue.
    """
    for each in _by_deployment(analysis, ENGINE_QUEUE):
        found, many = each.found, len(each.place)
        if many < _LEAST_GENERATIONS or each.share < _QUEUE_SHARE or each.median < _QUEUE_LEAST:
            continue
        replicas = each.spans.resource[found.row[each.place]]
        # Of generations without all of their times it is not known when they ran.
        is_known = found.is_complete[each.place].all()
        at_once = max(_at_once(found, each.place[replicas == one]) for one in np.unique(replicas)) if is_known else 0
        ran = f", of which an engine ran at most {at_once:,} at once" if at_once else ""
        yield Finding(
            "engine-queue",
            f"waiting in the engine's queue in {quoted(each.deployment)} took {percent(each.share)} of the time of "
            f"{count(each.requests, 'request')}; of {count(many, 'generation')} in "
            f"{count(len(np.unique(replicas)), 'replica')}{ran}, the "
            f"median waited {duration(each.median)}, the 95th percentile {duration(each.at_95)}",
            "more replicas (num_replicas), or a larger max_num_seqs if the engine's KV cache has room for more at "
            "once; a larger max_ongoing_requests would not help: these requests have reached the engine",
            each.on_path(analysis, 1),
            each.rows,
            {"deployment": each.deployment},
            title=f"Requests wait in the engine's queue of {quoted(each.deployment)}",
            requests_share=each.share,
        )


def _at_once(found: Generations, place: Any) -> int:
    """The most generations of these that were between their queue and their last token at one time."""
    begin, end = found.edges[2, place], found.edges[4, place]
    end = end - np.minimum(_LET_IN, (end - begin) // 10)
    return most_at_once(begin[end > begin], end[end > begin])


def long_prefills(analysis: Analysis) -> Iterator[Finding]:
    """Requests to an LLM engine whose prompts take long until the first token.

    Measures: the prefill on the critical path, where a driver may wait for requests; the text has its share.
    Threshold: three tenths of the time of requests, and of half of 10 generations; 50 ms in their median.
    Looks the same: an engine that decodes for many others in the same steps; the first request, while it compiles.
    Advice: shorter prompts, prompts that begin alike for the prefix cache, or replicas for the prefill alone.
    Needs: generations in replicas, with the time of the prefill.
    """
    for each in _by_deployment(analysis, ENGINE_PREFILL):
        found, many = each.found, len(each.place)
        if many < _LEAST_GENERATIONS or each.share < _PREFILL_SHARE or each.median < _PREFILL_LEAST:
            continue
        if float(np.median(each.times / np.maximum(found.took[each.place], 1))) < _PREFILL_SHARE:
            continue
        places = each.place[found.input[each.place] > 0]
        tokens, cached = found.input[places], found.cached[places]
        of_cache = min(1.0, float(cached.sum()) / max(1.0, float(tokens.sum())))
        length = round(float(np.median(tokens))) if len(places) else 0
        prompts = (
            f"; a prompt has {count(length, 'token')} (median), and {percent(of_cache)} of all were in the prefix cache"
        )
        yield Finding(
            "long-prefill",
            f"the prefill in {quoted(each.deployment)} took {percent(each.share)} of the time of "
            f"{count(each.requests, 'request')}: {duration(each.median)} in the median of "
            f"{count(many, 'generation')}, {duration(each.at_95)} at the 95th percentile"
            f"{prompts if len(places) else ''}",
            "shorter prompts; let prompts begin with what they have in common, so that the prefix cache has it; or "
            "replicas for the prefill alone, if it delays the decoding of other requests",
            each.on_path(analysis, 2),
            each.rows,
            {"deployment": each.deployment},
            title=f"Prompts take long in {quoted(each.deployment)}",
            requests_share=each.share,
        )


_INGRESS_SHARE = 0.2
_INGRESS_LEAST = 20_000_000
"""Of half of the requests, in nanoseconds."""
_CROWDED = 4
"""How many others a crowded request finds before their call."""
_SLOWED = 3.0
"""How many times as long a crowded request takes until its call as one that finds few others."""


def busy_ingresses(analysis: Analysis) -> Iterator[Finding]:
    """Requests that spend long in a replica before it calls the server of their model, the longer the more are in it.

    Measures: this time on the critical path, where a driver may wait for requests; the text has its share.
    Threshold: a fifth of the time of requests, and 20 ms in the median of 10. The quarter that found most others at
    this point, of 4 or more in the median, took three times as long as the quarter that found fewest.
    Looks the same: code that waits there for something else that gets slower with load.
    Advice: more replicas of the ingress; code that blocks its event loop in threads.
    Needs: generations in replicas that other replicas have called.
    """
    requests, spans, found = analysis.requests, analysis.serve_spans, analysis.generations
    if requests is None or spans is None or found is None or not requests.time:
        return
    server = np.unique(spans.above[found.row][~found.is_leg & (spans.above[found.row] >= 0)])
    ingress = spans.above[server]
    is_called = (ingress >= 0) & spans.is_replica[ingress]
    server, ingress = server[is_called], ingress[is_called]
    began, called = spans.start[ingress], spans.start[as_numpy(analysis.table.parent)[server]]
    took = np.maximum(called - began, 0)
    for method in np.unique(spans.method[ingress]).tolist():
        its = np.nonzero(spans.method[ingress] == method)[0]
        share, median = float(took[its].sum()) / requests.time, float(np.median(took[its]))
        if len(its) < _LEAST_GENERATIONS or share < _INGRESS_SHARE or median < _INGRESS_LEAST:
            continue
        others = np.zeros(len(its), np.int64)
        replicas = spans.resource[ingress[its]]
        for replica in np.unique(replicas):
            there = replicas == replica
            begins, ends = began[its[there]], np.sort(called[its[there]])
            before = np.searchsorted(np.sort(begins), begins) - np.searchsorted(ends, begins, side="right")
            others[there] = np.maximum(before, 0)
        by_others, quarter = its[np.argsort(others, kind="stable")], len(its) // 4
        crowded, alone = (float(np.median(took[each])) for each in (by_others[-quarter:], by_others[:quarter]))
        most = float(np.median(np.sort(others)[-quarter:]))
        if most < _CROWDED or crowded < _SLOWED * alone:
            continue
        deployment = deployment_of(spans, method)[1]
        times = list(zip(began[its].tolist(), called[its].tolist(), strict=True))
        yield Finding(
            "busy-ingress",
            f"requests were in {quoted(deployment)} for {duration(median)} in the median until it called the server of "
            f"their model, {percent(share)} of the time of {count(requests.count, 'request')}; the quarter that found "
            f"most others there took {duration(crowded)}, with {most:,.0f} others in the same replica, and the quarter "
            f"that found fewest took {duration(alone)}; it has {count(len(np.unique(replicas)), 'replica')}",
            "more replicas of the ingress (num_replicas in ingress_deployment_config); code of your own that blocks "
            "its event loop belongs in threads",
            share_on_path(analysis, spans, ingress[its].tolist(), times),
            ingress[its[np.argsort(-took[its], kind="stable")]].tolist(),
            {"deployment": deployment},
            title=f"Requests wait in {quoted(deployment)} before it calls their model",
            requests_share=share,
        )


_ABORTED_LEAST = 5
_ABORTED_SHARE = 0.1


def aborted_generations(analysis: Analysis) -> Iterator[Finding]:
    """Generations that the engine ended since nobody waited for them any more.

    Measures: their number, and the tokens that were generated in vain; it claims no cost.
    Threshold: 5 of a model, and a tenth of its generations or of its tokens.
    Looks the same: clients and programs that stop by intent when they have seen enough.
    Advice: to see what clients wait for, and their timeouts; to limit the output.
    Needs: generations, with their finish reasons.
    """
    found = analysis.generations
    if found is None or not found.is_aborted.any():
        return
    models = np.array(found.model, object)
    for model in dict.fromkeys(models[found.is_aborted].tolist()):
        its = (models == model) & found.is_read
        aborted = its & found.is_aborted
        many, all_of_it = int(np.count_nonzero(aborted)), int(np.count_nonzero(its))
        tokens, all_tokens = sum(found.output[aborted].tolist()), sum(found.output[its].tolist())
        share = max(many / all_of_it, tokens / max(1, all_tokens))
        if many < _ABORTED_LEAST or share < _ABORTED_SHARE:
            continue
        early = int(np.count_nonzero(aborted & (found.first < 0)))
        before = f", {early:,} of them before their first token" if early else ""
        read = "" if found.is_read.all() else " (of those that were read)"
        yield Finding(
            "aborted-generations",
            f"{many:,} of {count(all_of_it, 'generation')} of {quoted(model)} were aborted{before}, after "
            f"{count(tokens, 'token')}, {percent(tokens / max(1, all_tokens))} of all that it generated{read}; "
            "their clients had left, or the program had stopped them",
            "if clients give up, see where the time to the first chunk goes, and compare their timeouts with it; if "
            "they have seen enough by then, let them ask for less (max_tokens, stop)",
            0.0,
            found.row[aborted][np.argsort(-found.took[aborted], kind="stable")].tolist(),
            {"model": model},
            title=f"Generations of {quoted(model)} are aborted",
        )
