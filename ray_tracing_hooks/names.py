"""The names of the spans, attributes and metrics that this package writes.

The names and keys of Ray's own tracing (``ray.util.tracing``) are kept, so that dashboards made for it continue to
work. Where Ray's meaning is ambiguous, this module states ours.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "ACTOR_RESTARTED",
    "ATTRIBUTES",
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
    "DELIVERY_METRICS",
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
    "EVENT_LOG",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "EXECUTION_DURATION",
    "EXECUTION_QUEUE_TIME",
    "EXECUTION_RETRIES",
    "EXIT_CODE",
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
    "LOG_BODY",
    "LOG_SEVERITY_NUMBER",
    "LOG_SEVERITY_TEXT",
    "MEMORY_UTILIZATION",
    "MESSAGING_DESTINATION",
    "MESSAGING_MESSAGE_ID",
    "MESSAGING_OPERATION_NAME",
    "MESSAGING_OPERATION_TYPE",
    "MESSAGING_SYSTEM",
    "METRICS",
    "METRIC_OVERFLOW",
    "NETWORK_PROTOCOL_VERSION",
    "OTEL_SCOPE_NAME",
    "OUT_OF_MEMORY",
    "RAY_ACCELERATOR_ID",
    "RAY_ACCELERATOR_IDS",
    "RAY_ACTOR_CLASS",
    "RAY_ACTOR_ID",
    "RAY_ACTOR_METHOD",
    "RAY_ACTOR_NAME",
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
    "RAY_END_ESTIMATED",
    "RAY_ENTRYPOINT",
    "RAY_FUNCTION",
    "RAY_GENERATOR_ITEMS",
    "RAY_JOB_ID",
    "RAY_JOB_STATUS",
    "RAY_KEPT",
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
    "RAY_SERVE_APPLICATION",
    "RAY_SERVE_ATTEMPTS",
    "RAY_SERVE_BATCH_SIZE",
    "RAY_SERVE_BATCH_WAIT",
    "RAY_SERVE_CHOICE_TIME",
    "RAY_SERVE_CLOSE_CODE",
    "RAY_SERVE_DEPLOYMENT",
    "RAY_SERVE_FIRST_CHUNK",
    "RAY_SERVE_METHOD",
    "RAY_SERVE_MULTIPLEXED_MODEL_ID",
    "RAY_SERVE_REPLICA_ID",
    "RAY_SERVE_REQUEST_ID",
    "RAY_SERVE_TASK_NAME",
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
    "SERVE_ENQUEUE",
    "SERVE_MULTIPLEXED",
    "SERVE_REPLICA",
    "SERVE_TASK",
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
    "Attribute",
    "Metric",
    "delivery_metrics_table",
    "driver_name",
    "execution_name",
    "markdown_table",
    "metrics_table",
    "run_name",
    "submission_name",
]

JOB = "ray.job"
"""The name of the span of a submitted job."""

AWAIT = "ray.await"
"""The name of the span of ``await ref``."""

SCOPE = "ray_tracing_hooks"
"""Instrumentation scope of the spans and metrics that this package makes."""

RAY_REMOTE = "ray.remote"
RAY_FUNCTION = "ray.function"
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
RAY_LEFT_OUT = "ray.left_out"
RAY_LIBRARIES = "ray.libraries"
RAY_KEPT = "ray.kept"
RAY_SERVE_APPLICATION = "ray.serve.application"
RAY_SERVE_DEPLOYMENT = "ray.serve.deployment"
RAY_SERVE_METHOD = "ray.serve.method"
RAY_SERVE_REPLICA_ID = "ray.serve.replica_id"
RAY_SERVE_REQUEST_ID = "ray.serve.request_id"
RAY_SERVE_MULTIPLEXED_MODEL_ID = "ray.serve.multiplexed_model_id"
RAY_SERVE_ATTEMPTS = "ray.serve.attempts"
RAY_SERVE_CHOICE_TIME = "ray.serve.choice_time"
RAY_SERVE_BATCH_SIZE = "ray.serve.batch.size"
RAY_SERVE_BATCH_WAIT = "ray.serve.batch.wait_time"
RAY_SERVE_CLOSE_CODE = "ray.serve.close_code"
RAY_SERVE_FIRST_CHUNK = "ray.serve.time_to_first_chunk"
RAY_SERVE_TASK_NAME = "ray.serve.task_name"
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
SERVE_REPLICA = "serve.replica"
SERVE_BATCH = "serve.batch"
SERVE_MULTIPLEXED = "serve.multiplexed"
SERVE_TASK = "serve.task"
"""The suffixes of the names of Ray Serve's spans, after ``Deployment.method``: a call, the choice of a replica for a
call, a request in the replica, a batch of requests, the loading of a model, and a task that is taken from a queue."""

SERVE_ENQUEUE = "serve.enqueue"
"""The suffix for a task that is put into a queue, after the name of the task."""

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
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_DESTINATION = "messaging.destination.name"
MESSAGING_OPERATION_NAME = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_MESSAGE_ID = "messaging.message.id"

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

EVENT_LOG = "log"
"""The name of the event made from a log record, which has the ``log.*`` attributes, ``code.*`` and ``exception.*``."""

LOG_SEVERITY_NUMBER = "log.severity_number"
LOG_SEVERITY_TEXT = "log.severity_text"
LOG_BODY = "log.body"
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

METRIC_OVERFLOW = "otel.metric.overflow"
"""Marks the series for everything beyond a metric's cardinality limit, as OpenTelemetry specifies."""

