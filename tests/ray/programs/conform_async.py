"""Async and threaded actors, concurrency groups, awaiting, time-outs, and the cancelling of everything."""

import asyncio
import functools
import os
import shutil
import sys
import tempfile
import threading
import time

import ray
import scenarios
import shared
from scenarios import attempt, scenario
from shared import eventually, signals


@ray.remote
def plain(value):
    return value


@ray.remote(max_retries=0)
def fails():
    raise ValueError("a task")


@ray.remote(num_cpus=0)
class Async:
    def __init__(self, telling):
        self.telling = telling
        self.event = asyncio.Event()
        self.running = 0

    async def set(self):
        self.event.set()

    async def wait(self, value):
        self.running += 1
        await self.event.wait()
        return value

    async def waiting(self):
        return self.running

    async def fails(self):
        await asyncio.sleep(0)
        raise KeyError("async")

    def sync_fails(self):
        raise KeyError("sync in async")

    def sync(self, *args, **kwargs):
        return [list(args), kwargs, threading.current_thread() is threading.main_thread()]

    async def awaits(self, refs):
        return await refs[0]

    async def gathers(self, refs):
        out = await asyncio.gather(*refs, return_exceptions=True)
        return [value if not isinstance(value, BaseException) else scenarios.described(value)[:3] for value in out]

    async def calls(self):
        return [await plain.remote(1), *(await asyncio.gather(plain.remote(2), plain.remote(value=3)))]

    async def calls_another(self, other):
        try:
            return await other.fails.remote()
        except KeyError as error:
            return scenarios.described(error)[:3]

    async def passes_on(self):
        await asyncio.wait_for(fails.remote(), 60)

    async def times_out(self, name):
        try:
            await asyncio.wait_for(asyncio.sleep(600), 0.01)
        except asyncio.TimeoutError as error:
            return type(error).__name__

    async def hangs(self, name):
        _sent = self.telling.send.remote(name)
        try:
            await asyncio.sleep(600)
        except BaseException as error:
            cancelling = getattr(asyncio.current_task(), "cancelling", int)  # from Python 3.11 on
            await self.telling.tell.remote(name, [type(error).__name__, str(error), cancelling()])
            raise

    async def swallows(self, name):
        _sent = self.telling.send.remote(name)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "swallowed"

    async def hangs_below(self, name):
        return await self.hangs(name)

    async def calls_what_hangs(self, name, other):
        return await other.hangs.remote(name)

    async def cancels_itself(self):
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def raises_cancelled(self):
        raise asyncio.CancelledError("raised")

    async def own_task(self):
        task = asyncio.create_task(self.fails())
        return (await asyncio.gather(task, return_exceptions=True))[0].args

    async def environment(self):
        """What asyncio shows of this call."""
        task = asyncio.current_task()
        return [
            type(task).__name__,
            type(asyncio.get_running_loop()).__name__,
            threading.current_thread() is threading.main_thread(),
            len([other for other in asyncio.all_tasks() if other is not task and other.get_coro() is task.get_coro()]),
            asyncio.iscoroutine(task.get_coro()),
            task.get_coro().__name__,
            len(asyncio.all_tasks()),
        ]

    async def variable(self, value):
        seen = shared.variable.get()
        shared.variable.set(value)
        await asyncio.sleep(0)
        return [
            seen,
            shared.variable.get(),
            await asyncio.create_task(self.see()),
            await asyncio.to_thread(shared.variable.get),
        ]

    async def see(self):
        return shared.variable.get()

    def sync_variable(self, value):
        seen = shared.variable.get()
        shared.variable.set(value)
        return seen

    async def returns_coroutine(self):
        return self.see()

    async def returns_refs(self):
        return [plain.remote(1)]

    def returns_coroutine_of_sync(self):
        return self.see()


@functools.cache
def an_async():
    return Async.remote(signals())


@functools.cache
def another():
    return Async.remote(signals())


@scenario
def calls_run_at_once():
    actor = Async.remote(None)
    waiting = [actor.wait.remote(number) for number in range(20)]
    all_run = eventually(lambda: ray.get(actor.waiting.remote()) == 20)
    ready, _ = ray.wait(waiting, timeout=0)
    ray.get(actor.set.remote())
    return [all_run, ready, ray.get(waiting)]


