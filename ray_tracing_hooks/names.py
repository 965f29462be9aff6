"""The names of the spans, attributes and metrics that this package writes.

The names and keys of Ray's own tracing (``ray.util.tracing``) are kept, so that dashboards made for it continue to
work. Where Ray's meaning is ambiguous, this module states ours.
"""

from __future__ import annotations

import re

__all__ = [
    "ACTOR_RESTARTED",
    "AWAIT",
    "CLIENT_ADDRESS",
    "CODE_FILE_PATH",
    "CODE_FUNCTION_NAME",
    "CODE_LINE_NUMBER",
    "CODE_STACKTRACE",
    "CPU_UTILIZATION",
    "DATASET",
    "DATA_BACKPRESSURE",
    "DATA_ITERATION",
    "DATA_OPERATOR",
    "DELIVERY_BYTES",
    "DELIVERY_DELIVERED",
    "DELIVERY_DROPPED",
    "DELIVERY_RECEIVED",
    "DELIVERY_REFUSED",
    "DELIVERY_RETRIES",
    "DELIVERY_UNWRITTEN",
    "DELIVERY_WAITING",
    "DELIVERY_WAITING_AGE",
    "DELIVERY_WAITING_BYTES",
    "DISTRO_NAME",
    "DISTRO_VERSION",
    "DRIVER_DIED",
    "ERROR_OTHER",
    "ERROR_TYPE",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "EXECUTION_DURATION",
    "EXECUTION_QUEUE_TIME",
    "EXECUTION_RETRIES",
    "EXIT_CODE",
    "FUTURE",
    "GPU_MEMORY_LIMIT",
    "GPU_MEMORY_USAGE",
    "GPU_UTILIZATION",
    "HTTP_METHOD",
    "HTTP_METHOD_ORIGINAL",
    "HTTP_ROUTE",
    "HTTP_STATUS",
    "HW_ID",
    "HW_NAME",
    "HW_VENDOR",
    "JOB",
    "JOB_FAILED",
    "MEMORY_UTILIZATION",
    "NETWORK_PROTOCOL_VERSION",
    "OTEL_SCOPE_NAME",
    "OUT_OF_MEMORY",
    "RAY_ACCELERATOR_ID",
    "RAY_ACCELERATOR_IDS",
    "RAY_ACTOR_CLASS",
    "RAY_ACTOR_ID",
    "RAY_ACTOR_METHOD",
    "RAY_ACTOR_NAME",
    "RAY_AFTER_END",
    "RAY_ARGUMENTS",
    "RAY_ARGUMENT_COUNT",
    "RAY_ARGUMENT_IDS",
    "RAY_ASSIGNED_RESOURCES",
    "RAY_ASYNCIO",
    "RAY_ATTEMPT",
    "RAY_CANCELLED",
    "RAY_CONCURRENCY_GROUP",
    "RAY_DATA_ACTORS",
    "RAY_DATA_BACKPRESSURE_BY",
    "RAY_DATA_BACKPRESSURE_BY_TIME",
    "RAY_DATA_BACKPRESSURE_DURATION",
    "RAY_DATA_BACKPRESSURE_KIND",
    "RAY_DATA_BACKPRESSURE_OUTPUT",
    "RAY_DATA_BACKPRESSURE_POLICY",
    "RAY_DATA_BACKPRESSURE_RESOURCE",
    "RAY_DATA_BACKPRESSURE_SUBMISSION",
    "RAY_DATA_BATCHES",
    "RAY_DATA_BLOCKS",
    "RAY_DATA_BLOCK_TIME",
    "RAY_DATA_BYTES",
    "RAY_DATA_CONSUMER",
    "RAY_DATA_CPU_TIME",
    "RAY_DATA_DATASET_ID",
    "RAY_DATA_EPOCH",
    "RAY_DATA_FIRST_BATCH_TIME",
    "RAY_DATA_GRAPH",
    "RAY_DATA_INPUTS",
    "RAY_DATA_INPUT_BLOCKS",
    "RAY_DATA_INPUT_BYTES",
    "RAY_DATA_INPUT_ROWS",
    "RAY_DATA_LIMITS",
    "RAY_DATA_MAX_CONCURRENCY",
    "RAY_DATA_OPERATOR",
    "RAY_DATA_OPERATOR_ID",
    "RAY_DATA_OPERATOR_TYPE",
    "RAY_DATA_OUTCOME",
    "RAY_DATA_PEAK_MEMORY",
    "RAY_DATA_RESTORED",
    "RAY_DATA_ROWS",
    "RAY_DATA_RUN",
    "RAY_DATA_SCHEDULING_TIME",
    "RAY_DATA_SPILLED",
    "RAY_DATA_SPLIT",
    "RAY_DATA_STAGE",
    "RAY_DATA_TASKS",
    "RAY_DATA_TASKS_FAILED",
    "RAY_DATA_TASK_INDEX",
    "RAY_DATA_TASK_RESOURCES",
    "RAY_DATA_TASK_TIME",
    "RAY_DATA_TIMELINE_QUEUED_BLOCKS",
    "RAY_DATA_TIMELINE_QUEUED_BYTES",
    "RAY_DATA_TIMELINE_ROWS",
    "RAY_DATA_TIMELINE_RUNNING_TASKS",
    "RAY_DATA_TIMELINE_SECONDS",
    "RAY_DATA_UDF_TIME",
    "RAY_DATA_USER_TIME",
    "RAY_DATA_WAIT_TIME",
    "RAY_DATA_WAIT_TIME_BATCHING",
    "RAY_DATA_WAIT_TIME_COLLATE",
    "RAY_DATA_WAIT_TIME_FINALIZE",
    "RAY_DATA_WAIT_TIME_FORMAT",
    "RAY_DATA_WAIT_TIME_PRODUCTION",
    "RAY_DATA_WAIT_TIME_TRANSFER",
    "RAY_DRIVER_WAITED",
    "RAY_END_ESTIMATED",
    "RAY_ENTRYPOINT",
    "RAY_FUNCTION",
    "RAY_FUNCTION_SIZE",
    "RAY_GENERATOR_ITEMS",
    "RAY_JOB_ID",
    "RAY_JOB_STATUS",
    "RAY_LEFT_OUT",
    "RAY_LIBRARIES",
    "RAY_MAX_CONCURRENCY",
    "RAY_MEMORY_DEVICE_PEAK",
    "RAY_MEMORY_PEAK",
    "RAY_NAME",
    "RAY_NAMESPACE",
    "RAY_NEVER_ENDED",
    "RAY_NODE_ID",
    "RAY_NUM_RETURNS",
    "RAY_OBJECT_COUNT",
    "RAY_OBJECT_IDS",
    "RAY_OBJECT_SIZE",
    "RAY_PARENT_TASK_ID",
    "RAY_PID",
    "RAY_PLACEMENT_GROUP_ID",
    "RAY_READY_OBJECT_COUNT",
    "RAY_READY_OBJECT_IDS",
    "RAY_REMOTE",
    "RAY_RESULT",
    "RAY_RLLIB_ALGORITHM",
    "RAY_RLLIB_ITERATION",
    "RAY_SAMPLING_REASON",
    "RAY_SERVE_APPLICATION",
    "RAY_SERVE_ATTEMPTS",
    "RAY_SERVE_BATCH_SIZE",
    "RAY_SERVE_BATCH_WAIT",
    "RAY_SERVE_CHOICE_TIME",
    "RAY_SERVE_CLOSE_CODE",
    "RAY_SERVE_DEPLOYMENT",
    "RAY_SERVE_FIRST_CHUNK",
    "RAY_SERVE_LOOP_WAIT",
    "RAY_SERVE_METHOD",
    "RAY_SERVE_MULTIPLEXED_MODEL_ID",
    "RAY_SERVE_REPLICA_ID",
    "RAY_SERVE_REQUEST_ID",
    "RAY_SUBMISSION_ID",
    "RAY_SUBMIT_TIME",
    "RAY_TASK_ID",
    "RAY_TIMEOUT",
    "RAY_TRAIN_ATTEMPT",
    "RAY_TRAIN_BARRIER_TIME",
    "RAY_TRAIN_CHECKPOINT",
    "RAY_TRAIN_DECISION",
    "RAY_TRAIN_FAILED_RANKS",
    "RAY_TRAIN_HANDOVER_TIME",
    "RAY_TRAIN_LOCAL_RANK",
    "RAY_TRAIN_METRICS",
    "RAY_TRAIN_NODE_RANK",
    "RAY_TRAIN_NUM_WORKERS",
    "RAY_TRAIN_RUNNING_TIME",
    "RAY_TRAIN_RUN_ID",
    "RAY_TRAIN_RUN_NAME",
    "RAY_TRAIN_SCHEDULING_TIME",
    "RAY_TRAIN_STATE",
    "RAY_TRAIN_STEP",
    "RAY_TRAIN_TRAINER",
    "RAY_TRAIN_WORLD_RANK",
    "RAY_TRAIN_WORLD_SIZE",
    "RAY_TUNE_CHECKPOINT",
    "RAY_TUNE_CLONED",
    "RAY_TUNE_CONFIG",
    "RAY_TUNE_EXPERIMENT",
    "RAY_TUNE_FAILURES",
    "RAY_TUNE_ITERATIONS",
    "RAY_TUNE_METRIC",
    "RAY_TUNE_METRIC_VALUE",
    "RAY_TUNE_PENDING_TIME",
    "RAY_TUNE_SCHEDULER",
    "RAY_TUNE_SEARCHER",
    "RAY_TUNE_STOPPED_BY",
    "RAY_TUNE_TRAINABLE",
    "RAY_TUNE_TRIALS",
    "RAY_TUNE_TRIALS_FAILED",
    "RAY_TUNE_TRIAL_ID",
    "RAY_TUNE_TRIAL_STATUS",
    "RAY_WORKER_ID",
    "RESOURCE_CREATION_TIME",
    "RESOURCE_GCS_ADDRESS",
    "RESOURCE_NODE_ID",
    "RESOURCE_PARTS",
    "RESOURCE_PROCESSORS",
    "RESOURCE_PROCESS_TYPE",
    "RESOURCE_RAY_VERSION",
    "RESOURCE_SESSION_NAME",
    "RESOURCE_WORKER_ID",
    "RESOURCE_WORKER_READY",
    "RLLIB",
    "RPC_GRPC_STATUS",
    "RPC_METHOD",
    "RPC_SERVICE",
    "RPC_SYSTEM",
    "SCOPE",
    "SERVE_BATCH",
    "SERVE_CALL",
    "SERVE_CHOICE",
    "SERVE_MULTIPLEXED",
    "SERVE_REPLICA",
    "SERVE_ROUTE",
    "SKYWALKING_CALLER",
    "SKYWALKING_PARENT",
    "SKYWALKING_PEER",
    "SPOOL_BYTES",
    "SPOOL_LIMIT",
    "SPOOL_WRITERS",
    "SUBMISSION_DURATION",
    "TASK_CANCELLED",
    "THREAD_ID",
    "THREAD_NAME",
    "TRACING_ADDRESS",
    "TRACING_EXPORTER",
    "TRACING_SIGNAL",
    "TRAIN_ATTEMPT",
    "TRAIN_CHANGED",
    "TRAIN_COLLECTIVES",
    "TRAIN_FAILURE",
    "TRAIN_REPORT",
    "TRAIN_RESIZE",
    "TRAIN_RUN",
    "TRAIN_TRANSFER",
    "TRAIN_WORKER",
    "TUNE_CHANGED",
    "TUNE_CHECKPOINTED",
    "TUNE_EXPERIMENT",
    "TUNE_EXPLOIT",
    "TUNE_FAILURE",
    "TUNE_RESTORED",
    "TUNE_TRIAL",
    "URL_PATH",
    "URL_QUERY",
    "URL_SCHEME",
    "WORKER_DIED",
    "driver_name",
    "execution_name",
    "run_name",
    "submission_name",
]

