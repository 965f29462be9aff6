"""Datasets of Ray Data: their operators, their blocks and their memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis import limits
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import DATASET
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.pipelines import Cause, Iteration, Operator, Pipeline
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, percent, size
from ray_tracing_hooks._insight.model.calls import Calls


def bottleneck_operators(analysis: Analysis) -> list[Finding]:
    """Operators of datasets that are as busy as their own limit allows, and so limit all others.

    Measures: the time that a higher limit would save before the next limit applies, or its tasks on the critical path
    if that is more.
    Threshold: a higher limit would save a tenth of the run.
    Looks the same: operators that wait for a busy consumer, or for memory. Their own limit is not the cause.
    Advice: raise its concurrency, make its function faster, or share GPUs.
    Needs: spans of Ray Data, with the limits of operators.
    """
    found = []
    for pipeline in analysis.pipelines.executions:
        operator = limits.saturated(pipeline)
        if operator is None:
            continue
        cost = limits.least_time(operator) - limits.next_limit(pipeline, operator)
        if is_costly(analysis, cost):
            share = max(cost, _on_path(analysis, operator)) / analysis.path.wall
            found.append(_operator_finding(pipeline, operator, share, analysis))
    return found


_STARVED = 0.5
"""The share of their time that iterations wait for batches, and of that until blocks are produced."""


def starved_splits(analysis: Analysis) -> list[Finding]:
    """Splits of a dataset, as those for the ranks of a training, that wait while its tasks use all CPUs they may use.

    Measures: how long the one waited that waited longest, as far as the critical path is in Ray Data or its tasks.
    Threshold: half of the time of iterations, half of that for blocks to be produced, and a tenth of the run.
    Looks the same: operators with a limit of their own, which are another finding.
    Advice: to leave more CPUs to the dataset, or to need fewer.
    Needs: spans of Ray Data.
    """
    path, found = analysis.path, []
    for pipeline in analysis.pipelines.executions:
        limit = limits.limit_of(pipeline)
        its = [
            each
            for each in analysis.pipelines.iterations
            if each.split is not None and each.start < pipeline.end and each.end > pipeline.start
            if not each.dataset_id or not pipeline.dataset_id or each.dataset_id == pipeline.dataset_id
        ]
        if limit is None or limit.kind != limits.PROCESSORS or pipeline.consumer != _SPLIT or not its:
            continue
        longest = max(its, key=lambda each: each.waited)
        producing = longest.stages.get("production", 0)
        if (longest.waiting_share or 0.0) < _STARVED or producing < _STARVED * longest.waited:
            continue
        rows = [row for operator in pipeline.operators for row in operator.executions]
        cost = min(longest.waited, path.kinds[DATASET] + sum(analysis.ran_on_path[row] for row in rows))
        if is_costly(analysis, cost):
            found.append(_starved_finding(analysis, pipeline, longest, cost, percent(limit.share)))
    return found


_SPLIT = "streaming_split"


def _cpus(number: float) -> str:
    return f"{number:g} {'CPU' if number == 1 else 'CPUs'}"


def _starved_finding(analysis: Analysis, pipeline: Pipeline, longest: Iteration, cost: int, share: str) -> Finding:
    dataset = quoted(pipeline.name)
    text = (
        f"an iteration over a split of dataset {dataset} waited {duration(longest.waited)} for batches, "
        f"{percent(longest.waiting_share or 0.0)} of its time, while the tasks of the dataset held {share} of the "
        f"{_cpus(pipeline.limits['CPU'])} that it could use"
    )
    advice = (
        "leave more CPUs to Ray Data: fewer for each worker of the training (resources_per_worker), or more nodes; or "
        "make its functions faster, or materialize() before the training what does not change"
    )
    about = {"dataset": pipeline.name}
    rows = [longest.row, pipeline.row]
    title = f"Splits of {dataset} wait for batches"
    return Finding("starved-splits", text, advice, cost / analysis.path.wall, rows, about, title=title)


def _operator_finding(pipeline: Pipeline, operator: Operator, cost: float, analysis: Analysis) -> Finding:
    slots, busy = operator.slots or 1, limits.slot_share(operator)
    by = count(operator.actors, "actor") if operator.has_actors else "its concurrency"
    text = (
        f"operator {quoted(operator.name)} limits {quoted(pipeline.name)} ({pipeline.consumer or 'an execution'}): it "
        f"may run {count(slots, 'task')} at a time ({by}) and was busy {percent(busy)} of the "
        f"{duration(operator.worked)} it worked"
    )
    others = []
    if operator.longest_queue:
        others.append(f"up to {count(operator.longest_queue, 'block')} waited for it")
    used = limits.processor_share(pipeline)
    if used is not None and used < busy:
        others.append(f"the execution held only {percent(used)} of its {pipeline.limits['CPU']:g} CPUs")
    if others:
        text += f", while {' and '.join(others)}"
    slowest = sorted(operator.executions, key=lambda row: -analysis.self_time[row])
    about = {"operator": operator.name, "dataset": pipeline.name}
    return Finding(
        "bottleneck-operator",
        text,
        _operator_advice(operator),
        cost,
        [operator.row, *slowest],
        about,
        quotes={names.RAY_DATA_CONSUMER: pipeline.consumer},
        title=f"{quoted(operator.name)} limits its dataset",
    )


def _operator_advice(operator: Operator) -> str:
    if operator.needs.get("GPU"):
        return (
            "give it more GPUs (concurrency), let several of its actors share one (num_gpus below 1), or make its "
            "function faster, for example with larger batches"
        )
    required = operator.needs.get("CPU")
    each = f" (each {'actor' if operator.has_actors else 'task'} requires {required:g} CPU)" if required else ""
    return f"raise its concurrency{each}, or make its function faster, for example with larger batches"


_STORE = "object store memory"


def backpressure(analysis: Analysis) -> list[Finding]:
    """Executions of datasets in which memory holds an operator back, while processors are idle.

    Measures: the time in which the operator could not submit tasks, times the idle share of the processors.
    Threshold: a tenth of the run.
    Looks the same: executions that an operator's own limit or their consumer holds back.
    Advice: use smaller blocks, fewer columns, faster operators behind it, or more memory.
    Needs: spans of Ray Data, with the causes of back-pressure.
    """
    found = []
    for pipeline in analysis.pipelines.executions:
        limit = limits.limit_of(pipeline)
        if limit is None or limit.kind != limits.MEMORY or limit.operator is None:
            continue
        idle = 1 - (limits.processor_share(pipeline) or 0.0)
        cost = limits.held_by_memory(limit.operator) * idle
        if is_costly(analysis, cost):
            found.append(_backpressure_finding(pipeline, limit.operator, cost / analysis.path.wall))
    return found


def _backpressure_finding(pipeline: Pipeline, operator: Operator, cost: float) -> Finding:
    held = limits.held_by_memory(operator)
    causes = [cause for cause in operator.held_back if cause.kind == "submission" and "memory" in cause.resource]
    main = max(causes, key=operator.held_back.__getitem__)
    text = (
        f"operator {quoted(operator.name)} of {quoted(pipeline.name)} could not submit tasks for {duration(held)} of "
        f"{duration(pipeline.duration)}, since {_lacking(main, pipeline)}"
    )
    used = limits.processor_share(pipeline)
    if used is not None:
        text += f"; meanwhile the execution held only {percent(used)} of its {pipeline.limits['CPU']:g} CPUs"
    blocks = operator.bytes / operator.blocks if operator.bytes and operator.blocks else 0
    if blocks:
        text += f". Its blocks have {size(blocks)} on average"
    about = {"operator": operator.name, "dataset": pipeline.name}
    return Finding(
        "backpressure",
        text,
        _backpressure_advice(main),
        cost,
        [operator.row, pipeline.row],
        about,
        quotes={
            names.RAY_DATA_BACKPRESSURE_BY: main.policy,
            names.RAY_DATA_BACKPRESSURE_POLICY: main.policy,
            names.RAY_DATA_LIMITS: _allowed(main, pipeline),
            names.RAY_DATA_BYTES: size(blocks) if blocks else "",
        },
        title=f"Memory holds {quoted(operator.name)} back",
    )


def _lacking(cause: Cause, pipeline: Pipeline) -> str:
    by = f" (policy {cause.policy})" if cause.policy else ""
    allowed = _allowed(cause, pipeline)
    of = f" that it may use ({allowed})" if allowed else ""
    return f"the {_STORE if _STORE in cause.resource else 'heap memory'}{of} was used up{by}"


def _allowed(cause: Cause, pipeline: Pipeline) -> str:
    limit = pipeline.limits.get("object_store_memory" if _STORE in cause.resource else "memory")
    return size(limit) if limit else ""


def _backpressure_advice(cause: Cause) -> str:
    if _STORE in cause.resource:
        return (
            "make blocks smaller (override_num_blocks), drop columns early, make the operators behind it faster, or "
            "allow more memory (object_store_memory of ray.init)"
        )
    return "request less memory for each task (memory), or use fewer tasks at a time (concurrency)"


_TASK_OPERATOR = "TaskPoolMapOperator"
_MAP_OPERATORS = (_TASK_OPERATOR, "ActorPoolMapOperator")
"""The types of those that run a function on each block; the others decide by themselves how many tasks they use."""
_BLOCKS_IN_USE = 0.5


def few_blocks(analysis: Analysis) -> list[Finding]:
    """Operators of datasets that run in fewer tasks than there are processors, for example on an input of few blocks.

    Measures: their tasks on the critical path, times the share of the processors that so few tasks cannot use.
    Threshold: 0.5 s and a tenth of the run. The tasks use at most half of the processors that the concurrency allows,
    on at least as many rows as processors.
    Looks the same: data that has to be processed in one piece, or in order. Pools of actors do not count.
    Advice: make more blocks (repartition, override_num_blocks, or more files). Or use a smaller batch_size: a batch
    joins blocks.
    Needs: spans of Ray Data, with the processors that an execution may use.
    """
    few: dict[str, list[tuple[int, Pipeline, Operator]]] = {}
    for pipeline in analysis.pipelines.executions:
        processors = pipeline.limits.get("CPU", 0.0)
        for operator in pipeline.operators:
            needs = operator.needs.get("CPU", 0.0)
            usable = operator.tasks * needs
            allowed = min(processors, operator.slots * needs) if operator.slots else processors
            is_few = 0 < usable <= _BLOCKS_IN_USE * allowed and operator.type == _TASK_OPERATOR
            if is_few and max(operator.rows or 0, operator.input_rows or 0) >= processors:
                cost = round(_on_path(analysis, operator) * (1 - usable / allowed))
                few.setdefault(_function(operator.name), []).append((cost, pipeline, operator))
    costs = {name: sum(cost for cost, *_ in each) for name, each in few.items()}
    return [
        _blocks_finding(analysis, name, cost, *max(few[name], key=lambda each: each[0])[1:])
        for name, cost in costs.items()
        if is_costly(analysis, cost, seconds=0.5)
    ]


def _function(name: str) -> str:
    """The name of an operator without what Ray Data adds to it for one use, such as a projection."""
    stages = name.split("->")
    while len(stages) > 1 and "(" not in stages[-1]:
        stages.pop()
    return "->".join(stages)


def _on_path(analysis: Analysis, operator: Operator) -> int:
    return sum(analysis.ran_on_path[row] for row in operator.executions)


def _blocks_finding(analysis: Analysis, name: str, cost: int, pipeline: Pipeline, operator: Operator) -> Finding:
    rows, processors = max(operator.rows or 0, operator.input_rows or 0), pipeline.limits["CPU"]
    usable = operator.tasks * operator.needs["CPU"]
    shown = f"{rows:,} rows"
    return Finding(
        "few-blocks",
        f"operator {quoted(operator.name)} of {quoted(pipeline.name)} ran {shown} in {count(operator.tasks, 'task')}: "
        f"for {duration(operator.worked)} it could use {usable:g} of {processors:g} CPUs",
        "make more blocks: repartition before it, a larger override_num_blocks, or more and smaller files; or use a "
        "smaller batch_size, if a task takes several blocks",
        cost / analysis.path.wall,
        [operator.row, *operator.executions],
        {"operator": operator.name, "dataset": pipeline.name},
        quotes={names.RAY_DATA_ROWS: shown, names.RAY_DATA_LIMITS: f"{processors:g} CPUs"},
        title=f"{quoted(name)} runs in {count(operator.tasks, 'task')}",
    )


_AGAIN_CONSUMERS = 3


def recomputed_datasets(analysis: Analysis) -> list[Finding]:
    """Datasets that are executed again for each use, so that their functions run again on the same rows.

    Measures: the tasks of all executions except the first, on the critical path.
    Threshold: 0.5 s and a tenth of the run, with the same operators and rows. If the ids of the datasets differ, their
    methods differ too.
    Looks the same: functions that are random. If ids differ, different data of the same size looks the same too, and
    the finding is an assumption.
    Advice: materialize the dataset once.
    Needs: spans of Ray Data, with the rows of operators.
    """
    again: dict[tuple[str | int, ...], list[tuple[Pipeline, Operator]]] = {}
    for pipeline in analysis.pipelines.executions:
        for operator in pipeline.operators:
            function = _function(operator.function)
            if "(" in function and operator.rows and operator.type in _MAP_OPERATORS:
                before = (each.function for each in pipeline.before(operator))
                again.setdefault((*before, function, operator.rows), []).append((pipeline, operator))
    found = []
    for same in again.values():
        is_assumed = len({pipeline.dataset_id.rpartition("_")[0] for pipeline, _ in same}) > 1
        if is_assumed and len({pipeline.consumer for pipeline, _ in same}) < 2:
            continue
        cost = sum(_on_path(analysis, operator) for _, operator in same[1:])
        if is_costly(analysis, cost, seconds=0.5):
            name = quoted(_function(same[0][1].name))
            found.append(_again_finding(analysis, name, same, cost, is_assumed=is_assumed))
    return found


def _again_finding(
    analysis: Analysis, name: str, same: list[tuple[Pipeline, Operator]], cost: int, *, is_assumed: bool
) -> Finding:
    operators = [operator for _, operator in same]
    consumers = list(dict.fromkeys(pipeline.consumer for pipeline, _ in same if pipeline.consumer))
    by = f", for {listed(consumers[:_AGAIN_CONSUMERS])}" if len(consumers) <= _AGAIN_CONSUMERS and consumers else ""
    if len(consumers) > _AGAIN_CONSUMERS:
        by = f", for {', '.join(consumers[:_AGAIN_CONSUMERS])} and others"
    shown = f"{operators[0].rows:,} rows"
    return Finding(
        "recomputed-dataset",
        f"{name} ran {count(len(same), 'time')} on {'as many' if is_assumed else 'the same'} rows "
        f"({shown}){by}: its tasks took {duration(sum(each.busy for each in operators))} in all",
        "materialize() the dataset once, and use the result for all of them, unless it has to be different each time, "
        "as with random augmentation",
        cost / analysis.path.wall,
        [each.row for each in operators],
        {"operator": operators[0].name},
        is_assumed,
        quotes={names.RAY_DATA_ROWS: shown, names.RAY_DATA_CONSUMER: by},
        title=f"{name} runs again for each use",
    )


def slow_actor_start(analysis: Analysis) -> list[Finding]:
    """Operators of datasets whose actors take long to construct, while the run waits for them.

    Measures: the constructors on the critical path.
    Threshold: 1 s and a tenth of the run.
    Looks the same: workers that start slowly, before the constructor runs.
    Advice: load less or faster in __init__, and use the actors for all of the data.
    Needs: spans of Ray Data, and of the creation of its actors.
    """
    found = []
    for pipeline in analysis.pipelines.executions:
        for operator in pipeline.operators:
            waited = sum(map(analysis.ran_on_path.__getitem__, operator.creations))
            if is_costly(analysis, waited, seconds=1):
                found.append(_creation_finding(analysis, pipeline, operator, waited))
    return found


def _creation_finding(analysis: Analysis, pipeline: Pipeline, operator: Operator, waited: int) -> Finding:
    rows = sorted(operator.creations, key=lambda row: -analysis.table.duration(row))
    times = sorted(map(analysis.table.duration, rows))
    usual = percentile(times, 0.5)
    each = f"{count(len(rows), 'actor')} took {duration(usual)} {'each ' if len(rows) > 1 else ''}to construct"
    text = (
        f"the run waited {duration(waited)} for the actors of operator {quoted(operator.name)} of "
        f"{quoted(pipeline.name)} to start: {each}{' (median)' if len(rows) > 1 else ''}, and their "
        f"{count(operator.tasks, 'task')} took {duration(operator.busy)} in all"
    )
    advice = (
        "load less in __init__, or load it faster (from a local disk, or once with ray.put for all actors); let one "
        "execution use the actors for all of the data, instead of starting them for each execution"
    )
    about = {"operator": operator.name, "dataset": pipeline.name}
    title = f"Actors of {quoted(operator.name)} take long to construct"
    return Finding("slow-actor-start", text, advice, waited / analysis.path.wall, rows, about, title=title)


_BLOCK_TIMES = 2.0
_BLOCK_SAMPLE = 30
"""How many of the usual tasks are looked at: their rows are read from the file."""


def skewed_blocks(
    analysis: Analysis, rows: Sequence[int], slow: Sequence[int], usual: int, excess: int
) -> Finding | None:
    """Tasks of an operator that take far longer than its others, since their blocks have more rows.

    Measures: the time that these tasks take beyond the median of the others, on the critical path.
    Threshold: the threshold of stragglers, and blocks with twice the median of the rows of the others.
    Looks the same: blocks whose rows are larger, but not more: only rows are counted.
    Advice: make blocks of equal size, or use a finer key.
    Needs: spans of Ray Data, with the rows of blocks.
    """
    # Of the tasks in `rows`, those in `slow` are stragglers, the longest first: `excess` over `usual`, the median.
    operator = analysis.pipelines.of_task.get(slow[0])
    if operator is None:
        return None
    others = sorted(set(rows) - set(slow))
    step = max(1, len(others) // _BLOCK_SAMPLE)
    largest, typical = _rows_of(analysis.calls, slow[:_BLOCK_SAMPLE]), _rows_of(analysis.calls, others[::step])
    if not largest or not typical or max(largest) < _BLOCK_TIMES * max(1.0, median(typical)):
        return None
    longest, most, many = analysis.self_time[slow[0]], max(largest), median(typical)
    several = len(slow) > 1
    rows_shown = f"{most:,.0f} rows, {most / max(1.0, many):.1f} times the median of {many:,.0f}"
    up_to = "up to " if several else ""
    text = (
        f"{count(len(slow), 'block')} of operator {quoted(operator.name)} had {up_to}{rows_shown}, and took "
        f"{up_to}{duration(longest)}, {longest / max(usual, 1):.1f} times the median of "
        f"{duration(usual)} ({count(len(rows), 'task')}); the run waited {duration(excess)} longer because of "
        f"{'them' if several else 'it'}"
    )
    is_assumed = analysis.is_assumed(rows)
    text = seems(text, is_assumed=is_assumed)
    return Finding(
        "skewed-blocks",
        text,
        "make blocks of equal size: repartition before this operator, or use more and smaller blocks; after a groupby "
        "or join, one key may have most of the rows: group by a finer key first, or treat it separately",
        excess / analysis.path.wall,
        slow,
        {"operator": operator.name, "function": analysis.calls.function_of(slow[0])},
        is_assumed,
        quotes={names.RAY_DATA_ROWS: rows_shown},
        title=f"Blocks of {quoted(operator.name)} are skewed",
    )


def _rows_of(calls: Calls, tasks: Iterable[int]) -> list[float]:
    """The rows of each task: of its input if that is known, or of its output, whichever is more."""
    return [max(found) for row in tasks if (found := [*_input(calls, row), *_output(calls, row)])]


def _output(calls: Calls, row: int) -> list[float]:
    rows = calls.table.span(row).attributes.get(names.RAY_DATA_ROWS)
    return [float(rows)] if isinstance(rows, int) else []


def _input(calls: Calls, row: int) -> list[float]:
    """The rows of the blocks that a task got; a task that made several blocks is taken to have made equal ones."""
    submission = calls.made(row)
    total, is_known = 0.0, False
    for _, call in calls.made_by(submission) if submission >= 0 else ():
        made_by = calls.execution[call] if call >= 0 else -1
        if made_by < 0:
            continue
        attributes = calls.table.span(made_by).attributes
        rows, blocks = attributes.get(names.RAY_DATA_ROWS), attributes.get(names.RAY_DATA_BLOCKS)
        if isinstance(rows, int) and isinstance(blocks, int) and blocks:
            total, is_known = total + rows / blocks, True
    return [total] if is_known else []


_SPILLING_LEAST = 64 << 20
_SPILLING_SHARE = 0.1
"""Of what the operators handed on: less is not worth a change."""


def spilling(analysis: Analysis) -> list[Finding]:
    """Datasets that do not fit into the object store, so that blocks are written to disk and read again.

    Measures: the bytes that the cluster spilled during an execution. It claims no cost, since the time is not known.
    Threshold: 64 MiB, and a tenth of the bytes that the operators handed on.
    Looks the same: other work that spills at the same time, since spilling is counted for the whole cluster.
    Advice: keep less data at a time, use smaller blocks, or enlarge the object store.
    Needs: spans of Ray Data.
    """
    taken: list[Pipeline] = []
    for each in sorted(analysis.pipelines.executions, key=lambda each: -each.spilled):
        # What is spilled is counted for the whole cluster: at one time, it is the same for each execution.
        if each.spilled and not any(each.start < other.end and other.start < each.end for other in taken):
            taken.append(each)
    spilled = sum(each.spilled for each in taken)
    made = sum(operator.bytes or 0 for each in taken for operator in each.operators)
    return [_spilling_finding(taken, spilled, made)] if spilled >= max(_SPILLING_LEAST, _SPILLING_SHARE * made) else []


def _spilling_finding(taken: list[Pipeline], spilled: int, made: int) -> Finding:
    restored = sum(each.restored for each in taken)
    most = taken[0]
    during = f"{quoted(most.name)} ({most.consumer or 'an execution'})"
    if len(taken) > 1:
        during += f" and {count(len(taken) - 1, 'other execution')}"
    limit = most.limits.get("object_store_memory")
    allowed = f", which may use {size(limit)} of object store memory" if limit else ""
    text = (
        f"the cluster wrote {size(spilled)} of objects to disk{f' and read {size(restored)} back' if restored else ''} "
        f"during {during}{allowed}; their operators handed on {size(made)}"
    )
    advice = (
        "keep less data at a time: iterate over the dataset, or write it, without materialize(); drop columns early, "
        "make blocks smaller, or enlarge the object store (object_store_memory of ray.init)"
    )
    about = {"dataset": most.name}
    quotes = {
        names.RAY_DATA_CONSUMER: most.consumer,
        names.RAY_DATA_SPILLED: size(spilled),
        names.RAY_DATA_RESTORED: size(restored),
        names.RAY_DATA_LIMITS: size(limit) if limit else "",
        names.RAY_DATA_BYTES: size(made),
    }
    title = f"Objects of {quoted(most.name)} are spilled"
    return Finding("spilling", text, advice, 0.0, [each.row for each in taken], about, quotes=quotes, title=title)
