"""Remote functions: how they are defined, how they look, what they see of themselves and of their process."""

import functools
import gc
import hashlib
import inspect
import logging
import os
import signal
import sys
import threading
import traceback
import warnings

import ray
import scenarios
import shared
from ray import cloudpickle
from ray import get as early_get
from ray import put as early_put
from ray import wait as early_wait
from scenarios import attempt, scenario


@ray.remote
def documented(a, b: int = 1, *rest: str, key: str | None = None, **more: float) -> list:
    """What it does."""
    return [a, b, rest, key, more]


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ["wrapped", function(*args, **kwargs)]

    return wrapper


@ray.remote
@wrapping
def wrapped(a, *, b=2):
    return [a, b]


def undecorated(a, b=1):
    return [a, b]


class Callable:
    def __call__(self, value):
        return value

    def method(self, value):
        return value

    @staticmethod
    def static(value):
        return value


def looks_of(function):
    """What a program sees of a function that is Ray's, and what it comes to where that is pickled."""
    pickled = attempt(lambda: hashlib.sha256(cloudpickle.dumps(function)).hexdigest())
    return [
        *(function.__module__, function.__qualname__, str(inspect.signature(function))),
        *(scenarios.same_in_each_run(repr(function)), inspect.unwrap(function) is function, pickled),
    ]


class Refusing:
    """Has no attributes, and says so in its own way."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


@scenario
def functions_with_attributes_of_their_own():
    """Of names that Ray's executors of methods have, too."""

    async def coroutine():
        pass

    async def items():
        yield 1

    def run_with(attribute):
        def function():
            return 42

        function.method = function.name = attribute
        return attempt(lambda: ray.get(ray.remote(max_retries=0)(function).remote()))

    return [run_with(attribute) for attribute in (coroutine, items, Refusing(), "text", None)]


@scenario
def functions_of_rays_own():
    """Taken by name before the program is connected and after it, and used by what Ray pickles."""
    from ray import get as late_get
    from ray import put as late_put
    from ray import wait as late_wait

    worker = ray._private.worker
    functions = [early_get, early_put, early_wait, late_get, late_put, late_wait, worker.get, worker.put, worker.wait]

    @ray.remote
    def early():
        ready, _ = early_wait([early_put(1)])
        return early_get(ready)

    @ray.remote
    def late():
        ready, _ = late_wait([late_put(2)])
        return late_get(ready)

    @ray.remote
    class Late:
        def call(self, get):
            return [get(late_put(3)), late_get(worker.put(4)), get is late_get, get is ray.get]

        async def unused(self):
            pass

    @ray.remote
    def given(functions):
        return [looks_of(function) for function in functions]

    methods = [type(early)._remote, type(Late)._remote, type(Late.remote().call)._remote]
    actor = Late.remote()
    return [
        [looks_of(function) for function in [*functions, *methods]],
        [early_get is ray.get, late_get is ray.get, ray.get is worker.get, ray.get.__wrapped__ is worker.get],
        early_get([early.remote(), late.remote()]),
        ray.get(actor.call.remote(early_get)),
        ray.get(given.remote([*functions, *methods])),
        # Not how long it is: the name of the cluster's session is in it, and in that the number of a process.
        [attempt(lambda each=each: len(cloudpickle.dumps(each)) > 0) for each in (early._remote, actor.call)],
    ]


@scenario
def how_they_look():
    called = documented.remote(1)
    ray.get(called)
    return [
        [type(thing).__name__ for thing in (documented, documented.options(), documented.remote, called)],
        [str(inspect.signature(thing)) for thing in (documented._function, documented.remote, wrapped._function)],
        [
            attempt(lambda name=name: getattr(documented, name))
            for name in ("__name__", "__doc__", "__module__", "__qualname__")
        ],
        scenarios.same_in_each_run(repr(documented)),
        sorted(vars(documented)),
        sorted(name for name in dir(documented) if not name.startswith("__")),
        inspect.getsource(documented._function)[:40],
        [callable(documented), hasattr(documented, "__wrapped__"), inspect.isfunction(documented._function)],
        attempt(lambda: documented(1)),
        documented._function(1),
        documented.func(1) if hasattr(documented, "func") else None,
        [name for name in vars(documented._function) if "tra" in name],
        documented._function.__defaults__,
        documented._function.__annotations__.__repr__(),
    ]