JOB = "ray.job"
"""The name of the span of a submitted job."""

AWAIT = "ray.await"
"""The name of the span of ``await ref``."""

FUTURE = "ray.future"
"""The name of the span of ``ref.future()``, which takes no time: when the program waits for the future is not known."""

SCOPE = "ray_tracing_hooks"
"""Instrumentation scope of the spans and metrics that this package makes."""

RAY_REMOTE = "ray.remote"
RAY_FUNCTION = "ray.function"
RAY_FUNCTION_SIZE = "ray.function_size"
RAY_ACTOR_CLASS = "ray.actor_class"
RAY_ACTOR_METHOD = "ray.actor_method"
RAY_PID = "ray.pid"
RAY_JOB_ID = "ray.job_id"
RAY_NODE_ID = "ray.node_id"
RAY_WORKER_ID = "ray.worker_id"
RAY_ACTOR_ID = "ray.actor_id"
RAY_TASK_ID = "ray.task_id"
RAY_PARENT_TASK_ID = "ray.parent_task_id"
RAY_SUBMIT_TIME = "ray.submit_time_unix_nano"
RAY_ATTEMPT = "ray.attempt"
RAY_ARGUMENT_IDS = "ray.arg_object_ids"
RAY_ARGUMENT_COUNT = "ray.arg_object_count"
RAY_ARGUMENTS = "ray.arguments"
RAY_RESULT = "ray.result"
RAY_GENERATOR_ITEMS = "ray.generator_items"
RAY_OBJECT_IDS = "ray.object_ids"
RAY_OBJECT_COUNT = "ray.object_count"
RAY_OBJECT_SIZE = "ray.object_size"
RAY_READY_OBJECT_IDS = "ray.ready_object_ids"
RAY_READY_OBJECT_COUNT = "ray.ready_object_count"
RAY_NUM_RETURNS = "ray.num_returns"
RAY_TIMEOUT = "ray.timeout"
RAY_DRIVER_WAITED = "ray.driver_waited"
RAY_CANCELLED = "ray.cancelled"
RAY_NAME = "ray.name"
RAY_ACTOR_NAME = "ray.actor_name"
RAY_ASYNCIO = "ray.asyncio"
RAY_MAX_CONCURRENCY = "ray.max_concurrency"
RAY_CONCURRENCY_GROUP = "ray.concurrency_group"
RAY_PLACEMENT_GROUP_ID = "ray.placement_group_id"
RAY_ASSIGNED_RESOURCES = "ray.assigned_resources"
RAY_ACCELERATOR_IDS = "ray.accelerator_ids"
RAY_ENTRYPOINT = "ray.entrypoint"
RAY_NAMESPACE = "ray.namespace"
RAY_SUBMISSION_ID = "ray.submission_id"
RAY_JOB_STATUS = "ray.job_status"
RAY_END_ESTIMATED = "ray.end_estimated"
RAY_NEVER_ENDED = "ray.never_ended"
RAY_AFTER_END = "ray.after_end"
RAY_LEFT_OUT = "ray.left_out"
RAY_LIBRARIES = "ray.libraries"
RAY_SAMPLING_REASON = "ray.sampling.reason"
RAY_SERVE_APPLICATION = "ray.serve.application"
RAY_SERVE_DEPLOYMENT = "ray.serve.deployment"
RAY_SERVE_METHOD = "ray.serve.method"
RAY_SERVE_REPLICA_ID = "ray.serve.replica_id"
RAY_SERVE_REQUEST_ID = "ray.serve.request_id"
RAY_SERVE_MULTIPLEXED_MODEL_ID = "ray.serve.multiplexed_model_id"
RAY_SERVE_ATTEMPTS = "ray.serve.attempts"
RAY_SERVE_CHOICE_TIME = "ray.serve.choice_time"
RAY_SERVE_LOOP_WAIT = "ray.serve.event_loop.wait_time"
RAY_SERVE_BATCH_SIZE = "ray.serve.batch.size"
RAY_SERVE_BATCH_WAIT = "ray.serve.batch.wait_time"
RAY_SERVE_CLOSE_CODE = "ray.serve.close_code"
RAY_SERVE_FIRST_CHUNK = "ray.serve.time_to_first_chunk"
RAY_DATA_ACTORS = "ray.data.actors"
RAY_DATA_BACKPRESSURE_BY = "ray.data.backpressure.by"
RAY_DATA_BACKPRESSURE_BY_TIME = "ray.data.backpressure.by_time"
RAY_DATA_BACKPRESSURE_DURATION = "ray.data.backpressure.duration"
RAY_DATA_BACKPRESSURE_KIND = "ray.data.backpressure.kind"
RAY_DATA_BACKPRESSURE_OUTPUT = "ray.data.backpressure.output_time"
RAY_DATA_BACKPRESSURE_POLICY = "ray.data.backpressure.policy"
RAY_DATA_BACKPRESSURE_RESOURCE = "ray.data.backpressure.resource"
RAY_DATA_BACKPRESSURE_SUBMISSION = "ray.data.backpressure.submission_time"
RAY_DATA_BATCHES = "ray.data.batches"
RAY_DATA_BLOCKS = "ray.data.blocks"
RAY_DATA_BLOCK_TIME = "ray.data.block_time"
RAY_DATA_BYTES = "ray.data.bytes"
RAY_DATA_CONSUMER = "ray.data.consumer"
RAY_DATA_CPU_TIME = "ray.data.cpu_time"
RAY_DATA_DATASET_ID = "ray.data.dataset_id"
RAY_DATA_EPOCH = "ray.data.epoch"
RAY_DATA_FIRST_BATCH_TIME = "ray.data.first_batch_time"
RAY_DATA_GRAPH = "ray.data.graph"
RAY_DATA_INPUTS = "ray.data.inputs"
RAY_DATA_INPUT_BLOCKS = "ray.data.input_blocks"
RAY_DATA_INPUT_BYTES = "ray.data.input_bytes"
RAY_DATA_INPUT_ROWS = "ray.data.input_rows"
RAY_DATA_LIMITS = "ray.data.limits"
RAY_DATA_MAX_CONCURRENCY = "ray.data.max_concurrency"
RAY_DATA_OPERATOR = "ray.data.operator"
RAY_DATA_OPERATOR_ID = "ray.data.operator_id"
RAY_DATA_OPERATOR_TYPE = "ray.data.operator_type"
RAY_DATA_OUTCOME = "ray.data.outcome"
RAY_DATA_PEAK_MEMORY = "ray.data.peak_memory"
RAY_DATA_RESTORED = "ray.data.restored_bytes"
RAY_DATA_ROWS = "ray.data.rows"
RAY_DATA_RUN = "ray.data.run"
RAY_DATA_SCHEDULING_TIME = "ray.data.scheduling_time"
RAY_DATA_SPILLED = "ray.data.spilled_bytes"
RAY_DATA_SPLIT = "ray.data.split"
RAY_DATA_STAGE = "ray.data.stage"
RAY_DATA_TASKS = "ray.data.tasks"
RAY_DATA_TASKS_FAILED = "ray.data.tasks_failed"
RAY_DATA_TASK_INDEX = "ray.data.task_index"
RAY_DATA_TASK_RESOURCES = "ray.data.task_resources"
RAY_DATA_TASK_TIME = "ray.data.task_time"
RAY_DATA_TIMELINE_QUEUED_BLOCKS = "ray.data.timeline.queued_blocks"
RAY_DATA_TIMELINE_QUEUED_BYTES = "ray.data.timeline.queued_bytes"
RAY_DATA_TIMELINE_ROWS = "ray.data.timeline.rows"
RAY_DATA_TIMELINE_RUNNING_TASKS = "ray.data.timeline.running_tasks"
RAY_DATA_TIMELINE_SECONDS = "ray.data.timeline.seconds"
RAY_DATA_UDF_TIME = "ray.data.udf_time"
RAY_DATA_USER_TIME = "ray.data.user_time"
RAY_DATA_WAIT_TIME = "ray.data.wait_time"
RAY_DATA_WAIT_TIME_BATCHING = "ray.data.wait_time.batching"
RAY_DATA_WAIT_TIME_COLLATE = "ray.data.wait_time.collate"
RAY_DATA_WAIT_TIME_FINALIZE = "ray.data.wait_time.finalize"
RAY_DATA_WAIT_TIME_FORMAT = "ray.data.wait_time.format"
RAY_DATA_WAIT_TIME_PRODUCTION = "ray.data.wait_time.production"
RAY_DATA_WAIT_TIME_TRANSFER = "ray.data.wait_time.transfer"