_CALL, _EXECUTION, _RESOURCE = "calls", "executions", "Resource"
_WAITING = "`ray.get`, `ray.await`, `ray.wait`, `ray.put`"

_OF_ACTORS = "executions of actors"
_REQUEST = "requests to Serve"
_OF_DEPLOYMENTS = "calls of deployments, requests in replicas"
_LOG = f"events `{EVENT_LOG}`"
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
    Attribute(RAY_REMOTE, "string", _CALL, "`function` for tasks, `actor` for actor creations and methods"),
    Attribute(RAY_FUNCTION, "string", _CALL, "`module.function` of a task, `Class.method` of an actor"),
    Attribute(RAY_ACTOR_CLASS, "string", _CALL, "the class of an actor"),
    Attribute(RAY_ACTOR_METHOD, "string", _CALL, "its method; `__init__` for the creation"),
    Attribute(RAY_ACTOR_ID, "string", _CALL, "the actor that is called or created, in hexadecimal like all ids of Ray"),
    Attribute(RAY_TASK_ID, "string", "calls, drivers", "the task that the call creates; for a driver, its own"),
    Attribute(
        RAY_PARENT_TASK_ID,
        "string",
        "calls, waiting",
        "the task that made the call, or the driver; absent on the execution of most calls made by tasks, which carry "
        "no context: see the submission",
    ),
    Attribute(RAY_JOB_ID, "string", "all spans of this package", "the job of the process"),
    Attribute(RAY_NODE_ID, "string", "all spans of this package", "the node of the process that recorded the span"),
    Attribute(RAY_WORKER_ID, "string", "all spans of this package", "the worker that recorded the span"),
    Attribute(RAY_PID, "string", "all spans of this package", "the process that recorded the span"),
    Attribute(
        RAY_SUBMIT_TIME,
        "int",
        _EXECUTION,
        "when the call was submitted, by the clock of the caller's node, in nanoseconds since the epoch; absent on "
        "most calls, which carry no context: see the start of the submission",
    ),
    Attribute(
        RAY_ATTEMPT, "int", "executions, tasks of Serve", "the number of the retry, or of the actor's restart, from 1"
    ),
    Attribute(
        RAY_ARGUMENT_IDS,
        "string[]",
        "submissions",
        "the first 64 objects among the arguments, which the task waits for before it begins; the id of a result "
        "begins with that of its task",
    ),
    Attribute(RAY_ARGUMENT_COUNT, "int", "submissions", "how many objects are among the arguments, if any"),
    Attribute(
        RAY_ARGUMENTS, "string", _EXECUTION, "the arguments as a short text, where `RAY_TRACING_ARGUMENTS` is on"
    ),
    Attribute(RAY_RESULT, "string", _EXECUTION, "the result, likewise; not of generators"),
    Attribute(RAY_GENERATOR_ITEMS, "int", _EXECUTION, "how many items a generator yielded"),
    Attribute(
        RAY_OBJECT_IDS,
        "string[]",
        _WAITING,
        "the first 64 objects that are waited for, or the one that is stored; a result's id begins with its task's",
    ),
    Attribute(RAY_OBJECT_COUNT, "int", "`ray.get`, `ray.await`, `ray.wait`", "how many objects are waited for"),
    Attribute(
        RAY_OBJECT_SIZE, "int", "`ray.get`, `ray.put`", "bytes of the serialized objects that were fetched or stored"
    ),
    Attribute(RAY_TIMEOUT, "double", "`ray.get`, `ray.wait`", "the timeout in seconds, if any"),
    Attribute(
        RAY_CANCELLED,
        "boolean",
        "`ray.await`",
        "true: the wait was abandoned, because of an asyncio time-out, a cancelled task, or the end of the program",
    ),
    Attribute(RAY_NUM_RETURNS, "int", "`ray.wait`", "how many objects had to be ready"),
    Attribute(RAY_READY_OBJECT_IDS, "string[]", "`ray.wait`", "the first 64 objects that were ready"),
    Attribute(
        RAY_READY_OBJECT_COUNT,
        "int",
        "`ray.wait`",
        "how many objects were ready; if fewer than `ray.num_returns`, the wait timed out",
    ),
    Attribute(
        ERROR_TYPE,
        "string",
        "failed spans",
        "the class of the exception, not of Ray's wrapper around it; of an interrupted span `worker_died` or "
        "`driver_died`, or `ray.exceptions.OutOfMemoryError` or `ray.exceptions.TaskCancelledError` if that is the "
        "known cause; of a failed job `job_failed`; of a request without an exception its status, such as `503`",
    ),
    Attribute(
        RAY_NEVER_ENDED,
        "boolean",
        "spans without an end",
        "true: the program did not end it, or a full disk may not have taken its end; it ends with its process, and "
        "this is not an error",
    ),
    Attribute(RAY_END_ESTIMATED, "boolean", "interrupted spans", "true: its process died, and the end is estimated"),
    Attribute(
        RAY_LEFT_OUT,
        "int",
        "calls, drivers",
        "calls that made no spans because of `RAY_TRACING_RATE_LIMIT`: on a submission, those of the same function by "
        "the same caller since the last span that counted them; on an execution or a driver, the rest of its own calls",
    ),
    Attribute(
        RAY_KEPT,
        "string",
        "all spans of an unsampled trace that was kept",
        "why tail sampling kept it: `error` or `slow`. Such spans are no random sample: do not extrapolate from them",
    ),
    Attribute(RAY_NAME, "string", _CALL, "the name that `.options(name=...)` gave the call, or the created actor"),
    Attribute(RAY_ACTOR_NAME, "string", "executions of actors, creations", "the name of the actor, if it has one"),
    Attribute(RAY_ASYNCIO, "boolean", _OF_ACTORS, "true: the actor is async, and its methods share one event loop"),
    Attribute(RAY_MAX_CONCURRENCY, "int", _OF_ACTORS, "how many of its methods may run concurrently, if more than one"),
    Attribute(
        RAY_CONCURRENCY_GROUP,
        "string",
        f"{_OF_ACTORS}, submissions",
        "the concurrency group that the method declares; on the submission the one that `.options()` gave this call",
    ),
    Attribute(RAY_PLACEMENT_GROUP_ID, "string", _EXECUTION, "its placement group, if any"),
    Attribute(RAY_ASSIGNED_RESOURCES, "string", _EXECUTION, 'its resources, as JSON such as `{"CPU": 1.0}`, if any'),
    Attribute(RAY_ACCELERATOR_IDS, "string[]", _EXECUTION, "its accelerators, such as `GPU:0`, if any"),
    Attribute(RAY_ENTRYPOINT, "string", "drivers", "the program, without its arguments"),
    Attribute(RAY_NAMESPACE, "string", "drivers", "the namespace of its named actors"),
    Attribute(
        RAY_LIBRARIES,
        "string[]",
        "drivers",
        "the libraries of Ray that the program had imported when it ended: `data`, `train`, `tune`, `rllib`, `serve`",
    ),
    Attribute(
        RAY_SUBMISSION_ID, "string", "drivers, submitted jobs", "the id of a job that was submitted to the Jobs API"
    ),
    Attribute(RAY_JOB_STATUS, "string", "submitted jobs", "`SUCCEEDED`, `FAILED` or `STOPPED`"),
    Attribute(
        EXIT_CODE,
        "int",
        "submitted jobs, drivers",
        "the exit code of the job's program, if it ended by itself; of a driver if an uncaught exception decides it",
    ),
    Attribute(RAY_SERVE_APPLICATION, "string", _REQUEST, "the application of Ray Serve"),
    Attribute(RAY_SERVE_DEPLOYMENT, "string", _OF_DEPLOYMENTS, "the deployment that is called"),
    Attribute(RAY_SERVE_METHOD, "string", _OF_DEPLOYMENTS, "its method: `__call__` for HTTP requests"),
    Attribute(RAY_SERVE_REPLICA_ID, "string", "requests in replicas", "Serve's id of the replica"),
    Attribute(RAY_SERVE_REQUEST_ID, "string", _REQUEST, "Serve's id of the request, as in `x-request-id`"),
    Attribute(RAY_SERVE_MULTIPLEXED_MODEL_ID, "string", _OF_DEPLOYMENTS, "the model that the request asks for, if any"),
    Attribute(RAY_SERVE_ATTEMPTS, "int", "calls of deployments", "how many replicas were tried, if more than one"),
    Attribute(
        RAY_SERVE_CHOICE_TIME,
        "double",
        "calls of deployments",
        "seconds until a replica was chosen, including the wait for a free one, if a millisecond or more",
    ),
    Attribute(RAY_SERVE_BATCH_SIZE, "int", "batches, links to them", "how many requests are in the batch"),
    Attribute(
        RAY_SERVE_BATCH_WAIT,
        "double",
        "batches, links from and to them",
        "seconds that the request waited for the batch to start; on a batch, the longest such wait",
    ),
    Attribute(
        RAY_SERVE_CLOSE_CODE,
        "int",
        "requests from clients",
        "the close code of a WebSocket connection: 1000 is a normal closure",
    ),
    Attribute(
        RAY_SERVE_FIRST_CHUNK,
        "double",
        "requests from clients",
        "seconds until the first part of a response that came in several",
    ),
    Attribute(RAY_SERVE_TASK_NAME, "string", "tasks of Serve, enqueued and run", "the name of the task"),
    Attribute(RAY_DATA_DATASET_ID, "string", _DATASETS, "Ray Data's id of the execution, as in its logs and dashboard"),
    Attribute(RAY_DATA_RUN, "int", "executions of datasets", "which execution of the dataset it is, from 0"),
    Attribute(
        RAY_DATA_CONSUMER,
        "string",
        _DATASETS,
        "the method of Ray Data that asked for it, such as `materialize`, `iter_batches` or `write_parquet`",
    ),
    Attribute(
        RAY_DATA_OUTCOME,
        "string",
        "executions of datasets, iterations",
        "`finished`; `stopped` if the consumer stopped early; `failed`; `cancelled`; `abandoned` if the program ended "
        "or disconnected from Ray without ending it",
    ),
    Attribute(RAY_DATA_GRAPH, "string", "executions of datasets", "the operators as Ray Data shows them"),
    Attribute(
        RAY_DATA_LIMITS,
        "string",
        "executions of datasets",
        "what all its tasks together may use, such as CPUs and bytes of object store memory, as JSON",
    ),
    Attribute(
        RAY_DATA_SPILLED,
        "int",
        "executions of datasets, operators",
        "bytes that were spilled to disk, if any: by the whole cluster during the execution; of the operator's input",
    ),
    Attribute(RAY_DATA_RESTORED, "int", "executions of datasets", "bytes that it restored from disk meanwhile, if any"),
    Attribute(RAY_DATA_OPERATOR, "string", "operators, their tasks", "the name of the operator, as in `stats()`"),
    Attribute(
        RAY_DATA_OPERATOR_ID,
        "string",
        "operators",
        "its name and its position in the execution, as in Ray's dashboard and metrics",
    ),
    Attribute(RAY_DATA_OPERATOR_TYPE, "string", "operators", "its class in Ray Data, such as `ActorPoolMapOperator`"),
    Attribute(
        RAY_DATA_INPUTS, "string[]", "operators", "the operators that its input comes from; links lead to their spans"
    ),
    Attribute(
        RAY_DATA_ROWS,
        "int",
        "executions of datasets, operators, their tasks, iterations",
        "rows of the output; of an operator those that it handed on, as in `stats()`",
    ),
    Attribute(RAY_DATA_BYTES, "int", "executions of datasets, operators, their tasks", "bytes of the output"),
    Attribute(RAY_DATA_BLOCKS, "int", "executions of datasets, operators, their tasks", "blocks of the output"),
    Attribute(RAY_DATA_INPUT_ROWS, "int", "operators", "rows of the input"),
    Attribute(RAY_DATA_INPUT_BYTES, "int", "operators", "bytes of the input"),
    Attribute(RAY_DATA_INPUT_BLOCKS, "int", "operators", "blocks, or bundles of blocks, of the input"),
    Attribute(RAY_DATA_TASKS, "int", "operators", "tasks that it submitted, also those without a span"),
    Attribute(RAY_DATA_TASKS_FAILED, "int", "operators", "tasks that failed, if any"),
    Attribute(
        RAY_DATA_SCHEDULING_TIME,
        "double",
        "operators",
        "seconds from the submission of each task until it began, added up, as measured by Ray Data",
    ),
    Attribute(
        RAY_DATA_TASK_TIME, "double", "operators", "seconds that its tasks ran, added up, as the workers measure"
    ),
    Attribute(
        RAY_DATA_BLOCK_TIME,
        "double",
        "operators",
        "seconds in which its tasks made blocks, added up, without those in which they waited until one was read",
    ),
    Attribute(
        RAY_DATA_UDF_TIME,
        "double",
        "operators",
        "seconds in the functions that transform the blocks, added up, if Ray Data measures that",
    ),
    Attribute(RAY_DATA_MAX_CONCURRENCY, "int", "operators", "how many of its tasks may run at a time, if limited"),
    Attribute(RAY_DATA_TASK_RESOURCES, "string", "operators", "what each task, or actor, requires, as JSON"),
    Attribute(RAY_DATA_ACTORS, "int", "operators", "actors that it started, if any"),
    Attribute(
        RAY_DATA_BACKPRESSURE_SUBMISSION,
        "double",
        "operators",
        "seconds in which a backpressure policy let it submit no task, even if it had none to submit",
    ),
    Attribute(
        RAY_DATA_BACKPRESSURE_OUTPUT,
        "double",
        "operators",
        "seconds in which a backpressure policy let no output be read from its tasks",
    ),
    Attribute(
        RAY_DATA_BACKPRESSURE_BY,
        "string[]",
        "operators",
        "what held it back, as kind, policy and resource; only times in which it had something to submit or to hand on",
    ),
    Attribute(RAY_DATA_BACKPRESSURE_BY_TIME, "double[]", "operators", "for how many seconds each of these did"),
    Attribute(
        RAY_DATA_BACKPRESSURE_KIND,
        "string",
        f"events `{DATA_BACKPRESSURE}`",
        "`submission` if it could not submit tasks, `output` if the output of its tasks was not read",
    ),
    Attribute(RAY_DATA_BACKPRESSURE_POLICY, "string", f"events `{DATA_BACKPRESSURE}`", "Ray Data's policy"),
    Attribute(
        RAY_DATA_BACKPRESSURE_RESOURCE,
        "string",
        f"events `{DATA_BACKPRESSURE}`",
        "what was missing, such as `CPU` or `CPU and object store memory`, if known",
    ),
    Attribute(RAY_DATA_BACKPRESSURE_DURATION, "double", f"events `{DATA_BACKPRESSURE}`", "for how many seconds"),
    Attribute(
        RAY_DATA_TIMELINE_SECONDS,
        "double[]",
        "operators",
        "when the queues were looked at, in seconds since the execution began; the other lists are for these moments",
    ),
    Attribute(RAY_DATA_TIMELINE_QUEUED_BLOCKS, "int[]", "operators", "blocks that waited for the operator"),
    Attribute(RAY_DATA_TIMELINE_QUEUED_BYTES, "int[]", "operators", "bytes that waited for it"),
    Attribute(RAY_DATA_TIMELINE_RUNNING_TASKS, "int[]", "operators", "its tasks that were submitted and had not ended"),
    Attribute(RAY_DATA_TIMELINE_ROWS, "int[]", "operators", "rows that it had handed on by then"),
    Attribute(RAY_DATA_TASK_INDEX, "int", "tasks of operators", "Ray Data's number of the task in its operator"),
    Attribute(
        RAY_DATA_STAGE, "string", "tasks of operators", "which step of an operator with several, as `map` or `reduce`"
    ),
    Attribute(RAY_DATA_CPU_TIME, "double", "tasks of operators", "seconds of processor time for its blocks"),
    Attribute(RAY_DATA_PEAK_MEMORY, "int", "tasks of operators", "the most bytes of heap memory, if measured"),
    Attribute(RAY_DATA_SPLIT, "int", "iterations", "which split of `streaming_split` it reads"),
    Attribute(RAY_DATA_EPOCH, "int", "iterations", "which execution of such a dataset it reads, from 0"),
    Attribute(RAY_DATA_BATCHES, "int", "iterations", "batches that the program got"),
    Attribute(RAY_DATA_WAIT_TIME, "double", "iterations", "seconds that the program waited for batches"),
    Attribute(RAY_DATA_FIRST_BATCH_TIME, "double", "iterations", "seconds until it got the first batch"),
    Attribute(RAY_DATA_USER_TIME, "double", "iterations", "seconds between getting a batch and asking for the next"),
    Attribute(
        RAY_DATA_WAIT_TIME_PRODUCTION,
        "double",
        "iterations",
        "seconds of the wait in which the blocks were not produced yet, as measured by Ray Data; the parts may overlap",
    ),
    Attribute(RAY_DATA_WAIT_TIME_TRANSFER, "double", "iterations", "in which blocks were fetched, likewise"),
    Attribute(RAY_DATA_WAIT_TIME_BATCHING, "double", "iterations", "in which batches were cut out of blocks"),
    Attribute(RAY_DATA_WAIT_TIME_FORMAT, "double", "iterations", "in which batches were converted"),
    Attribute(RAY_DATA_WAIT_TIME_COLLATE, "double", "iterations", "in which the collate function ran"),
    Attribute(RAY_DATA_WAIT_TIME_FINALIZE, "double", "iterations", "in which batches were moved to their device"),
    Attribute(
        RAY_MEMORY_PEAK,
        "int",
        f"{_EXECUTION}, ranks of Ray Train",
        "the most resident memory that the process had meanwhile, in bytes, where `RAY_TRACING_MEMORY` is on: exact if "
        "it had never had more, otherwise the highest of samples, 20 a second",
    ),
    Attribute(
        RAY_MEMORY_DEVICE_PEAK,
        "int",
        f"{_EXECUTION}, ranks of Ray Train",
        "the most that PyTorch had allocated on one device of the process, likewise",
    ),
    Attribute(RAY_ACCELERATOR_ID, "string", "metrics of GPUs", "the accelerator as Ray names it, such as `GPU:0`"),
    Attribute(RAY_TRAIN_RUN_NAME, "string", _RUNS, "the name of the run in `RunConfig`, or the one that Ray gave it"),
    Attribute(RAY_TRAIN_RUN_ID, "string", _RUNS, "Ray's id of the run"),
    Attribute(RAY_TRAIN_TRAINER, "string", "runs of Ray Train", "the class of the trainer, such as `TorchTrainer`"),
    Attribute(
        RAY_TRAIN_ATTEMPT, "int", "attempts, ranks", "the number of the attempt, from 1; a restart or resize begins one"
    ),
    Attribute(RAY_TRAIN_NUM_WORKERS, "int", "runs and attempts of Ray Train", "how many workers it asks for, or has"),
    Attribute(
        RAY_TRAIN_SCHEDULING_TIME,
        "double",
        "attempts of Ray Train",
        "seconds until all its workers ran: for resources, starting workers, setting up the backend",
    ),
    Attribute(RAY_TRAIN_RUNNING_TIME, "double", "attempts of Ray Train", "seconds from then until it ended"),
    Attribute(
        RAY_TRAIN_FAILED_RANKS, "string[]", "attempts of Ray Train, events", "the ranks that failed, if that ended it"
    ),
    Attribute(RAY_TRAIN_STATE, "string", f"events `{TRAIN_CHANGED}`", "the state of the run, such as `RUNNING`"),
    Attribute(
        RAY_TRAIN_DECISION,
        "string",
        f"events `{TRAIN_FAILURE}`",
        "what Ray Train does after a failure: `RETRY` or `RAISE`; `error.type` is the cause",
    ),
    Attribute(RAY_TRAIN_WORLD_RANK, "int", _RANKS, "the rank of the worker among all of the run"),
    Attribute(RAY_TRAIN_WORLD_SIZE, "int", "ranks of Ray Train", "how many workers there are"),
    Attribute(RAY_TRAIN_LOCAL_RANK, "int", "ranks of Ray Train", "the rank of the worker among those on its node"),
    Attribute(RAY_TRAIN_NODE_RANK, "int", "ranks of Ray Train", "the rank of its node"),
    Attribute(
        RAY_TRAIN_STEP,
        "int",
        _COLLECTIVE,
        "its number, from 1: the same for all ranks that meet there, as all of them make the same calls",
    ),
    Attribute(
        RAY_TRAIN_BARRIER_TIME,
        "double",
        _COLLECTIVE,
        "seconds until all ranks were there: the last one to come waits for none",
    ),
    Attribute(
        RAY_TRAIN_HANDOVER_TIME,
        "double",
        "reports of Ray Train",
        "seconds until the controller had taken the previous report: it polls its workers every 2 seconds",
    ),
    Attribute(
        RAY_TRAIN_CHECKPOINT,
        "string",
        "reports and transfers of Ray Train",
        "the name of the folder of the checkpoint, if there is one",
    ),
    Attribute(
        RAY_TRAIN_METRICS,
        "string",
        "reports of Ray Train",
        "the metrics as a short text, where `RAY_TRACING_ARGUMENTS` is on",
    ),
    Attribute(RAY_TUNE_EXPERIMENT, "string", "experiments and trials of Ray Tune", "the name of the experiment"),
    Attribute(RAY_TUNE_SCHEDULER, "string", "experiments of Ray Tune", "the class of the scheduler"),
    Attribute(RAY_TUNE_SEARCHER, "string", "experiments of Ray Tune", "the class of the search algorithm"),
    Attribute(RAY_TUNE_METRIC, "string", "experiments of Ray Tune", "the metric that is optimized"),
    Attribute(RAY_TUNE_TRIALS, "int", "experiments of Ray Tune", "how many trials there were"),
    Attribute(RAY_TUNE_TRIALS_FAILED, "int", "experiments of Ray Tune", "how many of them failed, if any"),
    Attribute(RAY_TUNE_TRIAL_ID, "string", "trials of Ray Tune", "Ray's id of the trial"),
    Attribute(
        RAY_TUNE_TRIAL_STATUS,
        "string",
        f"trials of Ray Tune, events `{TUNE_CHANGED}`",
        "its status, at the end of the trial `TERMINATED` or `ERROR`",
    ),
    Attribute(RAY_TUNE_TRAINABLE, "string", "trials of Ray Tune", "the name of the trainable"),
    Attribute(
        RAY_TUNE_CONFIG,
        "string",
        f"trials of Ray Tune, events `{TUNE_EXPLOIT}`",
        "the configuration of the trial as a short text; what looks like a secret is redacted",
    ),
    Attribute(RAY_TUNE_ITERATIONS, "int", "trials of Ray Tune", "how many iterations it had reported"),
    Attribute(RAY_TUNE_METRIC_VALUE, "double", "trials of Ray Tune", "the last value of the metric"),
    Attribute(
        RAY_TUNE_STOPPED_BY,
        "string",
        "trials of Ray Tune",
        "what ended it: `trial` (its own code returned), `criterion` (a stop condition), `scheduler`, or `experiment` "
        "(which ended as a whole); absent if an error ended it",
    ),
    Attribute(RAY_TUNE_FAILURES, "int", "trials of Ray Tune", "how often it failed, if it did"),
    Attribute(RAY_TUNE_PENDING_TIME, "double", "trials of Ray Tune", "seconds until it ran for the first time"),
    Attribute(
        RAY_TUNE_CHECKPOINT,
        "string",
        f"events `{TUNE_CHECKPOINTED}` and `{TUNE_RESTORED}`",
        "the path of the checkpoint",
    ),
    Attribute(RAY_TUNE_CLONED, "string", f"events `{TUNE_EXPLOIT}`", "the trial whose state it continues with"),
    Attribute(RAY_RLLIB_ALGORITHM, "string", "iterations of RLlib and their phases", "the class of the algorithm"),
    Attribute(RAY_RLLIB_ITERATION, "int", "iterations of RLlib", "the number of the iteration, from 1"),
    Attribute(
        SKYWALKING_PARENT,
        "string",
        "spans below one of a SkyWalking agent",
        "the `sw8` or `sw6` header that named their parent",
    ),
    Attribute(
        SKYWALKING_PEER,
        "string",
        "calls of others with such a header",
        "the address of the called one, as in the header",
    ),
    Attribute(LOG_BODY, "string", _LOG, "the message of a log record; the logger is `otel.scope.name`"),
    Attribute(LOG_SEVERITY_TEXT, "string", _LOG, "its level, such as `WARNING`"),
    Attribute(LOG_SEVERITY_NUMBER, "int", _LOG, "its OpenTelemetry severity number: 9 is INFO, 17 is ERROR"),
    Attribute(RESOURCE_PROCESS_TYPE, "string", _RESOURCE, "`driver` or `worker`"),
    Attribute(RESOURCE_NODE_ID, "string", _RESOURCE, "the node of the process"),
    Attribute(RESOURCE_WORKER_ID, "string", _RESOURCE, "Ray's id of the worker or driver"),
    Attribute(RESOURCE_CREATION_TIME, "string", _RESOURCE, "when the process was created, in ISO 8601"),
    Attribute(
        RESOURCE_WORKER_READY,
        "int",
        _RESOURCE,
        "when the worker had connected to Ray and was ready for work, in nanoseconds since the epoch",
    ),
    Attribute(RESOURCE_PROCESSORS, "int", _RESOURCE, "how many processors of its node the process may use"),
    Attribute(RESOURCE_SESSION_NAME, "string", _RESOURCE, "the session of the cluster, as in `/tmp/ray`"),
    Attribute(RESOURCE_GCS_ADDRESS, "string", _RESOURCE, "the address of the cluster's GCS"),
    Attribute(RESOURCE_RAY_VERSION, "string", _RESOURCE, "the version of Ray"),
    Attribute(
        RESOURCE_PARTS,
        "string",
        _RESOURCE,
        "the parts of Ray that make spans in the process, as in `RAY_TRACING_RAY`, with `internal` where "
        "`RAY_TRACING_INTERNAL` is on",
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


_CALLED = (RAY_FUNCTION, RAY_ACTOR_CLASS, RAY_ACTOR_METHOD)

_OF_GPU = (HW_ID, HW_NAME, HW_VENDOR, RAY_ACCELERATOR_ID)

METRICS = (
    Metric(
        EXECUTION_DURATION,
        "histogram",
        "s",
        (*_CALLED, ERROR_TYPE),
        "how long a task, actor creation or method ran, each attempt counted separately, a generator until it ended; "
        "its count is the number of ended executions, with `error.type` for those that failed",
    ),
    Metric(
        EXECUTION_QUEUE_TIME,
        "histogram",
        "s",
        _CALLED,
        "how long a call waited, from the start of its submission to the start of its execution; not of retries, and "
        "not where the submission is not known on the node",
    ),
    Metric(EXECUTION_RETRIES, "counter", "{retry}", _CALLED, "how many of the ended executions were retries"),
    Metric(
        SUBMISSION_DURATION,
        "histogram",
        "s",
        (*_CALLED, ERROR_TYPE),
        "how long `.remote()` took; its count is the number of calls, with `error.type` for those that Ray refused",
    ),
    Metric(GPU_UTILIZATION, "gauge", "1", _OF_GPU, "the share of time in which the GPU was busy"),
    Metric(GPU_MEMORY_USAGE, "gauge", "By", _OF_GPU, "how much of the GPU's memory was in use"),
    Metric(GPU_MEMORY_LIMIT, "gauge", "By", _OF_GPU, "how much memory the GPU has"),
    Metric(CPU_UTILIZATION, "gauge", "1", (), "the share of the processors of a node that was in use"),
    Metric(MEMORY_UTILIZATION, "gauge", "1", (), "the share of the memory of a node that was in use"),
)
"""The metrics: of calls where ``RAY_TRACING_METRICS`` is on, of nodes where ``RAY_TRACING_UTILIZATION`` is set."""

_OF_DESTINATION = (TRACING_EXPORTER, TRACING_SIGNAL, TRACING_ADDRESS)

DELIVERY_METRICS = (
    Metric(DELIVERY_RECEIVED, "counter", "{item}", _OF_DESTINATION, "spans, or log records, read from the spool"),
    Metric(
        DELIVERY_DELIVERED,
        "counter",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that the destination has accepted",
    ),
    Metric(
        DELIVERY_BYTES,
        "counter",
        "By",
        _OF_DESTINATION,
        "the size of delivered spans, or log records, as encoded, before compression",
    ),
    Metric(
        DELIVERY_REFUSED,
        "counter",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that the destination will never accept: they are lost",
    ),
    Metric(
        DELIVERY_DROPPED,
        "counter",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that `RAY_TRACING_SPOOL_MAX_BYTES` removed before they were delivered: they are lost",
    ),
    Metric(DELIVERY_RETRIES, "counter", "{retry}", _OF_DESTINATION, "attempts that failed and were repeated"),
    Metric(
        DELIVERY_WAITING,
        "gauge",
        "{item}",
        _OF_DESTINATION,
        "spans, or log records, that wait; extrapolated if there are very many",
    ),
    Metric(
        DELIVERY_WAITING_BYTES,
        "gauge",
        "By",
        _OF_DESTINATION,
        "the size in the spool of the spans, or log records, that wait",
    ),
    Metric(
        DELIVERY_WAITING_AGE,
        "gauge",
        "s",
        _OF_DESTINATION,
        "how long ago the oldest span, or log record, that waits ended; 0 if none waits",
    ),
    Metric(
        DELIVERY_UNWRITTEN,
        "counter",
        "{item}",
        (),
        "spans and log records that a full or failing disk did not take: they are lost",
    ),
    Metric(SPOOL_BYTES, "gauge", "By", (), "the size of the spool"),
    Metric(SPOOL_LIMIT, "gauge", "By", (), "the maximum size of the spool, `RAY_TRACING_SPOOL_MAX_BYTES`"),
    Metric(SPOOL_WRITERS, "gauge", "{process}", (), "processes that write to the spool"),
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


def submission_name(function: str) -> str:
    """The name of the PRODUCER span of ``.remote()``; ``function`` is the value of ``ray.function``."""
    return f"{function} ray.remote"


def driver_name(script: str) -> str:
    """The name of the root span of a driver; ``script`` is the file name of the program."""
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
