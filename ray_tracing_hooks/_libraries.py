"""Ray's libraries: one descriptor of each says all that the rest of this package has to know of it.

To trace another library, add its descriptor here, and a folder of its name in ``_ray``, with a module for each row of
``wraps`` and ``naming``. Nothing here imports Ray.
"""

from __future__ import annotations

from typing import NamedTuple

from ray_tracing_hooks import names


class Wrap(NamedTuple):
    """One place in a library that is instrumented."""

    of: str
    """The module of Ray, or of an engine, which is wrapped once the process has imported it."""
    module: str
    """The module with the wrappers, in the library's folder of this package."""
    lost: str
    """What is missing if this version of Ray has changed the place, for a message."""
    wrappers: str = "WRAPPERS"
    """Its table of wrappers, by ``function`` or ``Class.method``, with a question mark after what older versions of Ray
    lack; or a function ``patch(patches)`` that applies them, and returns whether this Ray has all places."""


class Library(NamedTuple):
    """A library of Ray."""

    part: str
    """Its part of ``RAY_TRACING_RAY``, which is on by default, and its folder in ``_ray``. A library that
    :attr:`hides_calls` is the package of this name in ``ray``."""
    title: str
    """Its name for users."""
    wraps: tuple[Wrap, ...] = ()
    internal: tuple[str, ...] = ()
    """How the names of modules with its internal tasks and actors begin. These run code of the program only through
    further calls, or belong to its own spans. They make no spans, also if the part is off, unless :attr:`naming` names
    them."""
    internal_methods: tuple[str, ...] = ()
    """Methods with which it manages actors of the program. They are internal in every class, whatever its module, so
    their names are ones that no program has."""
    workers: tuple[str, ...] = ()
    """The ends of the names of creations in its internal modules that are worth a span."""
    naming: tuple[tuple[str, str], ...] = ()
    """Pairs that name its calls by what they run: how the names of the modules with such functions and classes begin,
    and the module in its folder with a function ``labeler_for(module, class_name, function)``."""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Functions of the library that call a method by its name: module, qualified name, and the variable that has it."""
    quiet: tuple[str, ...] = ()
    """How the names of modules begin whose own waits make no spans, unless ``RAY_TRACING_INTERNAL`` is on. Only for
    waits beside those of the program: if a call of the program returns when they end, the summary would take the time
    for code of the program."""
    may_be_open: tuple[str, ...] = ()
    """Modules in its folder with a function ``give_up()``, which ends the spans that are open when a driver ends."""
    site_keys: tuple[str, ...] = ()
    """Attributes with the same values on many spans."""
    loops: tuple[str, ...] = ()
    """The suffixes of spans that run code of the program in a worker, without a submission."""
    runs: tuple[str, ...] = ()
    """The suffixes of spans of what runs in the process that asked for it, and waits for internal calls, each after a
    name and a space. Without this, the summary takes that time for code of the program."""
    hides_calls: bool = True
    """Whether its internal tasks and actors make no spans if its part is off, so that the summary advises to switch it
    on. False for a library that is no package directly in ``ray``, since drivers do not notice its import."""


_DATA = "ray.data._internal"
_TRAIN = "ray.train.v2._internal.execution"
_CONTROLLER = "ray.tune.execution.tune_controller"
_SERVE = "ray.serve._private"

DATA = Library(
    "data",
    "Ray Data",
    wraps=(
        Wrap(
            f"{_DATA}.execution.streaming_executor",
            "executions",
            "not all of the executions of datasets are traced",
        ),
        Wrap(
            f"{_DATA}.execution.interfaces.physical_operator",
            "statistics",
            "the backpressure of datasets is not recorded",
            "BACKPRESSURE",
        ),
        Wrap("ray.data.iterator", "iteration", "iterations over datasets are not traced"),
        Wrap(
            f"{_DATA}.block_batching.iter_batches",
            "iteration",
            "the stages that iterations over datasets waited for are not recorded",
            "STAGES",
        ),
        Wrap(
            f"{_DATA}.execution.operators.map_transformer",
            "tasks",
            "classes that map datasets do not have the context of their task",
            "THREADS",
        ),
        Wrap(f"{_DATA}.util", "tasks", "files are read without the context of their task", "patch_files"),
        Wrap(
            f"{_DATA}.block_batching.util",
            "tasks",
            "batches are made without the context of their iteration",
            "patch_batches",
        ),
    ),
    internal=(f"{_DATA}.",),
    naming=((f"{_DATA}.", "tasks"),),
    quiet=("ray.data.",),
    may_be_open=("iteration", "executions"),
    site_keys=(names.RAY_DATA_STAGE,),
)

TRAIN = Library(
    "train",
    "Ray Train",
    wraps=(
        Wrap("ray.train.v2.api.data_parallel_trainer", "run", "runs of Ray Train are not recorded"),
        Wrap(f"{_TRAIN}.controller.controller", "run", "attempts of Ray Train are not recorded", "ATTEMPTS"),
        Wrap(
            f"{_TRAIN}.worker_group.thread_runner",
            "run",
            "training loops of Ray Train are not recorded, and not in the trace of their run",
            "LOOPS",
        ),
        Wrap(f"{_TRAIN}.context", "run", "reports of Ray Train are not recorded", "REPORTS"),
        Wrap(
            f"{_TRAIN}.collective_impl",
            "run",
            "collective functions of Ray Train are not recorded",
            "COLLECTIVES",
        ),
        Wrap(
            "ray.train.v2.api.data_parallel_trainer",
            "run",
            "ranks of runs of Ray Train without workers are not recorded",
            "patch_local",
        ),
        Wrap(
            "ray.train.base_trainer",
            "run",
            "no message reports runs of Ray Train's first version, which are not recorded",
            "FIRST_VERSION",
        ),
    ),
    internal=("ray.train._internal.", "ray.train.v2._internal."),
    workers=("RayTrainWorker.__init__",),
    naming=(("ray.train.", "run"),),
    loops=(names.TRAIN_WORKER,),
    runs=(names.TRAIN_RUN,),
)

TUNE = Library(
    "tune",
    "Ray Tune",
    wraps=(
        Wrap(_CONTROLLER, "experiments", "experiments of Ray Tune are not recorded"),
        Wrap(_CONTROLLER, "experiments", "trials of Ray Tune are not recorded", "TRIALS"),
        Wrap(
            "ray.air.execution.resources.request",
            "trials",
            "actors of Ray Tune are created outside of their trials",
            "ACTORS",
        ),
        Wrap("ray.tune.schedulers.pbt", "trials", "exploits of Ray Tune are not recorded", "EXPLOITS"),
        Wrap("ray.tune.trainable.function_trainable", "trials", "trainables of Ray Tune are not named", "NAMES"),
        Wrap(
            "ray.train._internal.session",
            "trials",
            "training functions of Ray Tune are not in the trace of their trial",
            "SESSIONS",
        ),
    ),
    internal=("ray.tune.utils.",),
    internal_methods=("get_auto_filled_metrics",),
    naming=(("ray.tune.", "trials"),),
    runs=(names.TUNE_EXPERIMENT,),
)

RLLIB = Library(
    "rllib",
    "RLlib",
    wraps=(
        Wrap("ray.rllib.algorithms.algorithm", "iterations", "iterations of RLlib and their phases are not recorded"),
    ),
    workers=("_WrappedExecutable.__init__",),
    naming=(("ray.rllib.", "iterations"), ("ray.train._internal.worker_group", "iterations")),
    calls=(("ray.rllib.utils.actor_manager", "_method_caller.<locals>._call", "method_name"),),
)

SERVE = Library(
    "serve",
    "Ray Serve",
    wraps=(
        Wrap(f"{_SERVE}.proxy", "proxy", "requests to Serve's proxies are not traced"),
        Wrap(f"{_SERVE}.router", "router", "calls of deployments are not traced"),
        Wrap(f"{_SERVE}.router", "choosing", "how long the choice of replicas takes is not recorded"),
        Wrap("ray.serve.handle", "router", "how long callers wait for a replica is not recorded", "RESPONSES"),
        Wrap(f"{_SERVE}.replica", "replica", "requests are not traced in the replicas of deployments", "patch"),
        Wrap(
            f"{_SERVE}.replica",
            "replica",
            "how long requests wait for the event loop of their replica is not recorded",
            "patch_event_loop",
        ),
        Wrap(f"{_SERVE}.replica", "replica", "the start of replicas is not traced", "START"),
        Wrap(f"{_SERVE}.replica", "replica", "calls of health checks are traced", "HEALTH_CHECKS"),
        Wrap(f"{_SERVE}.replica", "direct", "requests that replicas receive without a proxy are not traced", "patch"),
        Wrap("ray.serve.batching", "batching", "batches of requests are not traced"),
        Wrap("ray.serve.multiplex", "batching", "the loading of multiplexed models is not traced", "MULTIPLEXING"),
        Wrap(f"{_SERVE}.tracing_utils", "spans", "Serve's own tracing makes additional spans", "patch_own_tracing"),
    ),
    internal=(f"{_SERVE}.",),
    site_keys=(
        names.RAY_SERVE_APPLICATION,
        names.RAY_SERVE_DEPLOYMENT,
        names.RAY_SERVE_METHOD,
        names.RAY_SERVE_REPLICA_ID,
    ),
    hides_calls=False,
)

LLM = Library(
    "llm",
    "Ray LLM",
    wraps=(
        Wrap("vllm.v1.engine.output_processor", "engine", "generations of vLLM make no spans", "patch"),
        Wrap("vllm.v1.engine.async_llm", "engine", "the model of generations is not recorded", "ASYNC_ENGINE"),
        Wrap("vllm.v1.engine.llm_engine", "engine", "the model of generations is not recorded", "SYNC_ENGINE"),
        Wrap("sglang.srt.entrypoints.engine", "sglang", "generations of SGLang make no spans", "patch"),
        Wrap(
            "ray.llm._internal.serve.core.server.llm_server",
            "server",
            "what Ray Serve LLM knows of its requests is not recorded",
            "patch",
        ),
    ),
    internal=("ray.llm._internal.",),
    site_keys=(names.GEN_AI_OPERATION, names.GEN_AI_PROVIDER, names.GEN_AI_REQUEST_MODEL, names.GEN_AI_STREAM),
)

LIBRARIES = (SERVE, DATA, TRAIN, TUNE, RLLIB, LLM)
"""In the order in which messages name their parts."""