SERVE_CALL = "serve.remote"
SERVE_CHOICE = "serve.choose_replica"
SERVE_ROUTE = "serve.route"
SERVE_REPLICA = "serve.replica"
SERVE_BATCH = "serve.batch"
SERVE_MULTIPLEXED = "serve.multiplexed"
"""The suffixes of the names of Ray Serve's spans, after ``Deployment.method``: a call, the choice of a replica for a
call, the same for a request that HAProxy has received, a request in the replica, a batch of requests, and the loading
of a model."""

DATASET = "ray.data"
DATA_OPERATOR = "ray.data.operator"
DATA_ITERATION = "ray.data.iteration"
"""The suffixes of the names of Ray Data's spans: of an execution after the name of the dataset, of an operator after
its name, and of an iteration after the method that iterates."""

DATA_BACKPRESSURE = "ray.data.backpressure"
"""The event on an operator for each time that backpressure held it back."""
RAY_MEMORY_PEAK = "ray.memory.peak"
RAY_MEMORY_DEVICE_PEAK = "ray.memory.device_peak"
RAY_ACCELERATOR_ID = "ray.accelerator_id"
HW_ID = "hw.id"
HW_NAME = "hw.name"
HW_VENDOR = "hw.vendor"
RAY_TRAIN_RUN_ID = "ray.train.run_id"
RAY_TRAIN_RUN_NAME = "ray.train.run_name"
RAY_TRAIN_TRAINER = "ray.train.trainer"
RAY_TRAIN_ATTEMPT = "ray.train.attempt_number"
RAY_TRAIN_NUM_WORKERS = "ray.train.num_workers"
RAY_TRAIN_SCHEDULING_TIME = "ray.train.scheduling_time"
RAY_TRAIN_RUNNING_TIME = "ray.train.running_time"
RAY_TRAIN_FAILED_RANKS = "ray.train.failed_ranks"
RAY_TRAIN_WORLD_RANK = "ray.train.world_rank"
RAY_TRAIN_WORLD_SIZE = "ray.train.world_size"
RAY_TRAIN_LOCAL_RANK = "ray.train.local_rank"
RAY_TRAIN_NODE_RANK = "ray.train.node_rank"
RAY_TRAIN_STEP = "ray.train.step"
RAY_TRAIN_BARRIER_TIME = "ray.train.barrier_time"
RAY_TRAIN_HANDOVER_TIME = "ray.train.handover_time"
RAY_TRAIN_CHECKPOINT = "ray.train.checkpoint"
RAY_TRAIN_METRICS = "ray.train.metrics"
RAY_TRAIN_STATE = "ray.train.state"
RAY_TRAIN_DECISION = "ray.train.decision"
RAY_TUNE_EXPERIMENT = "ray.tune.experiment"
RAY_TUNE_SCHEDULER = "ray.tune.scheduler"
RAY_TUNE_SEARCHER = "ray.tune.searcher"
RAY_TUNE_METRIC = "ray.tune.metric"
RAY_TUNE_TRIALS = "ray.tune.trials"
RAY_TUNE_TRIALS_FAILED = "ray.tune.trials_failed"
RAY_TUNE_TRIAL_ID = "ray.tune.trial_id"
RAY_TUNE_TRIAL_STATUS = "ray.tune.trial_status"
RAY_TUNE_TRAINABLE = "ray.tune.trainable"
RAY_TUNE_CONFIG = "ray.tune.config"
RAY_TUNE_ITERATIONS = "ray.tune.iterations"
RAY_TUNE_METRIC_VALUE = "ray.tune.metric_value"
RAY_TUNE_STOPPED_BY = "ray.tune.stopped_by"
RAY_TUNE_FAILURES = "ray.tune.failures"
RAY_TUNE_PENDING_TIME = "ray.tune.pending_time"
RAY_TUNE_CHECKPOINT = "ray.tune.checkpoint"
RAY_TUNE_CLONED = "ray.tune.cloned_trial_id"
RAY_RLLIB_ALGORITHM = "ray.rllib.algorithm"
RAY_RLLIB_ITERATION = "ray.rllib.iteration"

