"""What calls are given and give back: values, references, objects in the object store, wrong ones."""

import collections
import dataclasses
import enum
import functools
import gc
import threading
import time
import weakref

import harness
import numpy as np
import ray
import scenarios
from ray.exceptions import RayTaskError
from scenarios import attempt, scenario


@ray.remote
def add(a, b=1, *rest, c=2, **more):
    return [a, b, list(rest), c, more]


@ray.remote
def kinds(*args, **kwargs):
    return [type(value).__name__ for value in args], {name: type(value).__name__ for name, value in kwargs.items()}


@ray.remote
def echo(value):
    return value


@ray.remote
class Echo:
    def __init__(self, *args, **kwargs):
        self.given = [args, kwargs]

    def created_with(self):
        return self.given

    def echo(self, value):
        return value

    def add(self, a, b=1, *rest, c=2, **more):
        return [a, b, list(rest), c, more]

    async def unused(self):
        """Makes the actor an async one."""

    async def async_add(self, a, b=1, *rest, c=2, **more):
        return [a, b, list(rest), c, more]


@ray.remote
class SyncEcho:
    def echo(self, value):
        return value

    def add(self, a, b=1, *rest, c=2, **more):
        return [a, b, list(rest), c, more]

    def none(self):
        return "none"


@functools.cache
def an_actor():
    return Echo.options(num_cpus=0).remote("given", key="word")


@functools.cache
def a_sync_actor():
    return SyncEcho.options(num_cpus=0).remote()


def every_add():
    return [add, an_actor().add, an_actor().async_add, a_sync_actor().add]


@scenario
def arguments_of_every_kind():
    return [
        ray.get(
            [
                call.remote(1),
                call.remote(1, 2),
                call.remote(1, 2, 3, c=4, d=5),
                call.remote(a=1, b=2),
                call.remote(a=1),
                call.remote(1, d=None),
                call.remote(None, None, None, c=None),
                call.remote(ray.put(1), b=ray.put([2])),
                call.remote(*range(100), **{f"key{index}": index for index in range(100)}),
                call.remote(b"bytes", b=b""),
                call.remote(a=b"__RAY_DUMMY__", b=b"RAW"),
                call.remote(b"__RAY_DUMMY__", b"__RAY_DUMMY__"),
                call.remote("a", "a", a_=1),
            ]
        ).__repr__()
        for call in every_add()
    ]


@scenario
def wrong_arguments():
    calls = [
        lambda call: call.remote(),
        lambda call: call.remote(1, a=2),
        lambda call: ray.get(ray.remote(lambda: 1).remote(2)),
        lambda call: ray.get(ray.remote(lambda a: 1).remote(b=2)),
        lambda call: ray.get(ray.remote(lambda a: 1).remote(1, 2)),
        lambda call: ray.get(ray.remote(lambda *, a: 1).remote(1)),
        lambda call: ray.get(ray.remote(lambda *, a: 1).remote()),
        lambda call: ray.get(ray.remote(lambda a, /: 1).remote(a=1)),
        lambda call: call(1),
        lambda call: call.no_such_method,
        lambda call: call.remote,
    ]
    return [[attempt(lambda: str(bool(make(call)))) for make in calls] for call in every_add()]


@scenario
def wrong_arguments_of_a_creation():
    class One:
        def __init__(self, one):
            pass

    actor = ray.remote(One)
    return [
        attempt(lambda: actor.remote()),
        attempt(lambda: actor.remote(1, 2)),
        attempt(lambda: actor.remote(two=2)),
        attempt(lambda: actor(1)),
        attempt(lambda: ray.remote(type("None_", (), {})).remote(1)),
        attempt(lambda: actor.options(no_such_option=1)),
        attempt(lambda: add.options(no_such_option=1)),
        attempt(lambda: add.options(num_returns=-1).remote(1)),
        attempt(lambda: actor.options(max_restarts=-7).remote(1)),
        attempt(lambda: an_actor().add.options(num_returns="many").remote(1)),
    ]


