"""The names of the spans, attributes and metrics that this package writes, with their meanings.

The names and keys of Ray's own tracing (``ray.util.tracing``) are kept, so that dashboards made for it continue to
work. Where Ray's meaning is ambiguous, this module states ours.

The text below a key has three parts: the type of its values in OpenTelemetry, the spans that have it (or the Resource),
and the meaning. "Calls" are submissions and executions. Docs and tests read these texts, so they cost a worker nothing.
"""

from __future__ import annotations

import re

SCOPE = "ray_tracing_hooks"
"""Instrumentation scope of the spans and metrics that this package makes."""

# Attributes. Events, exceptions and the rest of the Resource follow OpenTelemetry's conventions.

RAY_REMOTE = "ray.remote"
"""string, calls: `function` for tasks, `actor` for actor creations and methods"""
RAY_FUNCTION = "ray.function"
"""string, calls: `module.function` of a task, `Class.method` of an actor"""
RAY_ACTOR_CLASS = "ray.actor_class"
"""string, calls: the class of an actor, with its enclosing classes (`Outer.Inner`), but not functions"""
RAY_ACTOR_METHOD = "ray.actor_method"
"""string, calls: its method; `__init__` for the creation"""
RAY_ACTOR_ID = "ray.actor_id"
"""string, calls: the actor that is called or created, in hexadecimal like all ids of Ray"""
RAY_TASK_ID = "ray.task_id"
"""string, calls, drivers: the task that the call creates; for a driver, its own"""
RAY_PARENT_TASK_ID = "ray.parent_task_id"
"""string, calls, waiting: the task that made the call, or the driver. Most calls of tasks carry no context, so their
executions lack it, and only their submissions have it"""
RAY_JOB_ID = "ray.job_id"
"""string, all spans of this package: the job of the process"""
RAY_NODE_ID = "ray.node_id"
"""string, all spans of this package: the node of the process that recorded the span"""
RAY_WORKER_ID = "ray.worker_id"
"""string, all spans of this package: the worker that recorded the span"""
RAY_PID = "ray.pid"
"""string, all spans of this package: the process that recorded the span"""
RAY_FUNCTION_SIZE = "ray.function_size"
"""int, submissions of tasks: size of the serialized function in bytes, with everything that it captures; only on the
call with which Ray serialized it, the first one after its definition"""
RAY_SUBMIT_TIME = "ray.submit_time_unix_nano"
"""int, executions: when the call was submitted, by the clock of the caller's node, in nanoseconds since the epoch. Most
calls carry no context and lack it: use the start of the submission"""
RAY_ATTEMPT = "ray.attempt"
"""int, executions, tasks of Serve: the number of the retry, or of the actor's restart, from 1"""
RAY_ARGUMENT_IDS = "ray.arg_object_ids"
"""string[], submissions: the first 64 objects among the arguments. The task waits for them before it begins. The id of
a result begins with the id of its task"""
RAY_ARGUMENT_COUNT = "ray.arg_object_count"
"""int, submissions: how many objects are among the arguments, if any"""
RAY_ARGUMENTS = "ray.arguments"
"""string, executions: the arguments as a short text, where `RAY_TRACING_ARGUMENTS` is on"""
RAY_RESULT = "ray.result"
"""string, executions: the result as a short text, where `RAY_TRACING_ARGUMENTS` is on; not of generators"""
RAY_GENERATOR_ITEMS = "ray.generator_items"
"""int, executions: how many items a generator yielded"""
RAY_GENERATOR_HELD = "ray.generator_held"
"""double, executions: for how many seconds in all a generator was suspended after its items: until Ray had stored each
one and asked for the next, which it does later if the consumer is behind (backpressure)"""
RAY_OBJECT_IDS = "ray.object_ids"
"""string[], `ray.get`, `ray.await`, `ray.wait`, `ray.put`: the first 64 objects that the span waits for, or the one
that it stores. If waits are recorded, also the one that a call of a deployment returned. The id of a result begins with
the id of its task"""
RAY_OBJECT_COUNT = "ray.object_count"
"""int, `ray.get`, `ray.await`, `ray.wait`: how many objects are waited for"""
RAY_OBJECT_SIZE = "ray.object_size"
"""int, `ray.get`, `ray.put`: bytes of the serialized objects that were fetched or stored"""
RAY_TIMEOUT = "ray.timeout"
"""double, `ray.get`, `ray.wait`, `PlacementGroup.wait`: the timeout in seconds, if any"""
RAY_CANCELLED = "ray.cancelled"
"""boolean, `ray.await`: true: the wait was abandoned, because of an asyncio timeout, a canceled task, or the end of the
program"""
RAY_DRIVER_WAITED = "ray.driver_waited"
"""boolean, waits: true: this wait is in another thread of a driver (`thread.id`), while the thread that connected to
Ray waited for a thread or an event loop"""
RAY_NUM_RETURNS = "ray.num_returns"
"""int, `ray.wait`: how many objects had to be ready"""
RAY_READY_OBJECT_IDS = "ray.ready_object_ids"
"""string[], `ray.wait`: the first 64 objects that were ready"""
RAY_READY_OBJECT_COUNT = "ray.ready_object_count"
"""int, `ray.wait`: how many objects were ready; if fewer than `ray.num_returns`, the wait timed out"""
ERROR_TYPE = "error.type"
"""string, failed spans: the class of the exception, without Ray's wrapper. An interrupted span has `worker_died` or
`driver_died`, or, if that is the known cause, `ray.exceptions.OutOfMemoryError` or `ray.exceptions.TaskCancelledError`.
A failed job has `job_failed`. A request without an exception has its status, such as `503`. A request that an LLM
engine refused has the kind of error in its answer"""
RAY_NEVER_ENDED = "ray.never_ended"
"""boolean, spans without an end: true: the program did not end it, or a full disk did not take its end. It ends with
its process, and this is not an error"""
RAY_END_ESTIMATED = "ray.end_estimated"
"""boolean, interrupted spans: true: its process died, and the end is estimated"""
RAY_AFTER_END = "ray.after_end"
"""double, first spans of traces that begin after the end of their context: seconds since the end of the span that this
one has a link to, in whose context it began"""
RAY_LEFT_OUT = "ray.left_out"
"""int, calls, generations, drivers: number of calls that were not recorded because of `RAY_TRACING_RATE_LIMIT`. A
submission counts calls of the same function by the same caller, since the last span that counted them, and a generation
other generations of its name. An execution or a driver counts the rest of its own calls"""
RAY_SAMPLING_REASON = "ray.sampling.reason"
"""string, spans of traces that were not sampled: why the span was recorded although its trace is not: it failed
(`error`), or took long (`slow`). A submission without an error has the reason of its execution. The trace lacks its
other spans. Such spans are no random sample, so do not extrapolate from them"""
RAY_NAME = "ray.name"
"""string, calls: the name that `.options(name=...)` gave the call, or the created actor"""
RAY_ACTOR_NAME = "ray.actor_name"
"""string, executions of actors, creations: the name of the actor, if it has one"""
RAY_ASYNCIO = "ray.asyncio"
"""boolean, executions of actors: true: the actor is async, and its methods share one event loop"""
RAY_MAX_CONCURRENCY = "ray.max_concurrency"
"""int, executions of actors: how many of its methods may run concurrently, if more than one"""
RAY_CONCURRENCY_GROUP = "ray.concurrency_group"
"""string, executions of actors, submissions: the concurrency group that the method declares; on a submission, the group
that `.options()` gave this call"""
RAY_PLACEMENT_GROUP_ID = "ray.placement_group_id"
"""string, executions and waits: its placement group, if any, or the first one that it waits for"""
RAY_ASSIGNED_RESOURCES = "ray.assigned_resources"
"""string, executions: its resources, as JSON such as `{"CPU": 1.0}`, if any"""
RAY_ACCELERATOR_IDS = "ray.accelerator_ids"
"""string[], executions: its accelerators, such as `GPU:0`, if any"""
RAY_ENTRYPOINT = "ray.entrypoint"
"""string, drivers: the program, without its arguments"""
RAY_NAMESPACE = "ray.namespace"
"""string, drivers: the namespace of its named actors"""
RAY_LIBRARIES = "ray.libraries"
"""string[], drivers: the libraries of Ray that the program had imported by its end, as parts of `RAY_TRACING_RAY`"""
RAY_SUBMISSION_ID = "ray.submission_id"
"""string, drivers, submitted jobs: the id of a job that was submitted to the Jobs API"""
RAY_JOB_STATUS = "ray.job_status"
"""string, submitted jobs: `SUCCEEDED`, `FAILED` or `STOPPED`"""
EXIT_CODE = "process.exit.code"
"""int, submitted jobs, drivers: the exit code of the job's program, if it ended by itself. A driver has it if an
uncaught exception decides it"""
RAY_SERVE_APPLICATION = "ray.serve.application"
"""string, requests to Serve: the application of Ray Serve"""
RAY_SERVE_DEPLOYMENT = "ray.serve.deployment"
"""string, calls of deployments, requests in replicas, generations: the deployment that is called, or that has the
engine"""
RAY_SERVE_METHOD = "ray.serve.method"
"""string, calls of deployments, requests in replicas: its method: `__call__` for HTTP requests"""
RAY_SERVE_REPLICA_ID = "ray.serve.replica_id"
"""string, requests in replicas: Serve's id of the replica"""
RAY_SERVE_REQUEST_ID = "ray.serve.request_id"
"""string, requests to Serve: Serve's id of the request, as in `x-request-id`"""
RAY_SERVE_MULTIPLEXED_MODEL_ID = "ray.serve.multiplexed_model_id"
"""string, calls of deployments, requests in replicas: the model that the request asks for, if any"""
RAY_SERVE_ATTEMPTS = "ray.serve.attempts"
"""int, calls of deployments: how many replicas were tried, if more than one"""
RAY_SERVE_CHOICE_TIME = "ray.serve.choice_time"
"""double, calls of deployments, requests that HAProxy had routed: seconds until a replica was chosen, including the
wait for a free one, from 1 ms on. If a request router of HAProxy chose it, this time is before the span"""
RAY_SERVE_LOOP_WAIT = "ray.serve.event_loop.wait_time"
"""double, requests in replicas: seconds that the request waited for the event loop of its replica while other code
blocked it, from 10 ms on"""
RAY_SERVE_BATCH_SIZE = "ray.serve.batch.size"
"""int, batches, links to them: how many requests are in the batch"""
RAY_SERVE_BATCH_WAIT = "ray.serve.batch.wait_time"
"""double, batches, links from and to them: seconds that the request waited for the batch to start; on a batch, the
longest such wait"""
RAY_SERVE_CLOSE_CODE = "ray.serve.close_code"
"""int, requests from clients: the close code of a WebSocket connection: 1000 is a normal closure"""
RAY_SERVE_FIRST_CHUNK = "ray.serve.time_to_first_chunk"
"""double, requests from clients: seconds until the first part of a response that has several"""
RAY_SERVE_FIRST_ITEM = "ray.serve.time_to_first_item"
"""double, streaming requests in replicas: seconds from the start of the span until the deployment made the first item
of its response: an item of a streaming call, or a part of a response over HTTP or WebSocket"""
RAY_SERVE_ITEMS = "ray.serve.items"
"""int, streaming requests in replicas: how many items the deployment made; absent if an application sent
its response over HTTP as a whole"""
RAY_SERVE_LONGEST_PAUSE = "ray.serve.longest_pause"
"""double, streaming requests in replicas: the longest time in seconds between one item and the next"""
GEN_AI_OPERATION = "gen_ai.operation.name"
"""string, generations: `chat`, `text_completion`, `embeddings`, or another one of the server that was asked; absent on
the prefill of a request that another engine decodes"""
GEN_AI_PROVIDER = "gen_ai.provider.name"
"""string, generations: the engine: `vllm`, `sglang`"""
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
"""string, generations: the name under which the model is served, or its path; absent if tracing was switched on after
the engine had started, unless Ray Serve LLM says it"""
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
"""string, generations: the LoRA adapter that answered, if one did"""
GEN_AI_RESPONSE_ID = "gen_ai.response.id"
"""string, generations: the id of the request, with which the `id` of a response by OpenAI's API begins or is equal"""
GEN_AI_TEMPERATURE = "gen_ai.request.temperature"
"""double, generations: the temperature, as the engine uses it"""
GEN_AI_TOP_P = "gen_ai.request.top_p"
"""double, generations: likewise"""
GEN_AI_MAX_TOKENS = "gen_ai.request.max_tokens"
"""int, generations: the most tokens that may be generated, as the engine uses it"""
GEN_AI_SEED = "gen_ai.request.seed"
"""int, generations: the seed of the request, if it has one"""
GEN_AI_CHOICES = "gen_ai.request.choice.count"
"""int, generations: how many completions were asked for, if more than one"""
GEN_AI_STREAM = "gen_ai.request.stream"
"""boolean, generations: whether the engine's caller gets parts of the output as they are made; absent if unknown"""
GEN_AI_FINISH_REASONS = "gen_ai.response.finish_reasons"
"""string[], generations: why each completion ended: `stop`, `length`, `abort` if the client left or the caller stopped
it, `error`, `repetition`"""
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
"""int, generations: tokens of the prompt, once for all completions of it"""
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
"""int, generations: generated tokens, of all completions"""
GEN_AI_CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
"""int, generations: those tokens of the prompt that were in the engine's prefix cache, if any"""
GEN_AI_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
"""double, generations: seconds from the start of the span until the engine's front end had the first token"""
GEN_AI_INPUT_MESSAGES = "gen_ai.input.messages"
"""string, generations: the prompt, as JSON; only with `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`"""
GEN_AI_OUTPUT_MESSAGES = "gen_ai.output.messages"
"""string, generations: the completions, likewise"""
GEN_AI_QUEUE_TIME = "gen_ai.latency.time_in_queue"
"""double, generations: seconds in the queue of the engine, by its own clock; of several completions, until the first
one left it"""
GEN_AI_PREFILL_TIME = "gen_ai.latency.time_in_model_prefill"
"""double, generations: seconds from there to the first token, likewise"""
GEN_AI_DECODE_TIME = "gen_ai.latency.time_in_model_decode"
"""double, generations: seconds from there to the last token, likewise"""
RAY_LLM_TIME_TO_QUEUE = "ray.llm.time_to_queue"
"""double, generations: seconds from the start of the span until the engine's core had the request in its queue; absent
if the core is on another machine"""
RAY_LLM_PREEMPTIONS = "ray.llm.preemptions"
"""int, generations: how often the engine preempted it, if it did and tells"""
RAY_LLM_INPUT_TOKENS = "ray.llm.input_tokens"
"""int, generations: as `gen_ai.usage.input_tokens`, which `RAY_TRACING_LLM_USAGE=0` leaves out"""
RAY_LLM_OUTPUT_TOKENS = "ray.llm.output_tokens"
"""int, generations: likewise"""
RAY_LLM_CACHED_TOKENS = "ray.llm.cached_tokens"
"""int, generations: likewise"""
RAY_LLM_PREFILL_INPUT_TOKENS = "ray.llm.prefill.input_tokens"
"""int, prefill of a request that another engine decodes: tokens of the prompt, which that one's span counts"""
RAY_LLM_PREFILL_OUTPUT_TOKENS = "ray.llm.prefill.output_tokens"
"""int, prefill of a request that another engine decodes: tokens that it generated, likewise"""
RAY_LLM_PREFILL_CACHED_TOKENS = "ray.llm.prefill.cached_tokens"
"""int, prefill of a request that another engine decodes: tokens of the prompt in its prefix cache, if any"""
RAY_LLM_CHUNK_HELD = "ray.llm.first_chunk_held"
"""double, streaming requests in replicas of Ray Serve LLM: seconds from the engine's first part of the response until
the batcher of Ray Serve LLM handed it on"""
RAY_LLM_BATCHING_INTERVAL = "ray.llm.batching_interval"
"""double, streaming requests in replicas of Ray Serve LLM: the interval of that batcher in seconds"""
RAY_LLM_GENERATIONS = "ray.llm.generations"
"""int, executions of calls with generations: how many of these have ended, also without a span"""
RAY_LLM_TOTAL_INPUT = "ray.llm.total.input_tokens"
"""int, executions of calls with generations: the sum over all of these, as the next two"""
RAY_LLM_TOTAL_OUTPUT = "ray.llm.total.output_tokens"
"""int, executions of calls with generations: tokens that were generated"""
RAY_LLM_TOTAL_CACHED = "ray.llm.total.cached_tokens"
"""int, executions of calls with generations: tokens of prompts in the prefix cache"""
RAY_LLM_FIRST_BUCKETS = "ray.llm.time_to_first_chunk.buckets"
"""int[], executions of calls with generations: how many had each time to the first chunk, in pairs of a bucket and its
count: bucket b has times of 2^(b/8) to 2^((b+1)/8) microseconds, and the first one all shorter ones too"""
RAY_LLM_QUEUE_BUCKETS = "ray.llm.time_in_queue.buckets"
"""int[], executions of calls with generations: the same of the time in the engine's queue"""
RAY_RL_STEP = "ray.rl.step"
"""int, trajectories: the training step that it is for"""
RAY_RL_SAMPLE = "ray.rl.sample"
"""string, trajectories: the prompt or task"""
RAY_RL_ROLLOUT = "ray.rl.rollout"
"""int, trajectories: its number among those of the same sample"""
RAY_RL_STALENESS = "ray.rl.staleness"
"""int, trajectories: by how many steps the weights that generate it are older than the step, if the program says it"""
RAY_RL_OUTCOME = "ray.rl.outcome"
"""string, trajectories: what became of it, such as `accepted`, if the program sets it"""
RAY_DATA_DATASET_ID = "ray.data.dataset_id"
"""string, executions of datasets, their operators, iterations: Ray Data's id of the execution, as in its logs and
dashboard"""
RAY_DATA_RUN = "ray.data.run"
"""int, executions of datasets: the number of this execution of the dataset, from 0"""
RAY_DATA_CONSUMER = "ray.data.consumer"
"""string, executions of datasets, their operators, iterations: the method of Ray Data that started the execution, such
as `materialize`, `iter_batches` or `write_parquet`"""
RAY_DATA_OUTCOME = "ray.data.outcome"
"""string, executions of datasets, iterations: `finished`; `stopped` if the consumer stopped early; `failed`;
`cancelled`; `abandoned` if the program ended or disconnected from Ray without ending it"""
RAY_DATA_GRAPH = "ray.data.graph"
"""string, executions of datasets: the operators as Ray Data shows them"""
RAY_DATA_LIMITS = "ray.data.limits"
"""string, executions of datasets: resources that all of its tasks together may use, such as CPUs and bytes of object
store memory, as JSON"""
RAY_DATA_SPILLED = "ray.data.spilled_bytes"
"""int, executions of datasets, operators: bytes that were spilled to disk, if any. On an execution, by the whole
cluster during that time; on an operator, of its input"""
RAY_DATA_RESTORED = "ray.data.restored_bytes"
"""int, executions of datasets: bytes that the cluster read back from disk during the execution, if any"""
RAY_DATA_OPERATOR = "ray.data.operator"
"""string, operators, their tasks: the name of the operator, as in `stats()`"""
RAY_DATA_OPERATOR_ID = "ray.data.operator_id"
"""string, operators: its name and its position in the execution, as in Ray's dashboard and metrics"""
RAY_DATA_OPERATOR_TYPE = "ray.data.operator_type"
"""string, operators: its class in Ray Data, such as `ActorPoolMapOperator`"""
RAY_DATA_INPUTS = "ray.data.inputs"
"""string[], operators: the operators that its input comes from; links lead to their spans"""
RAY_DATA_ROWS = "ray.data.rows"
"""int, executions of datasets, operators, their tasks, iterations: rows of the output; on an operator, the rows that it
handed on, as in `stats()`"""
RAY_DATA_BYTES = "ray.data.bytes"
"""int, executions of datasets, operators, their tasks: bytes of the output"""
RAY_DATA_BLOCKS = "ray.data.blocks"
"""int, executions of datasets, operators, their tasks: blocks of the output"""
RAY_DATA_INPUT_ROWS = "ray.data.input_rows"
"""int, operators: rows of the input"""
RAY_DATA_INPUT_BYTES = "ray.data.input_bytes"
"""int, operators: bytes of the input"""
RAY_DATA_INPUT_BLOCKS = "ray.data.input_blocks"
"""int, operators: blocks, or bundles of blocks, of the input"""
RAY_DATA_TASKS = "ray.data.tasks"
"""int, operators: tasks that it submitted, including those without a span"""
RAY_DATA_TASKS_FAILED = "ray.data.tasks_failed"
"""int, operators: tasks that failed, if any"""
RAY_DATA_SCHEDULING_TIME = "ray.data.scheduling_time"
"""double, operators: seconds from the submission of a task until it began, summed over tasks, as measured by Ray
Data"""
RAY_DATA_TASK_TIME = "ray.data.task_time"
"""double, operators: run time of its tasks in seconds, summed over tasks, as measured by the workers"""
RAY_DATA_BLOCK_TIME = "ray.data.block_time"
"""double, operators: seconds in which its tasks made blocks, summed over tasks, without waits until a block was read"""
RAY_DATA_UDF_TIME = "ray.data.udf_time"
"""double, operators: seconds in the functions that transform the blocks, summed over tasks, if Ray Data measures
them"""
RAY_DATA_MAX_CONCURRENCY = "ray.data.max_concurrency"
"""int, operators: how many of its tasks may run at a time, if limited"""
RAY_DATA_TASK_RESOURCES = "ray.data.task_resources"
"""string, operators: resources that each task or actor requires, as JSON"""
RAY_DATA_ACTORS = "ray.data.actors"
"""int, operators: actors that it started, if any"""
RAY_DATA_BACKPRESSURE_SUBMISSION = "ray.data.backpressure.submission_time"
"""double, operators: seconds in which a back-pressure policy let it submit no task, even if it had none to submit"""
RAY_DATA_BACKPRESSURE_OUTPUT = "ray.data.backpressure.output_time"
"""double, operators: seconds in which a back-pressure policy let no output be read from its tasks"""
RAY_DATA_BACKPRESSURE_BY = "ray.data.backpressure.by"
"""string[], operators: the causes that held it back, as kind, policy and resource. Only times in which it had something
to submit or to hand on count"""
RAY_DATA_BACKPRESSURE_BY_TIME = "ray.data.backpressure.by_time"
"""double[], operators: seconds for each of these causes"""
RAY_DATA_BACKPRESSURE_KIND = "ray.data.backpressure.kind"
"""string, events `ray.data.backpressure`: `submission` if it could not submit tasks, `output` if the output of its
tasks was not read"""
RAY_DATA_BACKPRESSURE_POLICY = "ray.data.backpressure.policy"
"""string, events `ray.data.backpressure`: Ray Data's policy"""
RAY_DATA_BACKPRESSURE_RESOURCE = "ray.data.backpressure.resource"
"""string, events `ray.data.backpressure`: the missing resource, such as `CPU` or `CPU and object store memory`, if
known"""
RAY_DATA_BACKPRESSURE_DURATION = "ray.data.backpressure.duration"
"""double, events `ray.data.backpressure`: how long it lasted, in seconds"""
RAY_DATA_TIMELINE_SECONDS = "ray.data.timeline.seconds"
"""double[], operators: times of the samples of its queues, in seconds since the execution began. The other lists have a
value for each"""
RAY_DATA_TIMELINE_QUEUED_BLOCKS = "ray.data.timeline.queued_blocks"
"""int[], operators: blocks that waited for the operator"""
RAY_DATA_TIMELINE_QUEUED_BYTES = "ray.data.timeline.queued_bytes"
"""int[], operators: bytes that waited for it"""
RAY_DATA_TIMELINE_RUNNING_TASKS = "ray.data.timeline.running_tasks"
"""int[], operators: its tasks that were submitted and had not ended"""
RAY_DATA_TIMELINE_ROWS = "ray.data.timeline.rows"
"""int[], operators: rows that it had handed on by then"""
RAY_DATA_TASK_INDEX = "ray.data.task_index"
"""int, tasks of operators: Ray Data's number of the task in its operator"""
RAY_DATA_STAGE = "ray.data.stage"
"""string, tasks of operators: the step of an operator that has several, such as `map` or `reduce`"""
RAY_DATA_CPU_TIME = "ray.data.cpu_time"
"""double, tasks of operators: seconds of processor time for its blocks"""
RAY_DATA_PEAK_MEMORY = "ray.data.peak_memory"
"""int, tasks of operators: the most bytes of heap memory, if measured"""
RAY_DATA_SPLIT = "ray.data.split"
"""int, iterations: the number of the split of `streaming_split` that it reads"""
RAY_DATA_EPOCH = "ray.data.epoch"
"""int, iterations: the number of the execution of such a dataset that it reads, from 0"""
RAY_DATA_BATCHES = "ray.data.batches"
"""int, iterations: number of batches that the program got"""
RAY_DATA_WAIT_TIME = "ray.data.wait_time"
"""double, iterations: seconds that the program waited for batches"""
RAY_DATA_FIRST_BATCH_TIME = "ray.data.first_batch_time"
"""double, iterations: seconds until it got the first batch"""
RAY_DATA_USER_TIME = "ray.data.user_time"
"""double, iterations: seconds between getting a batch and asking for the next one"""
RAY_DATA_WAIT_TIME_PRODUCTION = "ray.data.wait_time.production"
"""double, iterations: part of the wait in seconds in which the blocks were not produced yet, as measured by Ray Data;
these parts may overlap"""
RAY_DATA_WAIT_TIME_TRANSFER = "ray.data.wait_time.transfer"
"""double, iterations: the same, in which blocks were fetched"""
RAY_DATA_WAIT_TIME_BATCHING = "ray.data.wait_time.batching"
"""double, iterations: the same, in which batches were cut out of blocks"""
RAY_DATA_WAIT_TIME_FORMAT = "ray.data.wait_time.format"
"""double, iterations: the same, in which batches were converted"""
RAY_DATA_WAIT_TIME_COLLATE = "ray.data.wait_time.collate"
"""double, iterations: the same, in which the collate function ran"""
RAY_DATA_WAIT_TIME_FINALIZE = "ray.data.wait_time.finalize"
"""double, iterations: the same, in which batches were moved to their device"""
RAY_MEMORY_PEAK = "ray.memory.peak"
"""int, executions, ranks of Ray Train: peak resident memory of the process meanwhile, in bytes, where
`RAY_TRACING_MEMORY` is on. A new high-water mark is exact; a lower peak is the highest of 20 samples a second"""
RAY_MEMORY_DEVICE_PEAK = "ray.memory.device_peak"
"""int, executions, ranks of Ray Train: peak memory that PyTorch had allocated on one device of the process meanwhile,
in bytes, where `RAY_TRACING_MEMORY` is on"""
RAY_ACCELERATOR_ID = "ray.accelerator_id"
"""string, metrics of GPUs: the accelerator as Ray names it, such as `GPU:0`"""
RAY_TRAIN_RUN_NAME = "ray.train.run_name"
"""string, runs and attempts of Ray Train: the name of the run in `RunConfig`, or the one that Ray gave it"""
RAY_TRAIN_RUN_ID = "ray.train.run_id"
"""string, runs and attempts of Ray Train: Ray's id of the run"""
RAY_TRAIN_TRAINER = "ray.train.trainer"
"""string, runs of Ray Train: the class of the trainer, such as `TorchTrainer`"""
RAY_TRAIN_ATTEMPT = "ray.train.attempt_number"
"""int, attempts, ranks: the number of the attempt, from 1; a restart or resize begins one"""
RAY_TRAIN_NUM_WORKERS = "ray.train.num_workers"
"""int, runs and attempts of Ray Train: how many workers it asks for, or has"""
RAY_TRAIN_SCHEDULING_TIME = "ray.train.scheduling_time"
"""double, attempts of Ray Train: seconds until all of its workers ran: for resources, the start of workers, and the
setup of the backend"""
RAY_TRAIN_RUNNING_TIME = "ray.train.running_time"
"""double, attempts of Ray Train: seconds from the moment when all workers ran until it ended"""
RAY_TRAIN_FAILED_RANKS = "ray.train.failed_ranks"
"""string[], attempts of Ray Train, events: the ranks whose failure ended it"""
RAY_TRAIN_STATE = "ray.train.state"
"""string, events `ray.train.state`: the state of the run, such as `RUNNING`"""
RAY_TRAIN_DECISION = "ray.train.decision"
"""string, events `ray.train.failure_decision`: the decision of Ray Train after a failure: `RETRY` or `RAISE`;
`error.type` is the cause"""
RAY_TRAIN_WORLD_RANK = "ray.train.world_rank"
"""int, ranks of Ray Train and their reports: the rank of the worker in the whole run"""
RAY_TRAIN_WORLD_SIZE = "ray.train.world_size"
"""int, ranks of Ray Train: how many workers there are"""
RAY_TRAIN_LOCAL_RANK = "ray.train.local_rank"
"""int, ranks of Ray Train: the rank of the worker on its node"""
RAY_TRAIN_NODE_RANK = "ray.train.node_rank"
"""int, ranks of Ray Train: the rank of its node"""
RAY_TRAIN_STEP = "ray.train.step"
"""int, reports and collective functions of Ray Train: its number, from 1. It is the same for all ranks that meet there,
since all of them make the same calls"""
RAY_TRAIN_BARRIER_TIME = "ray.train.barrier_time"
"""double, reports and collective functions of Ray Train: seconds until all ranks were there; the last one waits for
none"""
RAY_TRAIN_HANDOVER_TIME = "ray.train.handover_time"
"""double, reports of Ray Train: seconds until the controller had taken the previous report. It polls its workers every
2 seconds"""
RAY_TRAIN_CHECKPOINT = "ray.train.checkpoint"
"""string, reports and transfers of Ray Train: the name of the folder of the checkpoint, if there is one"""
RAY_TRAIN_METRICS = "ray.train.metrics"
"""string, reports of Ray Train: the metrics as a short text, where `RAY_TRACING_ARGUMENTS` is on"""
RAY_TUNE_EXPERIMENT = "ray.tune.experiment"
"""string, experiments and trials of Ray Tune: the name of the experiment"""
RAY_TUNE_SCHEDULER = "ray.tune.scheduler"
"""string, experiments of Ray Tune: the class of the scheduler"""
RAY_TUNE_SEARCHER = "ray.tune.searcher"
"""string, experiments of Ray Tune: the class of the search algorithm"""
RAY_TUNE_METRIC = "ray.tune.metric"
"""string, experiments of Ray Tune: the metric that is optimized"""
RAY_TUNE_TRIALS = "ray.tune.trials"
"""int, experiments of Ray Tune: how many trials there were"""
RAY_TUNE_TRIALS_FAILED = "ray.tune.trials_failed"
"""int, experiments of Ray Tune: how many of them failed, if any"""
RAY_TUNE_TRIAL_ID = "ray.tune.trial_id"
"""string, trials of Ray Tune: Ray's id of the trial"""
RAY_TUNE_TRIAL_STATUS = "ray.tune.trial_status"
"""string, trials of Ray Tune, events `ray.tune.status`: its status; at the end of the trial, `TERMINATED` or `ERROR`"""
RAY_TUNE_TRAINABLE = "ray.tune.trainable"
"""string, trials of Ray Tune: the name of the trainable"""
RAY_TUNE_CONFIG = "ray.tune.config"
"""string, trials of Ray Tune, events `ray.tune.exploit`: the configuration of the trial as a short text; likely secrets
are redacted"""
RAY_TUNE_ITERATIONS = "ray.tune.iterations"
"""int, trials of Ray Tune: how many iterations it had reported"""
RAY_TUNE_METRIC_VALUE = "ray.tune.metric_value"
"""double, trials of Ray Tune: the last value of the metric"""
RAY_TUNE_STOPPED_BY = "ray.tune.stopped_by"
"""string, trials of Ray Tune: the cause of its end: `trial` (its own code returned), `criterion` (a stop condition),
`scheduler`, or `experiment` (which ended as a whole); absent if an error ended it"""
RAY_TUNE_FAILURES = "ray.tune.failures"
"""int, trials of Ray Tune: how often it failed, if it did"""
RAY_TUNE_PENDING_TIME = "ray.tune.pending_time"
"""double, trials of Ray Tune: seconds until it ran for the first time"""
RAY_TUNE_CHECKPOINT = "ray.tune.checkpoint"
"""string, events `ray.tune.checkpoint` and `ray.tune.restore`: the path of the checkpoint"""
RAY_TUNE_CLONED = "ray.tune.cloned_trial_id"
"""string, events `ray.tune.exploit`: the trial from whose state it continues"""
RAY_RLLIB_ALGORITHM = "ray.rllib.algorithm"
"""string, iterations of RLlib and their phases: the class of the algorithm"""
RAY_RLLIB_ITERATION = "ray.rllib.iteration"
"""int, iterations of RLlib: the number of the iteration, from 1"""
SKYWALKING_CALLER = "skywalking.caller"
"""string, requests in replicas, if deployments are services of SkyWalking: the service of the process that made the
call"""
SKYWALKING_PARENT = "skywalking.parent"
"""string, spans below one of a SkyWalking agent: the `sw8` or `sw6` header that named their parent"""
SKYWALKING_PEER = "skywalking.peer"
"""string, calls of others with such a header: the address of the called service, as in the header"""
RESOURCE_PROCESS_TYPE = "ray.worker.process_type"
"""string, Resource: `driver` or `worker`"""
RESOURCE_NODE_ID = "ray.node.id"
"""string, Resource: the node of the process"""
RESOURCE_WORKER_ID = "ray.worker.id"
"""string, Resource: Ray's id of the worker or driver"""
RESOURCE_CREATION_TIME = "process.creation.time"
"""string, Resource: when the process was created, in ISO 8601"""
RESOURCE_WORKER_READY = "ray.worker.ready_time_unix_nano"
"""int, Resource: when the worker had connected to Ray and was ready for work, in nanoseconds since the epoch"""
RESOURCE_PROCESSORS = "ray.node.processors"
"""int, Resource: how many processors of its node the process may use"""
RESOURCE_SESSION_NAME = "ray.cluster.session_name"
"""string, Resource: the session of the cluster, as in `/tmp/ray`"""
RESOURCE_GCS_ADDRESS = "ray.cluster.gcs_address"
"""string, Resource: the address of the cluster's GCS"""
RESOURCE_RAY_VERSION = "ray.version"
"""string, Resource: the version of Ray"""
RESOURCE_PARTS = "ray.tracing.parts"
"""string, Resource: the parts of Ray that the process records, as in `RAY_TRACING_RAY`; with `internal` where
`RAY_TRACING_INTERNAL` is on, and `selected` where `RAY_TRACING_INCLUDE` or `RAY_TRACING_EXCLUDE` is set"""