TRAIN_RUN = "ray.train"
TRAIN_ATTEMPT = "ray.train.attempt"
TRAIN_WORKER = "ray.train.worker"
TRAIN_REPORT = "ray.train.report"
TRAIN_TRANSFER = "ray.train.checkpoint_transfer"
"""The spans of Ray Train: a run, an attempt of it, and the training loop of a rank, which have the name of the run
before these words; a report of a rank, and the transfer of its checkpoint.
"""

TRAIN_COLLECTIVES = "ray.train.collective."
"""How the names of the spans of Ray Train's own collective functions begin."""

TRAIN_CHANGED = "ray.train.state"
TRAIN_FAILURE = "ray.train.failure_decision"
TRAIN_RESIZE = "ray.train.resize_decision"
"""The events of an attempt: another state, and a decision after a failure or about the number of workers."""

TUNE_EXPERIMENT = "ray.tune"
TUNE_TRIAL = "ray.tune.trial"
"""The spans of Ray Tune, with the name of the experiment before these words."""

TUNE_CHANGED = "ray.tune.status"
TUNE_FAILURE = "ray.tune.failure"
TUNE_CHECKPOINTED = "ray.tune.checkpoint"
TUNE_RESTORED = "ray.tune.restore"
TUNE_EXPLOIT = "ray.tune.exploit"
"""The events of a trial: another status, a failure, a checkpoint that was made or loaded, and a trial that was
cloned.
"""