@scenario
def awaiting():
    actor, other = an_async(), another()
    return [
        attempt(lambda: ray.get(call.remote(*args), timeout=60))
        for call, args in [
            (actor.fails, ()),
            (actor.sync_fails, ()),
            (actor.sync, (1, b"b")),
            (actor.awaits, ([plain.remote(5)],)),
            (actor.awaits, ([fails.remote()],)),
            (actor.gathers, ([plain.remote(1), fails.remote(), other.fails.remote(), plain.remote(None)],)),
            (actor.calls, ()),
            (actor.calls_another, (other,)),
            (actor.passes_on, ()),
            (actor.times_out, ("t",)),
            (actor.own_task, ()),
            (actor.environment, ()),
            (actor.returns_coroutine, ()),
            (actor.returns_coroutine_of_sync, ()),
            (actor.fails.options(num_returns=2), ()),
        ]
    ] + [ray.get(ray.get(actor.returns_refs.remote()))]


@scenario
def context_variables():
    actor = an_async()
    first = ray.get([actor.variable.remote(number) for number in range(2)])
    return [first, ray.get(actor.sync_variable.remote("sync")), ray.get(actor.variable.remote(3))]


@scenario
def awaiting_in_the_driver():
    async def main():
        out = [await plain.remote(1)]
        out += await asyncio.gather(plain.remote(2), an_async().calls.remote())
        for ref in (fails.remote(), an_async().fails.remote()):
            try:
                await ref
            except Exception as error:
                out.append(scenarios.described(error)[:4])
        done, pending = await asyncio.wait([plain.remote(3).as_future()] if hasattr(ray.ObjectRef, "as_future") else [])
        out += [len(done), len(pending)]
        hanging = an_async().hangs.remote("driver")
        try:
            await asyncio.wait_for(hanging, 0.05)
        except asyncio.TimeoutError as error:
            out.append(type(error).__name__)
        await signals().wait.remote("driver")
        ray.cancel(hanging)
        try:
            await hanging
        except BaseException as error:
            out.append(scenarios.described(error)[:2])
        return out

    return asyncio.run(main())


@scenario
def cancelled_coroutines():
    held, actor, other = signals(), an_async(), another()
    out = []
    for name, call, args in [
        ("plain", actor.hangs, ()),
        ("below", actor.hangs_below, ()),
        ("swallowed", actor.swallows, ()),
        ("recursive", actor.calls_what_hangs, (other,)),
    ]:
        ref = call.remote(name, *args)
        ray.get(held.wait.remote(name), timeout=60)
        ray.cancel(ref, recursive=name == "recursive")
        out.append([attempt(lambda ref=ref: ray.get(ref, timeout=60))])
        if name != "swallowed":
            out[-1].append(ray.get(held.told.remote(name, 1), timeout=60))
    ref = actor.hangs.remote("forced")
    out.append(attempt(lambda: ray.cancel(ref, force=True)))
    ray.get(held.wait.remote("forced"), timeout=60)
    ray.cancel(ref)
    out.append(attempt(lambda: ray.get(ref, timeout=60))[:3])
    out.append(attempt(lambda: ray.get(actor.cancels_itself.remote(), timeout=60)))
    out.append(attempt(lambda: ray.get(actor.raises_cancelled.remote(), timeout=60)))
    out.append(ray.get(actor.calls.remote(), timeout=60))
    return out


@scenario
def cancelled_while_running():
    folder = tempfile.mkdtemp()

    def tell(name, text=""):
        path = os.path.join(folder, name)
        with open(f"{path}.part", "w") as file:
            file.write(text)
        os.rename(f"{path}.part", path)

    def told(name):
        eventually(lambda: os.path.exists(os.path.join(folder, name)))
        with open(os.path.join(folder, name)) as file:
            return file.read()

    def tell_from(frame, line, name):
        """From a thread, once the task has got past the line: its error must come from the same one each time."""
        threading.Thread(target=lambda: eventually(lambda: frame.f_lineno > line) and tell(f"{name} begins")).start()

    @ray.remote(max_retries=0)
    def hangs(name):
        frame = sys._getframe()
        try:
            tell_from(frame, frame.f_lineno, name)
            while True:
                time.sleep(0.01)
        except BaseException as error:
            tell(f"{name} ends", f"{type(error).__name__} {error}")
            raise

    @ray.remote(max_retries=0)
    def hangs_deeper(name):
        return ray.get(hangs.remote(name))

    @ray.remote(max_retries=0)
    def swallows(name):
        frame = sys._getframe()
        try:
            tell_from(frame, frame.f_lineno, name)
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            return "swallowed"

    out = []
    for name, task, options in [
        ("running", hangs, {}),
        ("swallowing", swallows, {}),
        ("nested", hangs_deeper, {"recursive": True}),
        ("killed", hangs, {"force": True}),
    ]:
        ref = task.remote(name)
        told(f"{name} begins")
        ray.cancel(ref, **options)
        out.append(attempt(lambda ref=ref: ray.get(ref, timeout=60)))
        if name in {"running", "nested"}:
            out.append(told(f"{name} ends"))
    shutil.rmtree(folder)
    return out


