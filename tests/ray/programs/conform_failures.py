"""What fails: errors of every kind, retries, processes that die."""

import builtins
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback

import odd_errors
import ray
import scenarios
from ray.exceptions import RayTaskError, TaskCancelledError
from scenarios import attempt, scenario


class Custom(Exception):
    """Needs more than a text."""

    def __init__(self, code, *, why="none"):
        super().__init__(code)
        self.code, self.why = code, why

    def __reduce__(self):
        return _custom, (self.code, self.why)

    def __str__(self):
        return f"{self.code}: {self.why}"


def _custom(code, why):
    return Custom(code, why=why)


class Unpicklable(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class NeedsTwo(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Final(Exception):
    def __init_subclass__(cls, **kwargs):
        raise TypeError("no subclasses")


class Slotted(Exception):
    __slots__ = ("value",)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def errors():
    group = getattr(builtins, "ExceptionGroup", ValueError)  # from Python 3.11 on
    chained = ValueError("second")
    chained.__cause__ = KeyError("first")
    noted = ValueError("noted")
    if sys.version_info >= (3, 11):
        noted.add_note("a note")
    return {
        "plain": ValueError("text"),
        "empty": ValueError(),
        "unicode": ValueError("zoë \N{SNOWMAN}\nsecond line"),
        "custom": Custom(5, why="because"),
        "unpicklable": Unpicklable("locked"),
        "needs two": NeedsTwo(1, 2),
        "final": Final("final"),
        "slotted": Slotted("slotted"),
        "unprintable": Unprintable(),
        "os": FileNotFoundError(2, "gone", "some/file"),
        "chained": chained,
        "noted": noted,
        "stop": StopIteration(3),
        "async stop": StopAsyncIteration(3),
        "generator exit": GeneratorExit("left"),
        "time-out": TimeoutError("late"),
        "cancelled": TaskCancelledError(),
        "task": RayTaskError("f", "a traceback", ValueError("inner")),
        "group": group("several", [ValueError(1), KeyError(2)]),
        "interrupt": KeyboardInterrupt("now"),
        "base": BaseException("base"),
    }


@ray.remote(max_retries=0)
def raises(name):
    raise errors()[name]


@ray.remote(num_cpus=0)
class Raises:
    def raises(self, name):
        raise errors()[name]

    async def unused(self):
        pass

    async def async_raises(self, name):
        raise errors()[name]


@ray.remote(num_cpus=0)
class SyncRaises:
    def raises(self, name):
        raise errors()[name]


@scenario
def errors_of_every_kind():
    def seen(call):
        error = attempt(call)
        try:
            call()
        except BaseException as raised:
            cause = getattr(raised, "cause", None)
            return [
                error,
                type(cause).__name__,
                attempt(lambda: scenarios.same_in_each_run(repr(cause))),
                getattr(raised, "code", None),
            ]
        return error

    actor, sync = Raises.remote(), SyncRaises.remote()
    of_workers = [name for name in errors() if name not in {"interrupt", "base", "generator exit"}]
    return {
        name: [
            seen(lambda name=name: ray.get(raises.remote(name))),
            seen(lambda name=name: ray.get(sync.raises.remote(name))),
            seen(lambda name=name: ray.get(actor.async_raises.remote(name))),
        ]
        for name in of_workers
    }


class RaisesWhenPickled:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        raise odd_errors.make(self.name)


@ray.remote(max_retries=0)
def odd(name):
    raise odd_errors.make(name)


@ray.remote(max_retries=0)
def odd_items(name):
    yield 1
    raise odd_errors.make(name)


@ray.remote(max_retries=0)
def odd_result(name):
    return RaisesWhenPickled(name)


@ray.remote(max_retries=0)
def odd_of_another(name):
    return ray.get(odd.remote(name))


@ray.remote(num_cpus=0)
class OddSync:
    def odd(self, name):
        raise odd_errors.make(name)

    def odd_items(self, name):
        yield 1
        raise odd_errors.make(name)


@ray.remote(num_cpus=0)
class OddAsync:
    async def odd(self, name):
        raise odd_errors.make(name)

    async def odd_items(self, name):
        yield 1
        raise odd_errors.make(name)


def shown(call):
    """What can be said of a result, or of an error without asking the error itself."""
    try:
        return ["result", repr(call())]
    except BaseException as error:
        kind = type(error)
        try:
            text = scenarios.same_in_each_run("".join(str(error)))
        except BaseException as unprintable:
            text = f"no text because of {type(unprintable).__name__}"
        frames = traceback.extract_tb(BaseException.__traceback__.__get__(error))
        return [
            [type.__dict__["__name__"].__get__(base) for base in type.__dict__["__mro__"].__get__(kind)],
            text,
            # Before Python 3.11 no wrapper of a call can hide.
            [frame.name for frame in frames] if sys.version_info >= (3, 11) else None,
        ]


@scenario
def errors_of_odd_kinds():
    """What a class of errors says of itself, or refuses to say, is its own affair."""
    sync, asynchronous = OddSync.remote(), OddAsync.remote()

    def items(generator):
        return [ray.get(ref, timeout=60) for ref in generator]

    ways = {
        "task": lambda name: ray.get(odd.remote(name), timeout=60),
        "generator task": lambda name: items(odd_items.remote(name)),
        "method": lambda name: ray.get(sync.odd.remote(name), timeout=60),
        "generator method": lambda name: items(sync.odd_items.remote(name)),
        "async method": lambda name: ray.get(asynchronous.odd.remote(name), timeout=60),
        "async generator": lambda name: items(asynchronous.odd_items.remote(name)),
        "of another task": lambda name: ray.get(odd_of_another.remote(name), timeout=60),
        "result": lambda name: ray.get(odd_result.remote(name), timeout=60),
    }
    where_it_is_called = {
        "argument": lambda name: ray.get(odd.remote(RaisesWhenPickled(name)), timeout=60),
        "put": lambda name: ray.put(RaisesWhenPickled(name)),
    }
    every_kind = [*odd_errors.KINDS, *odd_errors.FATAL_KINDS]
    return [
        {way: {name: shown(lambda: call(name)) for name in odd_errors.KINDS} for way, call in ways.items()},
        {way: {name: shown(lambda: call(name)) for name in every_kind} for way, call in where_it_is_called.items()},
    ]


@scenario
def exits_of_odd_kinds():
    """A worker that ends by ``SystemExit`` ends, whatever the status is."""

    @ray.remote(max_retries=0)
    def leaves(how):
        raise odd_errors.OddExit if how == "odd" else SystemExit([how])

    return [shown(lambda how=how: ray.get(leaves.remote(how), timeout=60))[0] for how in ("odd", "list")]


@scenario
def errors_that_are_no_exceptions():
    out = []
    for name in ("interrupt", "base", "generator exit"):
        out.append([attempt(lambda name=name: ray.get(raises.remote(name), timeout=60))[:2]])
    return out


@scenario
def errors_passed_on():
    @ray.remote(max_retries=0)
    def first():
        raise Custom(1, why="deep")

    @ray.remote(max_retries=0)
    def second():
        return ray.get(first.remote())

    @ray.remote(max_retries=0)
    def third():
        try:
            ray.get(second.remote())
        except Custom as error:
            raise KeyError("handled badly") from error

    @ray.remote(max_retries=0)
    def returns_it():
        try:
            ray.get(first.remote())
        except Custom as error:
            return error

    @ray.remote(max_retries=0)
    def shows_it():
        try:
            ray.get(first.remote())
        except Custom:
            return scenarios.same_in_each_run(traceback.format_exc())

    def whole(call):
        try:
            ray.get(call.remote())
        except Exception:
            return scenarios.same_in_each_run(traceback.format_exc())

    return [
        attempt(lambda: ray.get(second.remote())),
        attempt(lambda: ray.get(third.remote())),
        attempt(lambda: ray.get(returns_it.remote())),
        ray.get(shows_it.remote()),
        whole(third),
        whole(second),
    ]


@scenario
def retries():
    folder = tempfile.mkdtemp()

    @ray.remote
    def flaky(name, times, error):
        path = os.path.join(folder, name)
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) <= times:
            if error is None:
                os._exit(1)
            raise error
        return [os.path.getsize(path), ray._private.worker.global_worker.core_worker.get_current_task_attempt_number()]

    cases = {
        "all": (flaky.options(max_retries=3, retry_exceptions=True), 2, KeyError("k")),
        "listed": (flaky.options(max_retries=3, retry_exceptions=[KeyError, OSError]), 2, FileNotFoundError(2, "f")),
        "not listed": (flaky.options(max_retries=3, retry_exceptions=[KeyError]), 2, ValueError("v")),
        "none": (flaky.options(max_retries=3), 2, ValueError("v")),
        "too few": (flaky.options(max_retries=1, retry_exceptions=True), 5, ValueError("v")),
        "for ever": (flaky.options(max_retries=-1, retry_exceptions=True), 4, ValueError("v")),
        "no retries": (flaky.options(max_retries=0, retry_exceptions=True), 1, ValueError("v")),
        "died": (flaky.options(max_retries=1), 1, None),
        "died too often": (flaky.options(max_retries=0), 5, None),
    }
    out = {}
    refs = {name: task.remote(name, times, error) for name, (task, times, error) in cases.items()}
    for name, ref in refs.items():
        outcome = attempt(lambda ref=ref: ray.get(ref))
        out[name] = [outcome[:2] if name.startswith("died") else outcome, os.path.getsize(os.path.join(folder, name))]
    shutil.rmtree(folder)
    return [out, attempt(lambda: flaky.options(retry_exceptions=5)), attempt(lambda: flaky.options(max_retries=-2))]


@scenario
def processes_that_end():
    @ray.remote(max_retries=0)
    def ends(how):
        if how == "exit":
            os._exit(3)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "segmentation fault":
            os.kill(os.getpid(), signal.SIGSEGV)
        sys.exit(how)

    @ray.remote(max_retries=0)
    def ends_in_thread():
        thread = threading.Thread(target=sys.exit)
        thread.start()
        thread.join()
        return "thread ended"

    refs = {how: ends.remote(how) for how in ("exit", "killed", "segmentation fault", 0, "text")}
    out = {str(how): attempt(lambda ref=ref: ray.get(ref, timeout=90))[:2] for how, ref in refs.items()}
    out["thread"] = ray.get(ends_in_thread.remote())
    return out


if __name__ == "__main__":
    scenarios.run()