RLLIB = "ray.rllib"
"""The span of an iteration of an algorithm of RLlib, and with the name of a phase, that of a phase of it."""

HTTP_METHOD = "http.request.method"
HTTP_METHOD_ORIGINAL = "http.request.method_original"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"
URL_QUERY = "url.query"
URL_SCHEME = "url.scheme"
CLIENT_ADDRESS = "client.address"
NETWORK_PROTOCOL_VERSION = "network.protocol.version"
RPC_SYSTEM = "rpc.system"
RPC_SERVICE = "rpc.service"
RPC_METHOD = "rpc.method"
RPC_GRPC_STATUS = "rpc.grpc.status_code"

ACTOR_RESTARTED = "ray.actor.restarted"
"""The event on the creation of an actor that Ray has restarted, with ``ray.attempt``."""

ERROR_TYPE = "error.type"
EXIT_CODE = "process.exit.code"
JOB_FAILED = "job_failed"
"""The ``error.type`` of a submitted job whose program ended with an exit code other than 0, or could not be started."""
ERROR_OTHER = "_OTHER"
"""The ``error.type`` in metrics of a failed span that has none."""

WORKER_DIED = "worker_died"
DRIVER_DIED = "driver_died"
"""The ``error.type`` of a span that the end of its process interrupted; its status describes the cause."""

