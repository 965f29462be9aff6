"""The meaning of each attribute and metric, for the tables in docs/ and for the metrics that a shipper sends.

Workers import :mod:`names`, but not this module.
"""

from __future__ import annotations

from typing import NamedTuple

from ray_tracing_hooks import names

_CALL, _EXECUTION, _RESOURCE = "calls", "executions", "Resource"
_WAITING = "`ray.get`, `ray.await`, `ray.wait`, `ray.put`"

_OF_ACTORS = "executions of actors"
_REQUEST = "requests to Serve"
_OF_DEPLOYMENTS = "calls of deployments, requests in replicas"
_DATASETS = "executions of datasets, their operators, iterations"
_RUNS = "runs and attempts of Ray Train"
_RANKS = "ranks of Ray Train and their reports"
_COLLECTIVE = "reports and collective functions of Ray Train"


class Attribute(NamedTuple):
    """One attribute key."""

    key: str
    kind: str
    """Its type in OpenTelemetry: ``string``, ``int``, ``double``, ``boolean``, or a list such as ``string[]``."""
    where: str
    """The spans that have it, or the Resource. ``calls`` are submissions and executions."""
    meaning: str
    """With the unit, if any."""


ATTRIBUTES = (
    Attribute(names.RAY_REMOTE, "string", _CALL, "`function` for tasks, `actor` for actor creations and methods"),
    Attribute(names.RAY_FUNCTION, "string", _CALL, "`module.function` of a task, `Class.method` of an actor"),
    Attribute(
        names.RAY_ACTOR_CLASS,
        "string",
        _CALL,
        "the class of an actor, with the classes that it is defined in (`Outer.Inner`), without functions",
    ),
    Attribute(names.RAY_ACTOR_METHOD, "string", _CALL, "its method; `__init__` for the creation"),
    Attribute(
        names.RAY_ACTOR_ID, "string", _CALL, "the actor that is called or created, in hexadecimal like all ids of Ray"
    ),
    Attribute(names.RAY_TASK_ID, "string", "calls, drivers", "the task that the call creates; for a driver, its own"),
    Attribute(
        names.RAY_PARENT_TASK_ID,
        "string",
        "calls, waiting",
        "the task that made the call, or the driver; absent on the execution of most calls made by tasks, which carry "
        "no context: see the submission",
    ),
    Attribute(names.RAY_JOB_ID, "string", "all spans of this package", "the job of the process"),
    Attribute(
        names.RAY_NODE_ID, "string", "all spans of this package", "the node of the process that recorded the span"
    ),
    Attribute(names.RAY_WORKER_ID, "string", "all spans of this package", "the worker that recorded the span"),
    Attribute(names.RAY_PID, "string", "all spans of this package", "the process that recorded the span"),
    Attribute(
        names.RAY_FUNCTION_SIZE,
        "int",
        "submissions of tasks",
        "how many bytes the serialized function has, with all that it captures; only on the call with which Ray "
        "serialized it, the first one after its definition",
    ),
    Attribute(
        names.RAY_SUBMIT_TIME,
        "int",
        _EXECUTION,
        "when the call was submitted, by the clock of the caller's node, in nanoseconds since the epoch; absent on "
        "most calls, which carry no context: see the start of the submission",
    ),
    Attribute(
        names.RAY_ATTEMPT,
        "int",
        "executions, tasks of Serve",
        "the number of the retry, or of the actor's restart, from 1",
    ),
    Attribute(
        names.RAY_ARGUMENT_IDS,
        "string[]",
        "submissions",
        "the first 64 objects among the arguments, which the task waits for before it begins; the id of a result "
        "begins with that of its task",
    ),
    Attribute(names.RAY_ARGUMENT_COUNT, "int", "submissions", "how many objects are among the arguments, if any"),
    Attribute(
        names.RAY_ARGUMENTS, "string", _EXECUTION, "the arguments as a short text, where `RAY_TRACING_ARGUMENTS` is on"
    ),
    Attribute(names.RAY_RESULT, "string", _EXECUTION, "the result, likewise; not of generators"),
    Attribute(names.RAY_GENERATOR_ITEMS, "int", _EXECUTION, "how many items a generator yielded"),
    Attribute(
        names.RAY_OBJECT_IDS,
        "string[]",
        _WAITING,
        "the first 64 objects that are waited for, or the one that is stored; with waits recorded, the one that a call "
        "of a deployment returned; a result's id begins with its task's",
    ),
    Attribute(names.RAY_OBJECT_COUNT, "int", "`ray.get`, `ray.await`, `ray.wait`", "how many objects are waited for"),
    Attribute(
        names.RAY_OBJECT_SIZE,
        "int",
        "`ray.get`, `ray.put`",
        "bytes of the serialized objects that were fetched or stored",
    ),
    Attribute(names.RAY_TIMEOUT, "double", "`ray.get`, `ray.wait`", "the timeout in seconds, if any"),
    Attribute(
        names.RAY_CANCELLED,
        "boolean",
        "`ray.await`",
        "true: the wait was abandoned, because of an asyncio time-out, a cancelled task, or the end of the program",
    ),
    Attribute(
        names.RAY_DRIVER_WAITED,
        "boolean",
        "waits",
        "true: in another thread of a driver (`thread.id`), while the one that connected to Ray waited for a thread or "
        "an event loop",
    ),
    Attribute(names.RAY_NUM_RETURNS, "int", "`ray.wait`", "how many objects had to be ready"),
    Attribute(names.RAY_READY_OBJECT_IDS, "string[]", "`ray.wait`", "the first 64 objects that were ready"),
    Attribute(
        names.RAY_READY_OBJECT_COUNT,
        "int",
        "`ray.wait`",
        "how many objects were ready; if fewer than `ray.num_returns`, the wait timed out",
    ),
    Attribute(
        names.ERROR_TYPE,
        "string",
        "failed spans",
        "the class of the exception, not of Ray's wrapper around it; of an interrupted span `worker_died` or "
        "`driver_died`, or `ray.exceptions.OutOfMemoryError` or `ray.exceptions.TaskCancelledError` if that is the "
        "known cause; of a failed job `job_failed`; of a request without an exception its status, such as `503`",
    ),
    Attribute(
        names.RAY_NEVER_ENDED,
        "boolean",
        "spans without an end",
        "true: the program did not end it, or a full disk may not have taken its end; it ends with its process, and "
        "this is not an error",
    ),
    Attribute(
        names.RAY_END_ESTIMATED, "boolean", "interrupted spans", "true: its process died, and the end is estimated"
    ),
    Attribute(
        names.RAY_AFTER_END,
        "double",
        "first spans of traces that begin after the end of their context",
        "seconds since the end of the span in whose context this one began, to which it has a link",
    ),
    Attribute(
        names.RAY_LEFT_OUT,
        "int",
        "calls, drivers",
        "calls that made no spans because of `RAY_TRACING_RATE_LIMIT`: on a submission, those of the same function by "
        "the same caller since the last span that counted them; on an execution or a driver, the rest of its own calls",
    ),
    Attribute(
        names.RAY_SAMPLING_REASON,
        "string",
        "spans of traces that were not sampled",
        "why the span was recorded all the same: it failed (`error`), or took long (`slow`); on a submission without "
        "an error of its own, the reason of its execution. Other spans of the trace are missing: such spans are no "
        "random sample, so do not extrapolate from them",
    ),
    Attribute(
        names.RAY_NAME, "string", _CALL, "the name that `.options(name=...)` gave the call, or the created actor"
    ),
    Attribute(
        names.RAY_ACTOR_NAME, "string", "executions of actors, creations", "the name of the actor, if it has one"
    ),
    Attribute(
        names.RAY_ASYNCIO, "boolean", _OF_ACTORS, "true: the actor is async, and its methods share one event loop"
    ),
    Attribute(
        names.RAY_MAX_CONCURRENCY, "int", _OF_ACTORS, "how many of its methods may run concurrently, if more than one"
    ),
    Attribute(
        names.RAY_CONCURRENCY_GROUP,
        "string",
        f"{_OF_ACTORS}, submissions",
        "the concurrency group that the method declares; on the submission the one that `.options()` gave this call",
    ),
    Attribute(names.RAY_PLACEMENT_GROUP_ID, "string", _EXECUTION, "its placement group, if any"),
    Attribute(
        names.RAY_ASSIGNED_RESOURCES, "string", _EXECUTION, 'its resources, as JSON such as `{"CPU": 1.0}`, if any'
    ),
    Attribute(names.RAY_ACCELERATOR_IDS, "string[]", _EXECUTION, "its accelerators, such as `GPU:0`, if any"),
    Attribute(names.RAY_ENTRYPOINT, "string", "drivers", "the program, without its arguments"),
    Attribute(names.RAY_NAMESPACE, "string", "drivers", "the namespace of its named actors"),
    Attribute(
        names.RAY_LIBRARIES,
        "string[]",
        "drivers",
        "the libraries of Ray that the program had imported when it ended: `data`, `train`, `tune`, `rllib`, `serve`",
    ),
    Attribute(
        names.RAY_SUBMISSION_ID,
        "string",
        "drivers, submitted jobs",
        "the id of a job that was submitted to the Jobs API",
    ),
    Attribute(names.RAY_JOB_STATUS, "string", "submitted jobs", "`SUCCEEDED`, `FAILED` or `STOPPED`"),
    Attribute(
        names.EXIT_CODE,
        "int",
        "submitted jobs, drivers",
        "the exit code of the job's program, if it ended by itself; of a driver if an uncaught exception decides it",
    ),
    Attribute(names.RAY_SERVE_APPLICATION, "string", _REQUEST, "the application of Ray Serve"),
    Attribute(names.RAY_SERVE_DEPLOYMENT, "string", _OF_DEPLOYMENTS, "the deployment that is called"),
    Attribute(names.RAY_SERVE_METHOD, "string", _OF_DEPLOYMENTS, "its method: `__call__` for HTTP requests"),
    Attribute(names.RAY_SERVE_REPLICA_ID, "string", "requests in replicas", "Serve's id of the replica"),
    Attribute(names.RAY_SERVE_REQUEST_ID, "string", _REQUEST, "Serve's id of the request, as in `x-request-id`"),
    Attribute(
        names.RAY_SERVE_MULTIPLEXED_MODEL_ID, "string", _OF_DEPLOYMENTS, "the model that the request asks for, if any"
    ),
    Attribute(
        names.RAY_SERVE_ATTEMPTS, "int", "calls of deployments", "how many replicas were tried, if more than one"
    ),
    Attribute(
        names.RAY_SERVE_CHOICE_TIME,
        "double",
        "calls of deployments, requests that HAProxy had routed",
        "seconds until a replica was chosen, including the wait for a free one, if a millisecond or more; before the "
        "span if a request router of HAProxy chose it",
    ),
    Attribute(
        names.RAY_SERVE_LOOP_WAIT,
        "double",
        "requests in replicas",
        "seconds that the request waited for the event loop of its replica, which other code kept, if 10 ms or more",
    ),
    Attribute(names.RAY_SERVE_BATCH_SIZE, "int", "batches, links to them", "how many requests are in the batch"),
    Attribute(
        names.RAY_SERVE_BATCH_WAIT,
        "double",
        "batches, links from and to them",
        "seconds that the request waited for the batch to start; on a batch, the longest such wait",
    ),
    Attribute(
        names.RAY_SERVE_CLOSE_CODE,
        "int",
        "requests from clients",
        "the close code of a WebSocket connection: 1000 is a normal closure",
    ),
    Attribute(
        names.RAY_SERVE_FIRST_CHUNK,
        "double",
        "requests from clients",
        "seconds until the first part of a response that came in several",
    ),
    Attribute(
        names.RAY_DATA_DATASET_ID, "string", _DATASETS, "Ray Data's id of the execution, as in its logs and dashboard"
    ),
    Attribute(names.RAY_DATA_RUN, "int", "executions of datasets", "which execution of the dataset it is, from 0"),
    Attribute(
        names.RAY_DATA_CONSUMER,
        "string",
        _DATASETS,
        "the method of Ray Data that asked for it, such as `materialize`, `iter_batches` or `write_parquet`",
    ),
    Attribute(
        names.RAY_DATA_OUTCOME,
        "string",
        "executions of datasets, iterations",
        "`finished`; `stopped` if the consumer stopped early; `failed`; `cancelled`; `abandoned` if the program ended "
        "or disconnected from Ray without ending it",
    ),
    Attribute(names.RAY_DATA_GRAPH, "string", "executions of datasets", "the operators as Ray Data shows them"),
    Attribute(
        names.RAY_DATA_LIMITS,
        "string",
        "executions of datasets",
        "what all its tasks together may use, such as CPUs and bytes of object store memory, as JSON",
    ),
    Attribute(
        names.RAY_DATA_SPILLED,
        "int",
        "executions of datasets, operators",
        "bytes that were spilled to disk, if any: by the whole cluster during the execution; of the operator's input",
    ),
    Attribute(
        names.RAY_DATA_RESTORED, "int", "executions of datasets", "bytes that it restored from disk meanwhile, if any"
    ),
    Attribute(names.RAY_DATA_OPERATOR, "string", "operators, their tasks", "the name of the operator, as in `stats()`"),
    Attribute(
        names.RAY_DATA_OPERATOR_ID,
        "string",
        "operators",
        "its name and its position in the execution, as in Ray's dashboard and metrics",
    ),
    Attribute(
        names.RAY_DATA_OPERATOR_TYPE, "string", "operators", "its class in Ray Data, such as `ActorPoolMapOperator`"
    ),
    Attribute(
        names.RAY_DATA_INPUTS,
        "string[]",
        "operators",
        "the operators that its input comes from; links lead to their spans",
    ),
    Attribute(
        names.RAY_DATA_ROWS,
        "int",
        "executions of datasets, operators, their tasks, iterations",
        "rows of the output; of an operator those that it handed on, as in `stats()`",
    ),
    Attribute(names.RAY_DATA_BYTES, "int", "executions of datasets, operators, their tasks", "bytes of the output"),
    Attribute(names.RAY_DATA_BLOCKS, "int", "executions of datasets, operators, their tasks", "blocks of the output"),
    Attribute(names.RAY_DATA_INPUT_ROWS, "int", "operators", "rows of the input"),
    Attribute(names.RAY_DATA_INPUT_BYTES, "int", "operators", "bytes of the input"),
    Attribute(names.RAY_DATA_INPUT_BLOCKS, "int", "operators", "blocks, or bundles of blocks, of the input"),
    Attribute(names.RAY_DATA_TASKS, "int", "operators", "tasks that it submitted, also those without a span"),
    Attribute(names.RAY_DATA_TASKS_FAILED, "int", "operators", "tasks that failed, if any"),
    Attribute(
        names.RAY_DATA_SCHEDULING_TIME,
        "double",
        "operators",
        "seconds from the submission of each task until it began, added up, as measured by Ray Data",
    ),
    Attribute(
        names.RAY_DATA_TASK_TIME, "double", "operators", "seconds that its tasks ran, added up, as the workers measure"
    ),
    Attribute(
        names.RAY_DATA_BLOCK_TIME,
        "double",
        "operators",
        "seconds in which its tasks made blocks, added up, without those in which they waited until one was read",
    ),
    Attribute(
        names.RAY_DATA_UDF_TIME,
        "double",
        "operators",
        "seconds in the functions that transform the blocks, added up, if Ray Data measures that",
    ),
    Attribute(
        names.RAY_DATA_MAX_CONCURRENCY, "int", "operators", "how many of its tasks may run at a time, if limited"
    ),
    Attribute(names.RAY_DATA_TASK_RESOURCES, "string", "operators", "what each task, or actor, requires, as JSON"),
    Attribute(names.RAY_DATA_ACTORS, "int", "operators", "actors that it started, if any"),
    Attribute(
        names.RAY_DATA_BACKPRESSURE_SUBMISSION,
        "double",
        "operators",
        "seconds in which a backpressure policy let it submit no task, even if it had none to submit",
    ),
    Attribute(
        names.RAY_DATA_BACKPRESSURE_OUTPUT,
        "double",
        "operators",
        "seconds in which a backpressure policy let no output be read from its tasks",
    ),
    Attribute(
        names.RAY_DATA_BACKPRESSURE_BY,
        "string[]",
        "operators",
        "what held it back, as kind, policy and resource; only times in which it had something to submit or to hand on",
    ),
    Attribute(names.RAY_DATA_BACKPRESSURE_BY_TIME, "double[]", "operators", "for how many seconds each of these did"),
    Attribute(
        names.RAY_DATA_BACKPRESSURE_KIND,
        "string",
        f"events `{names.DATA_BACKPRESSURE}`",
        "`submission` if it could not submit tasks, `output` if the output of its tasks was not read",
    ),
    Attribute(names.RAY_DATA_BACKPRESSURE_POLICY, "string", f"events `{names.DATA_BACKPRESSURE}`", "Ray Data's policy"),
    Attribute(
        names.RAY_DATA_BACKPRESSURE_RESOURCE,
        "string",
        f"events `{names.DATA_BACKPRESSURE}`",
        "what was missing, such as `CPU` or `CPU and object store memory`, if known",
    ),
    Attribute(
        names.RAY_DATA_BACKPRESSURE_DURATION, "double", f"events `{names.DATA_BACKPRESSURE}`", "for how many seconds"
    ),
    Attribute(
        names.RAY_DATA_TIMELINE_SECONDS,
        "double[]",
        "operators",
        "when the queues were looked at, in seconds since the execution began; the other lists are for these moments",
    ),
    Attribute(names.RAY_DATA_TIMELINE_QUEUED_BLOCKS, "int[]", "operators", "blocks that waited for the operator"),
    Attribute(names.RAY_DATA_TIMELINE_QUEUED_BYTES, "int[]", "operators", "bytes that waited for it"),
    Attribute(
        names.RAY_DATA_TIMELINE_RUNNING_TASKS, "int[]", "operators", "its tasks that were submitted and had not ended"
    ),
    Attribute(names.RAY_DATA_TIMELINE_ROWS, "int[]", "operators", "rows that it had handed on by then"),
    Attribute(names.RAY_DATA_TASK_INDEX, "int", "tasks of operators", "Ray Data's number of the task in its operator"),
    Attribute(
        names.RAY_DATA_STAGE,
        "string",
        "tasks of operators",
        "which step of an operator with several, as `map` or `reduce`",
    ),
    Attribute(names.RAY_DATA_CPU_TIME, "double", "tasks of operators", "seconds of processor time for its blocks"),
    Attribute(names.RAY_DATA_PEAK_MEMORY, "int", "tasks of operators", "the most bytes of heap memory, if measured"),
    Attribute(names.RAY_DATA_SPLIT, "int", "iterations", "which split of `streaming_split` it reads"),
    Attribute(names.RAY_DATA_EPOCH, "int", "iterations", "which execution of such a dataset it reads, from 0"),
    Attribute(names.RAY_DATA_BATCHES, "int", "iterations", "batches that the program got"),
    Attribute(names.RAY_DATA_WAIT_TIME, "double", "iterations", "seconds that the program waited for batches"),
    Attribute(names.RAY_DATA_FIRST_BATCH_TIME, "double", "iterations", "seconds until it got the first batch"),
    Attribute(
        names.RAY_DATA_USER_TIME, "double", "iterations", "seconds between getting a batch and asking for the next"
    ),
    Attribute(
        names.RAY_DATA_WAIT_TIME_PRODUCTION,
        "double",
        "iterations",
        "seconds of the wait in which the blocks were not produced yet, as measured by Ray Data; the parts may overlap",
    ),
    Attribute(names.RAY_DATA_WAIT_TIME_TRANSFER, "double", "iterations", "in which blocks were fetched, likewise"),
    Attribute(names.RAY_DATA_WAIT_TIME_BATCHING, "double", "iterations", "in which batches were cut out of blocks"),
    Attribute(names.RAY_DATA_WAIT_TIME_FORMAT, "double", "iterations", "in which batches were converted"),
    Attribute(names.RAY_DATA_WAIT_TIME_COLLATE, "double", "iterations", "in which the collate function ran"),
    Attribute(names.RAY_DATA_WAIT_TIME_FINALIZE, "double", "iterations", "in which batches were moved to their device"),
    Attribute(
        names.RAY_MEMORY_PEAK,
        "int",
        f"{_EXECUTION}, ranks of Ray Train",
        "the most resident memory that the process had meanwhile, in bytes, where `RAY_TRACING_MEMORY` is on: exact if "
        "it had never had more, otherwise the highest of samples, 20 a second",
    ),
    Attribute(
        names.RAY_MEMORY_DEVICE_PEAK,
        "int",
        f"{_EXECUTION}, ranks of Ray Train",
        "the most that PyTorch had allocated on one device of the process, likewise",
    ),
    Attribute(
        names.RAY_ACCELERATOR_ID, "string", "metrics of GPUs", "the accelerator as Ray names it, such as `GPU:0`"
    ),
    Attribute(
        names.RAY_TRAIN_RUN_NAME, "string", _RUNS, "the name of the run in `RunConfig`, or the one that Ray gave it"
    ),
    Attribute(names.RAY_TRAIN_RUN_ID, "string", _RUNS, "Ray's id of the run"),
    Attribute(
        names.RAY_TRAIN_TRAINER, "string", "runs of Ray Train", "the class of the trainer, such as `TorchTrainer`"
    ),
    Attribute(
        names.RAY_TRAIN_ATTEMPT,
        "int",
        "attempts, ranks",
        "the number of the attempt, from 1; a restart or resize begins one",
    ),
    Attribute(
        names.RAY_TRAIN_NUM_WORKERS, "int", "runs and attempts of Ray Train", "how many workers it asks for, or has"
    ),
    Attribute(
        names.RAY_TRAIN_SCHEDULING_TIME,
        "double",
        "attempts of Ray Train",
        "seconds until all its workers ran: for resources, starting workers, setting up the backend",
    ),
    Attribute(names.RAY_TRAIN_RUNNING_TIME, "double", "attempts of Ray Train", "seconds from then until it ended"),
    Attribute(
        names.RAY_TRAIN_FAILED_RANKS,
        "string[]",
        "attempts of Ray Train, events",
        "the ranks that failed, if that ended it",
    ),
    Attribute(
        names.RAY_TRAIN_STATE, "string", f"events `{names.TRAIN_CHANGED}`", "the state of the run, such as `RUNNING`"
    ),
    Attribute(
        names.RAY_TRAIN_DECISION,
        "string",
        f"events `{names.TRAIN_FAILURE}`",
        "what Ray Train does after a failure: `RETRY` or `RAISE`; `error.type` is the cause",
    ),
    Attribute(names.RAY_TRAIN_WORLD_RANK, "int", _RANKS, "the rank of the worker among all of the run"),
    Attribute(names.RAY_TRAIN_WORLD_SIZE, "int", "ranks of Ray Train", "how many workers there are"),
    Attribute(
        names.RAY_TRAIN_LOCAL_RANK, "int", "ranks of Ray Train", "the rank of the worker among those on its node"
    ),
    Attribute(names.RAY_TRAIN_NODE_RANK, "int", "ranks of Ray Train", "the rank of its node"),
    Attribute(
        names.RAY_TRAIN_STEP,
        "int",
        _COLLECTIVE,
        "its number, from 1: the same for all ranks that meet there, as all of them make the same calls",
    ),
    Attribute(
        names.RAY_TRAIN_BARRIER_TIME,
        "double",
        _COLLECTIVE,
        "seconds until all ranks were there: the last one to come waits for none",
    ),
    Attribute(
        names.RAY_TRAIN_HANDOVER_TIME,
        "double",
        "reports of Ray Train",
        "seconds until the controller had taken the previous report: it polls its workers every 2 seconds",
    ),
    Attribute(
        names.RAY_TRAIN_CHECKPOINT,
        "string",
        "reports and transfers of Ray Train",
        "the name of the folder of the checkpoint, if there is one",
    ),
    Attribute(
        names.RAY_TRAIN_METRICS,
        "string",
        "reports of Ray Train",
        "the metrics as a short text, where `RAY_TRACING_ARGUMENTS` is on",
    ),
    Attribute(names.RAY_TUNE_EXPERIMENT, "string", "experiments and trials of Ray Tune", "the name of the experiment"),
    Attribute(names.RAY_TUNE_SCHEDULER, "string", "experiments of Ray Tune", "the class of the scheduler"),
    Attribute(names.RAY_TUNE_SEARCHER, "string", "experiments of Ray Tune", "the class of the search algorithm"),
    Attribute(names.RAY_TUNE_METRIC, "string", "experiments of Ray Tune", "the metric that is optimized"),
    Attribute(names.RAY_TUNE_TRIALS, "int", "experiments of Ray Tune", "how many trials there were"),
    Attribute(names.RAY_TUNE_TRIALS_FAILED, "int", "experiments of Ray Tune", "how many of them failed, if any"),
    Attribute(names.RAY_TUNE_TRIAL_ID, "string", "trials of Ray Tune", "Ray's id of the trial"),
    Attribute(
        names.RAY_TUNE_TRIAL_STATUS,
        "string",
        f"trials of Ray Tune, events `{names.TUNE_CHANGED}`",
        "its status, at the end of the trial `TERMINATED` or `ERROR`",
    ),
    Attribute(names.RAY_TUNE_TRAINABLE, "string", "trials of Ray Tune", "the name of the trainable"),
    Attribute(
        names.RAY_TUNE_CONFIG,
        "string",
        f"trials of Ray Tune, events `{names.TUNE_EXPLOIT}`",
        "the configuration of the trial as a short text; what looks like a secret is redacted",
    ),
    Attribute(names.RAY_TUNE_ITERATIONS, "int", "trials of Ray Tune", "how many iterations it had reported"),
    Attribute(names.RAY_TUNE_METRIC_VALUE, "double", "trials of Ray Tune", "the last value of the metric"),
    Attribute(
        names.RAY_TUNE_STOPPED_BY,
        "string",
        "trials of Ray Tune",
        "what ended it: `trial` (its own code returned), `criterion` (a stop condition), `scheduler`, or `experiment` "
        "(which ended as a whole); absent if an error ended it",
    ),
    Attribute(names.RAY_TUNE_FAILURES, "int", "trials of Ray Tune", "how often it failed, if it did"),
    Attribute(names.RAY_TUNE_PENDING_TIME, "double", "trials of Ray Tune", "seconds until it ran for the first time"),
    Attribute(
        names.RAY_TUNE_CHECKPOINT,
        "string",
        f"events `{names.TUNE_CHECKPOINTED}` and `{names.TUNE_RESTORED}`",
        "the path of the checkpoint",
    ),
    Attribute(
        names.RAY_TUNE_CLONED, "string", f"events `{names.TUNE_EXPLOIT}`", "the trial whose state it continues with"
    ),
    Attribute(
        names.RAY_RLLIB_ALGORITHM, "string", "iterations of RLlib and their phases", "the class of the algorithm"
    ),
    Attribute(names.RAY_RLLIB_ITERATION, "int", "iterations of RLlib", "the number of the iteration, from 1"),
    Attribute(
        names.SKYWALKING_CALLER,
        "string",
        "requests in replicas, if deployments are services of SkyWalking",
        "the service of the process that made the call",
    ),
    Attribute(
        names.SKYWALKING_PARENT,
        "string",
        "spans below one of a SkyWalking agent",
        "the `sw8` or `sw6` header that named their parent",
    ),
    Attribute(
        names.SKYWALKING_PEER,
        "string",
        "calls of others with such a header",
        "the address of the called one, as in the header",
    ),
    Attribute(names.RESOURCE_PROCESS_TYPE, "string", _RESOURCE, "`driver` or `worker`"),
    Attribute(names.RESOURCE_NODE_ID, "string", _RESOURCE, "the node of the process"),
    Attribute(names.RESOURCE_WORKER_ID, "string", _RESOURCE, "Ray's id of the worker or driver"),
    Attribute(names.RESOURCE_CREATION_TIME, "string", _RESOURCE, "when the process was created, in ISO 8601"),
    Attribute(
        names.RESOURCE_WORKER_READY,
        "int",
        _RESOURCE,
        "when the worker had connected to Ray and was ready for work, in nanoseconds since the epoch",
    ),
    Attribute(names.RESOURCE_PROCESSORS, "int", _RESOURCE, "how many processors of its node the process may use"),
    Attribute(names.RESOURCE_SESSION_NAME, "string", _RESOURCE, "the session of the cluster, as in `/tmp/ray`"),
    Attribute(names.RESOURCE_GCS_ADDRESS, "string", _RESOURCE, "the address of the cluster's GCS"),
    Attribute(names.RESOURCE_RAY_VERSION, "string", _RESOURCE, "the version of Ray"),
    Attribute(
        names.RESOURCE_PARTS,
        "string",
        _RESOURCE,
        "the parts of Ray that make spans in the process, as in `RAY_TRACING_RAY`, with `internal` where "
        "`RAY_TRACING_INTERNAL` is on, and `selected` where `RAY_TRACING_INCLUDE` or `RAY_TRACING_EXCLUDE` is set",
    ),
)
"""The keys of this package. Events, exceptions and the rest of the Resource follow OpenTelemetry's conventions."""