@scenario
def names_that_are_used_inside():
    @ray.remote
    def inside(args, kwargs, function=None, method=None, name=None, _ray_trace_ctx=None, carried=None):
        return [args, kwargs, function, method, name, _ray_trace_ctx, carried]

    @ray.remote
    def anything(**kwargs):
        return sorted(kwargs)

    @ray.remote
    def selfish(self, cls=None):
        return [self, cls]

    @ray.remote
    def context(_ray_trace_ctx):
        return _ray_trace_ctx

    return [
        ray.get(inside.remote(1, 2, 3)),
        ray.get(inside.remote(args=[1], kwargs={"a": 2}, function="f", method="m", name="n")),
        # Ray itself refuses some of those that have the name of its own tracing's parameter.
        attempt(lambda: ray.get(inside.remote(args=1, kwargs=2, _ray_trace_ctx={"a": "mine"}, carried=b"c"))),
        attempt(lambda: ray.get(anything.remote(_ray_trace_ctx=4))),
        ray.get(anything.remote(self=1, args=2, kwargs=3, context=5, span=6)),
        ray.get(selfish.remote(1, cls=2)),
        ray.get(selfish.remote(self=1)),
        attempt(lambda: ray.get(context.remote("mine"))),
        attempt(lambda: ray.get(context.remote(_ray_trace_ctx=None))),
        attempt(lambda: repr(ray.get(an_actor().add.remote(1, kwargs=2, args=3, _ray_trace_ctx=4)))),
        attempt(lambda: repr(ray.get(Echo.options(num_cpus=0).remote(_ray_trace_ctx=1, args=2).created_with.remote()))),
    ]


@scenario
def remote_given_its_arguments_as_lists():
    keywords = {"c": 5}
    return [
        ray.get(add._remote([1])),
        ray.get(add._remote(args=(1, 2), kwargs={"c": 3})),
        ray.get(add._remote(kwargs={"a": 1})),
        ray.get(add._remote([1], keywords)),
        ray.get(add._remote([1], keywords)),
        ray.get(a_sync_actor().add._remote([1], keywords)),
        ray.get(a_sync_actor().none._remote()),
        ray.get(a_sync_actor().none._remote([], {})),
        repr(ray.get(Echo._remote([1], keywords, num_cpus=0).created_with.remote())),
        keywords,
    ]


@scenario
def references_are_resolved_at_the_first_level_only():
    ref = ray.put("value")
    kept = ray.get(kinds.remote(ref, [ref], {"ref": ref}, (ref,), key=ref, nested=[ref]))

    @ray.remote
    def resolve(refs):
        return ray.get(refs)

    @ray.remote
    def pass_on(ref_in_list):
        return ref_in_list[0]

    @ray.remote
    def same(refs):
        return [len(set(refs)), refs[0] == refs[1], refs[0].hex() == refs[1].hex()]

    returned = ray.get(pass_on.remote([ref]))
    return [
        kept,
        ray.get(resolve.remote([ref, echo.remote(2)])),
        type(returned).__name__,
        returned == ref,
        ray.get(returned),
        ray.get(same.remote([ref, ref])),
        ray.get(ray.get(ray.put([ref]))[0]),
    ]


@scenario
def types_of_values():
    class Colour(enum.Enum):
        RED = 1

    @dataclasses.dataclass
    class Point:
        x: int

    class Text(str):
        __slots__ = ()

    Named = collections.namedtuple("Named", "a b")
    values = [
        *(None, True, 1, 1.5, 2j, "s", Text("t"), b"b", bytearray(b"ba"), memoryview(b"mv").tobytes()),
        *([], (), {}, set(), frozenset(), range(3), slice(1), Ellipsis, NotImplemented),
        *(Colour.RED, Point(1), Named(1, 2), collections.OrderedDict(a=1), collections.deque([1])),
        *(np.float32(1), np.array([1]), np.array("s"), np.array([None]), int, Point, len, ValueError("e"), 1 << 70),
    ]
    out = ray.get([echo.remote(value) for value in values])
    through_actor = ray.get([an_actor().echo.remote(value) for value in values])
    put = ray.get([ray.put(value) for value in values])
    return [
        [type(value).__name__ for value in out],
        [type(value).__name__ for value in through_actor],
        [type(value).__name__ for value in put],
        [repr(value) for value in out if not isinstance(value, type)],
        ray.get(kinds.remote(*values)),
        [isinstance(out[19], Colour), isinstance(out[20], Point), type(out[20]) is Point],
        attempt(lambda: ray.get(echo.remote(memoryview(b"mv")))),
    ]