TASK_CANCELLED = "ray.exceptions.TaskCancelledError"
OUT_OF_MEMORY = "ray.exceptions.OutOfMemoryError"
"""The same if the cause is known to be a cancellation or Ray's memory monitor: the exception that the caller gets."""

EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

OTEL_SCOPE_NAME = "otel.scope.name"

CODE_FILE_PATH = "code.file.path"
CODE_FUNCTION_NAME = "code.function.name"
CODE_LINE_NUMBER = "code.line.number"
CODE_STACKTRACE = "code.stacktrace"

THREAD_ID = "thread.id"
THREAD_NAME = "thread.name"

DISTRO_NAME = "telemetry.distro.name"
DISTRO_VERSION = "telemetry.distro.version"
RESOURCE_NODE_ID = "ray.node.id"
RESOURCE_WORKER_ID = "ray.worker.id"
RESOURCE_CREATION_TIME = "process.creation.time"
RESOURCE_WORKER_READY = "ray.worker.ready_time_unix_nano"
RESOURCE_PROCESSORS = "ray.node.processors"
RESOURCE_PROCESS_TYPE = "ray.worker.process_type"
RESOURCE_RAY_VERSION = "ray.version"
RESOURCE_SESSION_NAME = "ray.cluster.session_name"
RESOURCE_GCS_ADDRESS = "ray.cluster.gcs_address"
RESOURCE_PARTS = "ray.tracing.parts"