# Attributes of OpenTelemetry's conventions, which say what they mean.

CLIENT_ADDRESS = "client.address"
CODE_FILE_PATH = "code.file.path"
CODE_FUNCTION_NAME = "code.function.name"
CODE_LINE_NUMBER = "code.line.number"
CODE_STACKTRACE = "code.stacktrace"
DISTRO_NAME = "telemetry.distro.name"
DISTRO_VERSION = "telemetry.distro.version"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"
EXCEPTION_TYPE = "exception.type"
HTTP_METHOD = "http.request.method"
HTTP_METHOD_ORIGINAL = "http.request.method_original"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
HW_ID = "hw.id"
HW_NAME = "hw.name"
HW_VENDOR = "hw.vendor"
NETWORK_PROTOCOL_VERSION = "network.protocol.version"
OTEL_SCOPE_NAME = "otel.scope.name"
RPC_GRPC_STATUS = "rpc.grpc.status_code"
RPC_METHOD = "rpc.method"
RPC_SERVICE = "rpc.service"
RPC_SYSTEM = "rpc.system"
THREAD_ID = "thread.id"
THREAD_NAME = "thread.name"
URL_PATH = "url.path"
URL_QUERY = "url.query"
URL_SCHEME = "url.scheme"

# Values of ``error.type``.