@scenario
def arrays_without_copy():
    @ray.remote
    def flags(array, expected=None):
        return [bool(array.flags.writeable), bool(array.flags.owndata), str(array.dtype), list(array.shape)]

    @ray.remote
    def make(size):
        return np.arange(size)

    @ray.remote
    def write(array):
        array[0] = 1

    small, large = np.zeros(3), np.zeros((1000, 500))
    fetched = ray.get(ray.put(large))
    made = ray.get([make.remote(10), make.remote(100_000)])
    return [
        ray.get([flags.remote(array) for array in (small, large)]),
        ray.get([flags.remote(array=array) for array in (small, large)]),
        ray.get(flags.remote(ray.put(large), ray.put(small))),
        ray.get(flags.remote(make.remote(100_000))),
        [[bool(array.flags.writeable), bool(array.flags.owndata)] for array in (fetched, *made)],
        np.shares_memory(ray.get(ray.put(large)), fetched),
        attempt(lambda: ray.get(write.options(max_retries=0).remote(ray.put(large))))[:3],
        attempt(lambda: ray.get(write.options(max_retries=0).remote(small)))[:3],
    ]


class Refuses:
    """Cannot be pickled, and says why."""

    def __reduce__(self):
        raise RuntimeError("I stay here")


class RefusesThere:
    """Cannot be unpickled."""

    def __reduce__(self):
        return refuse, ()


def refuse():
    raise RuntimeError("not here")


@scenario
def what_cannot_be_serialized():
    lock = threading.Lock()

    @ray.remote(max_retries=0)
    def closure():
        return lock

    @ray.remote(max_retries=0)
    def give():
        return threading.Lock()

    return [
        attempt(lambda: echo.remote(lock)),
        attempt(lambda: echo.remote(value=lock)),
        attempt(lambda: an_actor().echo.remote(lock)),
        attempt(lambda: an_actor().echo.remote(value=[lock])),
        attempt(lambda: Echo.remote(lock)),
        attempt(lambda: ray.put(lock)),
        attempt(lambda: ray.put(Refuses())),
        attempt(lambda: echo.remote(Refuses())),
        attempt(lambda: closure.remote()),
        attempt(lambda: ray.get(give.remote())),
        attempt(lambda: ray.get(echo.options(max_retries=0).remote(RefusesThere()))),
        attempt(lambda: ray.get(an_actor().echo.remote(RefusesThere()))),
        attempt(lambda: ray.get(ray.put(RefusesThere()))),
        attempt(lambda: ray.put(ray.put(1))),
    ]


@scenario
def a_failed_argument_fails_the_call():
    @ray.remote(max_retries=0)
    def fails():
        raise KeyError("argument")

    ref = fails.remote()
    return [
        attempt(lambda: ray.get(echo.remote(ref))),
        attempt(lambda: ray.get(echo.remote(value=ref))),
        attempt(lambda: ray.get(an_actor().echo.remote(ref))),
        attempt(lambda: ray.get((_actor := Echo.options(num_cpus=0).remote(ref)).created_with.remote()))[:2],
    ]


@scenario
def returns():
    @ray.remote
    def give(value):
        return value

    refs = give.options(num_returns=3).remote((1, 2, 3))
    return [
        type(refs).__name__,
        [type(ref).__name__ for ref in refs],
        ray.get(refs),
        ray.get(give.options(num_returns=2).remote("ab")),
        ray.get(give.options(num_returns=2).remote({"k": 1, "l": 2})),
        give.options(num_returns=0).remote(None),
        type(give.options(num_returns=1).remote((1, 2))).__name__,
        attempt(lambda: ray.get(give.options(num_returns=2, max_retries=0).remote((1,)))),
        attempt(lambda: ray.get(give.options(num_returns=2, max_retries=0).remote(1))),
        attempt(lambda: ray.get(an_actor().echo.options(num_returns=2).remote([1, 2]))),
        attempt(lambda: ray.get(an_actor().echo.options(num_returns=2).remote([1]))),
        an_actor().echo.options(num_returns=0).remote(1),
        attempt(lambda: ray.get(give.options(num_returns=0).remote(1))),
        type(give.remote(1).future()).__name__,
        give.remote(3).future().result(timeout=30),
    ]