SKYWALKING_CALLER = "skywalking.caller"
SKYWALKING_PARENT = "skywalking.parent"
SKYWALKING_PEER = "skywalking.peer"

EXECUTION_DURATION = "ray.execution.duration"
EXECUTION_QUEUE_TIME = "ray.execution.queue_time"
EXECUTION_RETRIES = "ray.execution.retries"
SUBMISSION_DURATION = "ray.submission.duration"

DELIVERY_BYTES = "ray.tracing.delivered.size"
DELIVERY_DELIVERED = "ray.tracing.delivered"
DELIVERY_DROPPED = "ray.tracing.dropped"
DELIVERY_RECEIVED = "ray.tracing.received"
DELIVERY_REFUSED = "ray.tracing.refused"
DELIVERY_RETRIES = "ray.tracing.retries"
DELIVERY_UNWRITTEN = "ray.tracing.unwritten"
DELIVERY_WAITING = "ray.tracing.waiting"
DELIVERY_WAITING_AGE = "ray.tracing.waiting.age"
DELIVERY_WAITING_BYTES = "ray.tracing.waiting.size"
SPOOL_BYTES = "ray.tracing.spool.size"
SPOOL_LIMIT = "ray.tracing.spool.limit"
SPOOL_WRITERS = "ray.tracing.writers"
TRACING_ADDRESS = "ray.tracing.address"
TRACING_EXPORTER = "ray.tracing.exporter"
TRACING_SIGNAL = "ray.tracing.signal"
GPU_UTILIZATION = "hw.gpu.utilization"
GPU_MEMORY_USAGE = "hw.gpu.memory.usage"
GPU_MEMORY_LIMIT = "hw.gpu.memory.limit"
CPU_UTILIZATION = "system.cpu.utilization"
MEMORY_UTILIZATION = "system.memory.utilization"
"""Of a node, by OpenTelemetry's conventions for hardware and systems."""


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
    """The name of a span of Ray Train, Tune or RLlib: of the run, experiment or algorithm ``run``.

    Without the time at the end of a name that Ray has made up: there are few names of spans.
    """
    return f"{_TIME_AT_END.sub('', run)} {what}"


_TIME_AT_END = re.compile(r"[_-]\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}$")