@scenario
def defined_in_every_way():
    made = [ray.remote(lambda number, bound=number: [bound, number]) for number in range(3)]

    @ray.remote
    def redefined():
        return "first"

    first = redefined

    @ray.remote
    def redefined():
        return "second"

    captured = {"value": 1}

    @ray.remote
    def closes_over():
        return captured

    @ray.remote
    def uses_another():
        return ray.get(first.options(num_cpus=0).remote())

    @ray.remote
    def defines():
        @ray.remote(num_cpus=0)
        def inner(value):
            return [value, inner.__name__ if hasattr(inner, "__name__") else None]

        return ray.get(inner.remote("inside"))

    before = ray.get(closes_over.remote())
    captured["value"] = 2
    return [
        ray.get([function.remote(10 + number) for number, function in enumerate(made)]),
        [ray.get(first.remote()), ray.get(redefined.remote())],
        [before, ray.get(closes_over.remote())],
        ray.get(uses_another.remote()),
        ray.get(defines.remote()),
        ray.get(wrapped.remote(1, b=3)),
        attempt(lambda: wrapped.remote(1, 2, 3)),
        ray.get(ray.remote(undecorated).remote(1)),
        undecorated(2),
        attempt(lambda: ray.get(ray.remote(functools.partial(undecorated, 5)).remote(6))),
        attempt(lambda: ray.get(ray.remote(Callable().method).remote(7))),
        attempt(lambda: ray.get(ray.remote(Callable.static).remote(8))),
        attempt(lambda: ray.get(ray.remote(Callable()).remote(9))),
        attempt(lambda: ray.get(ray.remote(len).remote([1, 2]))),
        attempt(lambda: ray.get(ray.remote(functools.lru_cache(undecorated)).remote(10))),
        attempt(lambda: ray.remote(num_cpus="many")(undecorated)),
        attempt(lambda: ray.remote(5)(undecorated)),
        attempt(lambda: ray.get(ray.remote(num_cpus=0, max_retries=1)(undecorated).remote(11))),
    ]


@scenario
def recursion():
    @ray.remote(num_cpus=0)
    def factorial(n):
        return n * ray.get(factorial.remote(n - 1)) if n else 1

    @ray.remote
    def depth():
        def deeper(n):
            try:
                return deeper(n + 1)
            except RecursionError:
                return n

        return abs(sys.getrecursionlimit() - deeper(0)) < 60

    @ray.remote(max_retries=0)
    def too_deep():
        return too_deep._function()

    @ray.remote
    def tree(n):
        return sum(ray.get([tree.options(num_cpus=0).remote(n - 1) for _ in range(2)])) if n else 1

    failed = attempt(lambda: ray.get(too_deep.remote()))
    return [
        ray.get(factorial.remote(4)),
        ray.get(depth.remote()),
        [failed[0], failed[1], failed[2].splitlines()[-1]],
        ray.get(tree.options(num_cpus=0).remote(2)),
    ]


@ray.remote
def runtime_context():
    context = ray.get_runtime_context()
    return {
        **{
            name: attempt(lambda name=name: getattr(context, name)())
            for name in ("get_task_name", "get_task_function_name", "get_assigned_resources", "get_actor_name")
        },
        "namespace": len(context.namespace),
        "actor": context.get_actor_id(),
        "task id": [type(context.get_task_id()).__name__, len(context.get_task_id() or "")],
        "job": len(context.get_job_id()),
        "worker": len(context.get_worker_id()),
        "reconstructed": attempt(lambda: context.was_current_actor_reconstructed)[:3],
        "placement": context.get_placement_group_id(),
        "environment": context.runtime_env,
        "attempt": ray._private.worker.global_worker.core_worker.get_current_task_attempt_number(),
        "cancelled": attempt(lambda: context.is_canceled()),
    }


@ray.remote(num_cpus=0)
class Context:
    def give(self):
        context = ray.get_runtime_context()
        return [
            context.get_task_name(),
            context.get_task_function_name(),
            len(context.get_actor_id()),
            context.get_actor_name(),
            context.get_task_id()[16:] == context.get_actor_id(),
            context.was_current_actor_reconstructed,
            context.get_assigned_resources(),
            attempt(lambda: context.is_canceled()),
        ]

    async def async_give(self):
        return self.give()


@scenario
def what_ray_says_of_the_call():
    actor = Context.options(name=f"context {os.getpid()}").remote()
    given = ray.get([actor.give.remote(), actor.give.options(name="a method").remote(), actor.async_give.remote()])
    for one in given:
        one[3] = one[3].replace(str(os.getpid()), "?")

    @ray.remote
    def ids():
        context = ray.get_runtime_context()
        return [context.get_task_id(), context.get_job_id()]

    ref = ids.remote()
    return [
        ray.get(runtime_context.remote()),
        ray.get(runtime_context.options(name="a task", num_cpus=0.5).remote()),
        given,
        ray.get(ref)[0] == ref.task_id().hex(),
        ray.get(ref)[1] == ray.get_runtime_context().get_job_id(),
        sorted(ray.get_runtime_context().get()),
    ]