JOB_FAILED = "job_failed"
"""Of a submitted job whose program ended with an exit code other than 0, or could not be started."""
WORKER_DIED = "worker_died"
"""Of a span that the end of its worker interrupted; its status describes the cause."""
DRIVER_DIED = "driver_died"
"""The same for the end of a driver."""
TASK_CANCELLED = "ray.exceptions.TaskCancelledError"
"""Of an interrupted span whose task was canceled: the exception that the caller gets."""
OUT_OF_MEMORY = "ray.exceptions.OutOfMemoryError"
"""Of an interrupted span whose worker Ray's memory monitor ended: the exception that the caller gets."""
ERROR_OTHER = "_OTHER"
"""In metrics, of a failed span that has none."""

# Names of spans and events. Most spans have the name of a function, deployment, dataset or run before these words.

JOB = "ray.job"
"""A submitted job."""
AWAIT = "ray.await"
"""``await ref``."""
PLACEMENT_GROUP_WAIT = "PlacementGroup.wait"
"""``group.wait()``."""
FUTURE = "ray.future"
"""``ref.future()``, which takes no time: when the program waits for the future is not known."""
ACTOR_RESTARTED = "ray.actor.restarted"
"""The event on the creation of an actor that Ray has restarted, with ``ray.attempt``."""
SERVE_CALL = "serve.remote"
"""A call of a deployment."""
SERVE_CHOICE = "serve.choose_replica"
"""The choice of a replica for a call."""
SERVE_ROUTE = "serve.route"
"""The same for a request that HAProxy has received."""
SERVE_REPLICA = "serve.replica"
"""A request in the replica."""
SERVE_BATCH = "serve.batch"
"""A batch of requests."""
SERVE_MULTIPLEXED = "serve.multiplexed"
"""The loading of a model."""
DATASET = "ray.data"
"""An execution of a dataset."""
DATA_OPERATOR = "ray.data.operator"
"""An operator, after its name."""
DATA_ITERATION = "ray.data.iteration"
"""An iteration, after the method that iterates."""
DATA_BACKPRESSURE = "ray.data.backpressure"
"""The event on an operator for each time that backpressure held it back."""
TRAIN_RUN = "ray.train"
"""A run of Ray Train."""
TRAIN_ATTEMPT = "ray.train.attempt"
"""An attempt of a run."""
TRAIN_WORKER = "ray.train.worker"
"""The training loop of a rank."""
TRAIN_REPORT = "ray.train.report"
"""A report of a rank."""
TRAIN_TRANSFER = "ray.train.checkpoint_transfer"
"""The transfer of the checkpoint of a report."""
TRAIN_COLLECTIVES = "ray.train.collective."
"""How the names of the spans of Ray Train's own collective functions begin."""
TRAIN_CHANGED = "ray.train.state"
"""The event of an attempt for another state."""
TRAIN_FAILURE = "ray.train.failure_decision"
"""The event of an attempt for a decision after a failure."""
TRAIN_RESIZE = "ray.train.resize_decision"
"""The event of an attempt for a decision about the number of workers."""
LLM_PREFILL = "prefill"
"""Before the name of the model: the prefill of a request that another engine decodes. Other generations have
``gen_ai.operation.name`` there."""
RL_TRAJECTORY = "ray.rl.trajectory"
"""A trajectory of reinforcement learning, which the program has told (``ray_tracing_hooks.rl``)."""
TUNE_EXPERIMENT = "ray.tune"
"""An experiment of Ray Tune."""
TUNE_TRIAL = "ray.tune.trial"
"""A trial, after the name of its experiment."""
TUNE_CHANGED = "ray.tune.status"
"""The event of a trial for another status."""
TUNE_FAILURE = "ray.tune.failure"
"""The event of a trial for a failure."""
TUNE_CHECKPOINTED = "ray.tune.checkpoint"
"""The event of a trial for a checkpoint that it made."""
TUNE_RESTORED = "ray.tune.restore"
"""The event of a trial for a checkpoint that it loaded."""
TUNE_EXPLOIT = "ray.tune.exploit"
"""The event of a trial that was cloned from another one."""
RLLIB = "ray.rllib"
"""An iteration of an algorithm of RLlib; with the name of a phase, that phase of it."""