class Metric(NamedTuple):
    """One metric: computed from the spans of calls, sampled on a node, or of the delivery of spans."""

    name: str
    instrument: str
    """``histogram``, ``counter`` or ``gauge``."""
    unit: str
    """In UCUM, as OpenTelemetry asks."""
    attributes: tuple[str, ...]
    """Those of actors are on calls of actors only, ``error.type`` on failed calls only."""
    meaning: str


_CALLED = (names.RAY_FUNCTION, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD)

_OF_GPU = (names.HW_ID, names.HW_NAME, names.HW_VENDOR, names.RAY_ACCELERATOR_ID)

METRICS = (
    Metric(
        names.EXECUTION_DURATION,
        "histogram",
        "s",
        (*_CALLED, names.ERROR_TYPE),
        "how long a task, actor creation or method ran, each attempt counted separately, a generator until it ended; "
        "its count is the number of ended executions, with `error.type` for those that failed",
    ),
    Metric(
        names.EXECUTION_QUEUE_TIME,
        "histogram",
        "s",
        _CALLED,
        "how long a call waited, from the start of its submission to the start of its execution; not of retries, and "
        "not where the submission is not known on the node",
    ),
    Metric(names.EXECUTION_RETRIES, "counter", "{retry}", _CALLED, "how many of the ended executions were retries"),
    Metric(
        names.SUBMISSION_DURATION,
        "histogram",
        "s",
        (*_CALLED, names.ERROR_TYPE),
        "how long `.remote()` took; its count is the number of calls, with `error.type` for those that Ray refused",
    ),
    Metric(names.GPU_UTILIZATION, "gauge", "1", _OF_GPU, "the share of time in which the GPU was busy"),
    Metric(names.GPU_MEMORY_USAGE, "gauge", "By", _OF_GPU, "how much of the GPU's memory was in use"),
    Metric(names.GPU_MEMORY_LIMIT, "gauge", "By", _OF_GPU, "how much memory the GPU has"),
    Metric(names.CPU_UTILIZATION, "gauge", "1", (), "the share of the processors of a node that was in use"),
    Metric(names.MEMORY_UTILIZATION, "gauge", "1", (), "the share of the memory of a node that was in use"),
)
"""The metrics: of calls where ``RAY_TRACING_METRICS`` is on, of nodes where ``RAY_TRACING_UTILIZATION`` is set."""