@scenario
def get_wait_and_put():
    refs = [echo.remote(number) for number in range(4)]
    ready, left = ray.wait(refs, num_returns=4, timeout=30)

    @ray.remote(max_retries=0)
    def never(_seconds):
        harness.until_killed()

    slow = never.remote(60)
    results = [
        sorted(ray.get(ready)),
        left,
        attempt(lambda: ray.get(slow, timeout=0.1)),
        len(ray.wait([slow], timeout=0)[1]),
        attempt(lambda: ray.wait([refs[0], refs[0]])),
        attempt(lambda: ray.wait(refs[0])),
        attempt(lambda: ray.get(1)),
        attempt(lambda: ray.get([1])),
        ray.get([]),
        attempt(lambda: ray.wait(refs, num_returns=0)),
    ]
    ray.cancel(slow, force=True)
    return results


class Fragile:
    """Says how many of it there are."""

    alive = weakref.WeakSet()

    def __init__(self):
        Fragile.alive.add(self)

    def __reduce__(self):
        return type(self), ()


@scenario
def arguments_and_results_are_released():
    @ray.remote(num_cpus=0)
    class Keeper:
        def __init__(self):
            gc.disable()

        def drop(self, one, two=None):
            return None

        def fail(self, one, two=None):
            raise ValueError("failed")

        def generate(self, one):
            for _ in range(3):
                made = Fragile()
                yield len(Fragile.alive)
                del made

        def give(self):
            return Fragile()

        def alive(self):
            return len(Fragile.alive)

    keeper = Keeper.remote()

    def alive():
        return ray.get(keeper.alive.remote())

    results = [ray.get(keeper.drop.remote(Fragile(), two=Fragile())), alive()]
    results += [attempt(lambda: ray.get(keeper.fail.remote(Fragile(), two=Fragile())))[0], alive()]
    results += [[ray.get(ref) for ref in keeper.generate.remote(Fragile())], alive()]
    results += [type(ray.get(keeper.give.remote())).__name__, alive()]
    return results


@scenario
def references_are_counted():
    """How many references Ray knows of in this process, and what is in the object store, once calls are over."""
    worker = ray._private.worker.global_worker.core_worker
    array = np.zeros(300_000)

    def counted(refs):
        counts = worker.get_all_reference_counts()
        return [counts.get(ref.hex().encode(), counts.get(ref.hex())) for ref in refs]

    def await_gone(names):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if not any(name in worker.get_all_reference_counts() for name in names):
                return True
            time.sleep(0.05)
        return sorted(worker.get_all_reference_counts().items())

    ref = ray.put(array)
    result = echo.remote(ref)
    ray.wait([result])
    methods = [an_actor().echo.remote(ref), a_sync_actor().echo.remote(value=ref)]
    ray.wait(methods, num_returns=2)
    known = [name in worker.get_all_reference_counts() for name in (ref.hex().encode(), result.hex().encode())]
    held = counted([ref, result, *methods])
    names = [one.hex().encode() for one in (ref, result, *methods)]
    del ref, result, methods
    return [known, held, await_gone(names)]


@scenario
def futures_and_callbacks():
    done, seen = threading.Event(), []

    def take(value):
        seen.append(value)
        done.set()

    ref = echo.remote(7)
    ref._on_completed(take)
    done.wait(30)

    @ray.remote(max_retries=0)
    def fails():
        raise ValueError("future")

    future = fails.remote().future()
    return [seen, attempt(lambda: future.result(timeout=30)), isinstance(future.exception(), RayTaskError)]


@scenario
def more_than_a_call_can_hold_inline():
    """Arguments of many sizes about the one from which on they go to the object store."""
    sizes = [*(10, 99_000, 102_000, 110_000, 1_000_000), *[20_000] * 10]

    @ray.remote
    def lengths(*args, **kwargs):
        return [len(value) for value in (*args, *kwargs.values())]

    return [
        ray.get(lengths.remote(*(b"x" * size for size in sizes))),
        ray.get(lengths.remote(*("x" * size for size in sizes))),
        ray.get(lengths.remote(**{f"k{index}": b"x" * size for index, size in enumerate(sizes)})),
    ]


if __name__ == "__main__":
    scenarios.run()