def submission_name(function: str) -> str:
    """The name of the PRODUCER span of ``.remote()``; ``function`` is the value of ``ray.function``."""
    return f"{function} ray.remote"


def driver_name(script: str) -> str:
    """The name of the root span of a driver; ``script`` is the name of its program's file, module or notebook."""
    return f"{script} ray.driver"


def execution_name(function: str) -> str:
    """The name of the CONSUMER span of the execution in the worker."""
    return f"{function} ray.remote_worker"


def run_name(run: str, what: str) -> str:
    """The name of a span of a library: of ``run``, such as a run of Ray Train, or an experiment or algorithm.

    If Ray has made up the name, the time at its end is left out, so that there are few names of spans.
    """
    return f"{re.sub(_TIME_AT_END, '', run)} {what}"


_TIME_AT_END = r"[_-]\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}$"

# Metrics. Those of calls are made where ``RAY_TRACING_METRICS`` is on, those of nodes where ``RAY_TRACING_UTILIZATION``
# is set, and those of delivery, of each shipper since it began, where the first or ``RAY_TRACING_PROMETHEUS`` asks.


class Metric(str):
    """The name of a metric.

    Attributes:
        instrument: ``histogram``, ``counter`` or ``gauge``.
        unit: In UCUM, as OpenTelemetry asks.
        attributes: The keys of its points. Those of actors are on calls of actors only, ``error.type`` on failed calls.
        meaning: In Markdown.
    """

    __slots__ = ("attributes", "instrument", "meaning", "unit")

    attributes: tuple[str, ...]
    instrument: str
    meaning: str
    unit: str