@ray.remote
def surroundings():
    """What a function can see of the process that it is in."""
    return {
        "threads": sorted({thread.name.rstrip("0123456789") for thread in threading.enumerate()}),
        "main thread": threading.current_thread() is threading.main_thread(),
        "signals": {
            number.name: getattr(signal.getsignal(number), "__qualname__", str(signal.getsignal(number)))
            for number in signal.Signals
        },
        "hooks": [
            getattr(hook, "__module__", None)
            for hook in (
                sys.excepthook,
                sys.unraisablehook,
                threading.excepthook,
                sys.displayhook,
                warnings.showwarning,
            )
        ],
        "tracing": [sys.gettrace(), sys.getprofile()],
        "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "warnings": [str(entry[:3]) for entry in warnings.filters],
        "logging": [
            logging.root.level,
            [type(handler).__name__ for handler in logging.root.handlers],
            logging.getLogger("ray").level,
            [type(handler).__name__ for handler in logging.getLogger("ray").handlers],
            logging.getLoggerClass().__name__,
            logging.getLogRecordFactory().__name__,
        ],
        "environment": sorted(name for name in os.environ if not name.startswith("RAY_TRACING_")),
        "path": sys.path == list(dict.fromkeys(sys.path)) or len(sys.path),
        "main": sys.modules["__main__"].__file__.rpartition("/")[2],
        "streams": [type(stream).__name__ for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "directory": os.getcwd(),
        "umask": os.umask(os.umask(0o022)),
        "nice": os.nice(0),
        "children": _children(),
        "title": open("/proc/self/cmdline").read().rstrip("\0 "),
        "policy": type(__import__("asyncio").get_event_loop_policy()).__name__,
    }


def _children():
    with open(f"/proc/self/task/{threading.get_native_id()}/children") as file:
        return len(file.read().split())


@ray.remote(num_cpus=0)
class Surrounded:
    def see(self):
        return surroundings._function()


@ray.remote(num_cpus=0)
class AsyncSurrounded:
    async def see(self):
        seen = surroundings._function()
        # Those of asyncio and of Ray's thread pools come when they are needed.
        return {name: value for name, value in seen.items() if name not in {"threads", "children"}}


@scenario
def the_process_around():
    there = ray.get(
        [surroundings.remote(), (_a := Surrounded.remote()).see.remote(), (_b := AsyncSurrounded.remote()).see.remote()]
    )
    here = surroundings._function()
    # The driver of a scenario records warnings, and what it prints; its children are the shell's.
    return [
        there,
        {name: value for name, value in here.items() if name not in {"warnings", "hooks", "streams", "children"}},
    ]


@scenario
def what_is_on_the_stack():
    """Frames of other packages may be there, but no frame of the user's is lost or doubled."""

    @ray.remote
    def names():
        mine = [frame.name for frame in traceback.extract_stack() if frame.filename.endswith("conform_functions.py")]
        return [mine, sys._getframe().f_code.co_name, threading.current_thread().name]

    @ray.remote
    def handled():
        return [part is None for part in sys.exc_info()]

    @ray.remote(max_retries=0)
    def caught():
        try:
            raise KeyError("mine")
        except KeyError:
            return traceback.format_exc().splitlines()[-1:], len(traceback.extract_tb(sys.exc_info()[2]))

    @ray.remote
    def caught_of_a_call():
        try:
            documented.remote()
        except TypeError:
            return [line for line in traceback.format_exc().splitlines() if line.startswith("  File")]

    return [ray.get(task.remote()) for task in (names, handled, caught, caught_of_a_call)]


@scenario
def context_variables():
    @ray.remote(num_cpus=0)
    class Keeps:
        def see(self):
            return shared.variable.get()

        def set(self, value):
            token = shared.variable.set(value)
            self.token = token
            return token.old_value.__class__.__name__

        def reset(self):
            shared.variable.reset(self.token)
            return shared.variable.get()

        def in_thread(self):
            seen = []
            thread = threading.Thread(target=lambda: seen.append(shared.variable.get()))
            thread.start()
            thread.join()
            return seen

    actor = Keeps.remote()
    calls = [actor.see, actor.set, actor.see, actor.in_thread, actor.reset, actor.see]
    return [ray.get(call.remote(*(["kept"] if call._method_name == "set" else []))) for call in calls]


def default_argument(invocation):
    """Ray calls a decorator of the program with the arguments of each call."""

    def invoke(args, kwargs):
        seen = [type(args).__name__, len(args or ()), bool(args)]
        return seen, invocation(args or ("default",), kwargs)

    return invoke


def first_argument(invocation):
    def invoke(args, kwargs):
        return args[0] if args else None, invocation(args, kwargs)

    return invoke


@scenario
def decorators_of_calls():
    def greet(*names):
        return names

    def nothing():
        return "ran"

    class Greeter:
        def greet(self, *names):
            return names

        def nothing(self):
            return "ran"

    greet.__ray_invocation_decorator__ = Greeter.greet.__ray_invocation_decorator__ = default_argument
    nothing.__ray_invocation_decorator__ = Greeter.nothing.__ray_invocation_decorator__ = first_argument
    actor = ray.remote(Greeter).remote()
    found = []
    for function in (ray.remote(greet), ray.remote(nothing), actor.greet, actor.nothing):
        for _ in range(2):
            seen, reference = function.remote()
            found.append([seen, ray.get(reference)])
    return found


if __name__ == "__main__":
    scenarios.run()