@scenario
def cancelled_before_and_after():
    held = signals()

    @ray.remote(max_retries=0)
    def waits(telling, name):
        ray.get(telling.wait.remote(name))

    @ray.remote(max_retries=0)
    def after(_waited):
        return "ran"

    finished = plain.remote(1)
    ray.get(finished)
    queued = after.remote(waits.remote(held, "never"))
    impossible = plain.options(resources={"no such resource": 1}).remote(1)
    out = []
    for ref in (finished, queued, impossible):
        out.append(attempt(lambda ref=ref: ray.cancel(ref)))
        out.append(attempt(lambda ref=ref: ray.get(ref, timeout=60)))
    ray.get(held.send.remote("never"))
    out.append(attempt(lambda: ray.cancel(ray.put(1))))
    out.append(attempt(lambda: ray.cancel("not a ref")))
    return out


@ray.remote(num_cpus=0, max_concurrency=3)
class Threaded:
    def __init__(self):
        self.barrier = threading.Barrier(3, timeout=60)
        self.local = threading.local()

    def meet(self, value):
        self.barrier.wait()
        return [value, threading.current_thread() is threading.main_thread()]

    def local_state(self):
        """Whether each thread has its own."""
        seen = getattr(self.local, "value", None)
        self.local.value = threading.get_ident()
        self.barrier.wait()
        return [seen in {None, threading.get_ident()}, self.local.value == threading.get_ident()]

    def fails(self):
        raise KeyError("threaded")

    def variable(self):
        seen = shared.variable.get()
        shared.variable.set("threaded")
        self.barrier.wait()
        return [seen, shared.variable.get()]

    def count(self, n):
        for number in range(n):
            yield number


@ray.remote(num_cpus=0, concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=60)

    @ray.method(concurrency_group="io")
    def meet(self):
        self.barrier.wait()
        return self.thread()

    @ray.method(concurrency_group="compute", num_returns=2)
    def compute(self):
        return self.thread(), 2

    def thread(self):
        return threading.current_thread() is threading.main_thread()

    @ray.method(concurrency_group="io")
    def fails(self):
        raise KeyError("grouped")

    @ray.method(concurrency_group="io")
    def variable(self):
        seen = shared.variable.get()
        shared.variable.set("grouped")
        return seen in {"unset", "grouped"}


@ray.remote(num_cpus=0, concurrency_groups={"io": 2, "compute": 4})
class AsyncGrouped:
    def __init__(self):
        self.arrived = [False, False]

    @ray.method(concurrency_group="io")
    async def meet(self, which):
        """Comes back when another call has come, on the event loop of its group."""
        self.arrived[which] = True
        while not self.arrived[1 - which]:
            await asyncio.sleep(0.01)
        return [which, asyncio.current_task() is not None]

    async def default(self):
        return "default"

    def loop(self):
        return "sync"


@scenario
def threaded_actors():
    actor = Threaded.remote()
    return [
        ray.get([actor.meet.remote(name) for name in "abc"]),
        ray.get([actor.local_state.remote() for _ in range(3)]),
        attempt(lambda: ray.get(actor.fails.remote())),
        [[seen in {"unset", "threaded"}, now] for seen, now in ray.get([actor.variable.remote() for _ in range(3)])],
        [ray.get(ref) for ref in actor.count.remote(3)],
    ]


@scenario
def concurrency_groups():
    grouped, asynchronous = Grouped.remote(), AsyncGrouped.remote()
    return [
        ray.get([grouped.meet.remote(), grouped.meet.options(concurrency_group="io").remote()]),
        ray.get(grouped.compute.remote()),
        ray.get([grouped.thread.remote(), grouped.thread.options(concurrency_group="compute").remote()]),
        attempt(lambda: ray.get(grouped.fails.remote())),
        ray.get([grouped.variable.remote() for _ in range(4)]),
        ray.get([asynchronous.meet.remote(0), asynchronous.meet.options(concurrency_group="compute").remote(1)]),
        ray.get([asynchronous.default.remote(), asynchronous.loop.options(concurrency_group="io").remote()]),
    ]


if __name__ == "__main__":
    scenarios.run()