def _metric(name: str, instrument: str, unit: str, attributes: tuple[str, ...], meaning: str) -> Metric:
    made = Metric(name)
    made.instrument, made.unit, made.attributes, made.meaning = instrument, unit, attributes, meaning
    return made


def _histogram(name: str, attributes: tuple[str, ...], meaning: str) -> Metric:
    return _metric(name, "histogram", "s", attributes, meaning)


def _of_delivery(name: str, instrument: str, unit: str, meaning: str) -> Metric:
    return _metric(f"ray.tracing.{name}", instrument, unit, _OF_DESTINATION, meaning)


_CALLED = (RAY_FUNCTION, RAY_ACTOR_CLASS, RAY_ACTOR_METHOD)

_OF_GPU = (HW_ID, HW_NAME, HW_VENDOR, RAY_ACCELERATOR_ID)

EXECUTION_DURATION = _histogram(
    "ray.execution.duration",
    (*_CALLED, ERROR_TYPE),
    "how long a task, actor creation or method ran: each attempt by itself, and a generator until it ended; "
    "its count is the number of ended executions, with `error.type` for those that failed",
)
EXECUTION_QUEUE_TIME = _histogram(
    "ray.execution.queue_time",
    _CALLED,
    "how long a call waited, from the start of its submission to the start of its execution; without retries, and "
    "without calls whose submission is not known on the node",
)
EXECUTION_RETRIES = _metric(
    "ray.execution.retries", "counter", "{retry}", _CALLED, "how many of the ended executions were retries"
)
SUBMISSION_DURATION = _histogram(
    "ray.submission.duration",
    (*_CALLED, ERROR_TYPE),
    "how long `.remote()` took; its count is the number of calls, with `error.type` for those that Ray refused",
)
_GENERATED = (GEN_AI_OPERATION, GEN_AI_PROVIDER, GEN_AI_REQUEST_MODEL, RAY_SERVE_DEPLOYMENT)