_OF_DESTINATION = (names.TRACING_EXPORTER, names.TRACING_SIGNAL, names.TRACING_ADDRESS)

DELIVERY_METRICS = (
    Metric(names.DELIVERY_RECEIVED, "counter", "{item}", _OF_DESTINATION, "spans, or log records, read from the spool"),
    Metric(
        names.DELIVERY_DELIVERED,
        "counter",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that the destination has accepted",
    ),
    Metric(
        names.DELIVERY_BYTES,
        "counter",
        "By",
        _OF_DESTINATION,
        "the size of delivered spans, or log records, as encoded, before compression",
    ),
    Metric(
        names.DELIVERY_REFUSED,
        "counter",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that the destination will never accept: they are lost",
    ),
    Metric(
        names.DELIVERY_DROPPED,
        "counter",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that `RAY_TRACING_SPOOL_MAX_BYTES` removed before they were delivered: they are lost",
    ),
    Metric(names.DELIVERY_RETRIES, "counter", "{retry}", _OF_DESTINATION, "attempts that failed and were repeated"),
    Metric(
        names.DELIVERY_WAITING,
        "gauge",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that wait; extrapolated if there are very many",
    ),
    Metric(
        names.DELIVERY_WAITING_BYTES,
        "gauge",
        "By",
        _OF_DESTINATION,
        "the size in the spool of the spans, or log records, that wait",
    ),
    Metric(
        names.DELIVERY_WAITING_AGE,
        "gauge",
        "s",
        _OF_DESTINATION,
        "how long ago the oldest span, or log record, that waits ended; 0 if none waits",
    ),
    Metric(
        names.DELIVERY_UNWRITTEN,
        "counter",
        "{item}",
        (),
        "spans and log records that a full or failing disk did not take: they are lost",
    ),
    Metric(names.SPOOL_BYTES, "gauge", "By", (), "the size of the spool"),
    Metric(names.SPOOL_LIMIT, "gauge", "By", (), "the maximum size of the spool, `RAY_TRACING_SPOOL_MAX_BYTES`"),
    Metric(names.SPOOL_WRITERS, "gauge", "{process}", (), "processes that write to the spool"),
)
"""The metrics of delivery, of each shipper since it began, made where ``RAY_TRACING_METRICS`` or
``RAY_TRACING_PROMETHEUS`` asks for them."""


def metrics_table() -> str:
    """The metrics of calls as the table of docs/metrics.md."""
    return _metrics_table(METRICS)


def delivery_metrics_table() -> str:
    """The metrics of delivery as the table of docs/metrics.md."""
    return _metrics_table(DELIVERY_METRICS)


def _metrics_table(metrics: tuple[Metric, ...]) -> str:
    rows = ["| metric | kind | unit | attributes | meaning |", "| --- | --- | --- | --- | --- |"]
    for each in metrics:
        keys = ", ".join(f"`{key}`" for key in each.attributes)
        row = f"| `{each.name}` | {each.instrument} | `{each.unit}` | {keys} | {each.meaning} |"
        rows.append(row.replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def markdown_table() -> str:
    """The attributes as the table of docs/spans.md."""
    rows = ["| attribute | type | on | meaning |", "| --- | --- | --- | --- |"]
    rows += [f"| `{each.key}` | {each.kind} | {each.where} | {each.meaning} |" for each in ATTRIBUTES]
    return "\n".join(rows) + "\n"
