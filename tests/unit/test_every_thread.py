"""With RAY_TRACING_THREADS, threads and calls of pools have the context of the code that made them, and nothing
else.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import context as context_api

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import every_thread, tracing

KEY = "key"
variable = contextvars.ContextVar("variable", default="unset")


@pytest.fixture(autouse=True)
def patches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Patches]:
    monkeypatch.setattr(tracing, "active", object())
    made = Patches()
    assert every_thread.patch(made)
    yield made
    made.undo()


def within(value: str, call: Callable[[], Any]) -> Any:
    token = context_api.attach(context_api.set_value(KEY, value))
    try:
        return call()
    finally:
        context_api.detach(token)


def here() -> Any:
    return context_api.get_value(KEY)


def in_thread(make: Callable[[Callable[[], None]], threading.Thread]) -> Any:
    found: list[Any] = []
    thread = make(lambda: found.append((here(), variable.get())))
    thread.start()
    thread.join()
    assert not [name for name in vars(thread) if "tracing" in name]
    return found[0]


class WithRun(threading.Thread):
    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self.call = call

    def run(self) -> None:
        self.call()


@pytest.mark.parametrize("make", [lambda call: threading.Thread(target=call), WithRun], ids=["target", "run"])
def test_a_thread_has_the_context_of_who_started_it(make: Any) -> None:
    """And not the variables of the program."""
    variable.set("set")
    assert within("a", lambda: in_thread(make)) == ("a", "unset")
    assert in_thread(make) == (None, "unset")


def test_a_call_of_a_pool_has_the_context_of_who_submitted_it() -> None:
    """Each one, whoever was the first, for whom the pool has started its thread."""
    with ThreadPoolExecutor(1) as pool:
        submitted = [within("a", lambda: pool.submit(here)), pool.submit(here), within("b", lambda: pool.submit(here))]
        assert [each.result() for each in submitted] == ["a", None, "b"]
        assert within("c", lambda: list(pool.map(lambda _: here(), range(2)))) == ["c", "c"]


def test_a_call_of_a_loops_executor_has_the_context_of_its_coroutine() -> None:
    async def ask(value: str) -> list[Any]:
        token = context_api.attach(context_api.set_value(KEY, value))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        found = [await loop.run_in_executor(None, here), await asyncio.to_thread(here)]
        context_api.detach(token)
        return found

    async def both() -> Any:
        return await asyncio.gather(ask("a"), ask("b"))

    assert asyncio.run(both()) == [["a", "a"], ["b", "b"]]


def test_what_fails_fails_as_without(patches: Patches) -> None:
    """The traceback of a call in a pool, a thread that cannot start, and a call after the end."""

    def fails() -> None:
        raise KeyError("x")

    def names_of(error: BaseException) -> list[str]:
        trace, found = error.__traceback__, []
        while trace is not None:
            found.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        return found[1:]

    def all_of_it() -> list[Any]:
        found: list[Any] = []
        thread = threading.Thread(target=int)
        thread.start()
        with ThreadPoolExecutor(1) as pool:
            for call in (pool.submit(fails).result, thread.start):
                with pytest.raises((KeyError, RuntimeError)) as caught:
                    call()
                found.append((str(caught.value), names_of(caught.value)))
        with pytest.raises(RuntimeError) as caught:
            pool.submit(int)
        found.append((str(caught.value), names_of(caught.value)))
        return found

    with_patches = within("a", all_of_it)
    assert len(with_patches) == 3
    patches.undo()
    assert with_patches == all_of_it()


def test_what_another_library_puts_on_top_stays(patches: Patches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours stays below it then, and comes once if tracing begins again."""
    ours, calls = ThreadPoolExecutor.submit, []

    def theirs(executor: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        calls.append(fn)
        return ours(executor, fn, *args, **kwargs)

    with monkeypatch.context() as their_patch, ThreadPoolExecutor(1) as pool:
        their_patch.setattr(ThreadPoolExecutor, "submit", theirs)
        patches.undo()
        with monkeypatch.context() as ended:
            ended.setattr(tracing, "active", None)
            assert within("a", lambda: pool.submit(here).result()) is None
        assert every_thread.patch(patches)
        assert within("a", lambda: pool.submit(here).result()) == "a"
        assert calls == [here, here]
        assert ThreadPoolExecutor.submit is theirs
    patches.undo()
    assert ThreadPoolExecutor.submit is not ours


def test_it_is_undone(patches: Patches) -> None:
    patches.undo()
    with ThreadPoolExecutor(1) as pool:
        assert within("a", lambda: pool.submit(here).result()) is None
    assert within("a", lambda: in_thread(lambda call: threading.Thread(target=call))) == (None, "unset")