GENERATION_DURATION = _histogram(
    "gen_ai.server.request.duration",
    (*_GENERATED, ERROR_TYPE),
    "how long a generation took; its count is the number of generations, with `error.type` for those that failed",
)
GENERATION_FIRST_TOKEN = _histogram(
    "gen_ai.server.time_to_first_token", _GENERATED, "how long it took until the engine's front end had the first token"
)
GENERATION_TOKEN_TIME = _histogram(
    "gen_ai.server.time_per_output_token",
    _GENERATED,
    "how long each token after the first one took; not of several completions of one prompt",
)
GPU_UTILIZATION = _metric("hw.gpu.utilization", "gauge", "1", _OF_GPU, "the share of time in which the GPU was busy")
GPU_MEMORY_USAGE = _metric("hw.gpu.memory.usage", "gauge", "By", _OF_GPU, "how much of the GPU's memory was in use")
GPU_MEMORY_LIMIT = _metric("hw.gpu.memory.limit", "gauge", "By", _OF_GPU, "how much memory the GPU has")
CPU_UTILIZATION = _metric(
    "system.cpu.utilization", "gauge", "1", (), "the share of the processors of a node that was in use"
)
MEMORY_UTILIZATION = _metric(
    "system.memory.utilization", "gauge", "1", (), "the share of the memory of a node that was in use"
)

TRACING_ADDRESS = "ray.tracing.address"
TRACING_EXPORTER = "ray.tracing.exporter"
TRACING_SIGNAL = "ray.tracing.signal"

_OF_DESTINATION = (TRACING_EXPORTER, TRACING_SIGNAL, TRACING_ADDRESS)

DELIVERY_RECEIVED = _of_delivery("received", "counter", "{item}", "spans, or log records, read from the spool")
DELIVERY_DELIVERED = _of_delivery(
    "delivered", "counter", "{item}", "spans, or log records, that the destination has accepted"
)
DELIVERY_BYTES = _of_delivery(
    "delivered.size", "counter", "By", "the size of delivered spans, or log records, as encoded, before compression"
)
DELIVERY_REFUSED = _of_delivery(
    "refused", "counter", "{item}", "spans, or log records, that the destination will never accept: they are lost"
)
DELIVERY_DROPPED = _of_delivery(
    "dropped",
    "counter",
    "{item}",
    "spans, or log records, that `RAY_TRACING_SPOOL_MAX_BYTES` removed before they were delivered: they are lost",
)
DELIVERY_RETRIES = _of_delivery("retries", "counter", "{retry}", "attempts that failed and were repeated")
DELIVERY_WAITING = _of_delivery(
    "waiting", "gauge", "{item}", "spans, or log records, that wait; extrapolated if there are very many"
)
DELIVERY_WAITING_BYTES = _of_delivery(
    "waiting.size", "gauge", "By", "the size in the spool of the spans, or log records, that wait"
)
DELIVERY_WAITING_AGE = _of_delivery(
    "waiting.age", "gauge", "s", "time since the end of the oldest waiting span, or log record; 0 if none waits"
)
DELIVERY_UNWRITTEN = _metric(
    "ray.tracing.unwritten",
    "counter",
    "{item}",
    (),
    "spans and log records that a full or failing disk did not take: they are lost",
)
SPOOL_BYTES = _metric("ray.tracing.spool.size", "gauge", "By", (), "the size of the spool")
SPOOL_LIMIT = _metric(
    "ray.tracing.spool.limit", "gauge", "By", (), "the maximum size of the spool, `RAY_TRACING_SPOOL_MAX_BYTES`"
)
SPOOL_WRITERS = _metric("ray.tracing.writers", "gauge", "{process}", (), "processes that write to the spool")

__all__ = [name for name in vars() if not name.startswith("_") and name not in {"annotations", "re"}]
