"""Generators as results of tasks and methods: their body runs inside the span, however long Ray takes to drain it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from time import perf_counter
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a


def traced(
    body: Generator[Any, Any, Any],
    context: Context,
    span: RecordedSpan | None,
    yielded: Callable[[RecordedSpan, Any], None] | None = None,
) -> Generator[Any, Any, Any]:
    """``body``, with ``context`` attached during each step; ends ``span`` when it is done.

    ``yielded`` is called with the span, if there is one, and each item. It must not raise.

    Values sent in, exceptions thrown in, closing and the return value are passed through. Context variables that the
    body sets stay set, as without tracing. A generator that is dropped before its first step also ends its span.
    """
    steps = _steps(body, context, span, yielded if span is not None else None)
    next(steps)  # enter the try block, so that its end is noticed however it ends
    return steps


def _steps(
    body: Generator[Any, Any, Any],
    context: Context,
    span: RecordedSpan | None,
    yielded: Callable[[Any, Any], None] | None,
) -> Generator[Any, Any, Any]:
    items, held = 0, 0.0
    try:
        yield
        step: Callable[[Any], Any] = body.send
        value: Any = None
        while True:
            token = attach(context)
            try:
                item = step(value)
            finally:
                # A context that the body leaves attached across its yield is attached again in the next step.
                context = get_current()
                detach(token)
            items += 1
            if yielded is not None:
                yielded(span, item)
            at = perf_counter()
            try:
                sent = yield item
                held += perf_counter() - at
            except GeneratorExit:
                token = attach(context)
                try:
                    body.close()
                finally:
                    detach(token)
                raise
            except BaseException as error:  # noqa: BLE001  thrown in by the consumer, for the body to handle
                hide_frame(error)
                step, value = body.throw, error
            else:
                step, value = body.send, sent
    except StopIteration as stop:
        _end(span, items, held, None)
        return stop.value
    except BaseException as error:
        hide_frame(error)
        _end(span, items, held, error)
        raise


def traced_async(
    body: AsyncGenerator[Any, Any], context: Context, span: RecordedSpan | None
) -> AsyncGenerator[Any, Any]:
    """Like :func:`traced`."""
    return traced_from_first_step(body, _Unbegun(context, span).begin)


class _Unbegun:
    """Ends the span of an async generator that is closed or dropped before its first step.

    The generator's frame holds it until then. Unlike in :func:`traced`, the first step cannot be made beforehand: at
    that step an async generator registers with the event loop, which may not be running yet.
    """

    __slots__ = ("_context", "_span")

    def __init__(self, context: Context, span: RecordedSpan | None) -> None:
        self._context, self._span = context, span

    def begin(self) -> Begun:
        """Hand the span over: from now on the generator ends it."""
        span, self._span = self._span, None
        return self._context, span

    def __del__(self) -> None:
        _end(self._span, 0, 0.0, None)


async def traced_from_first_step(
    body: AsyncGenerator[Any, Any], begin: Callable[[], Begun | None]
) -> AsyncGenerator[Any, Any]:
    """Like :func:`traced`, with a context and span that ``begin`` returns at the first step, in the task of the event
    loop that makes it; they may be None. A generator that is dropped before that has no span.
    """
    context, span = begin() or (get_current(), None)
    items, held = 0, 0.0
    try:
        step = body.__anext__()
        while True:
            token = attach(context)
            try:
                item = await step
            finally:
                context = get_current()  # as above
                detach(token)
            items += 1
            at = perf_counter()
            try:
                sent = yield item
                held += perf_counter() - at
            except GeneratorExit:
                token = attach(context)
                try:
                    await body.aclose()
                finally:
                    detach(token)
                raise
            except BaseException as error:  # noqa: BLE001  as above
                hide_frame(error)
                step = body.athrow(error)
            else:
                step = body.asend(sent)
    except StopAsyncIteration:
        _end(span, items, held, None)
    except BaseException as error:
        hide_frame(error)
        _end(span, items, held, error)
        raise


async def watched(
    body: Any, on_item: Callable[[Any], object], on_end: Callable[[BaseException | None], None] | None = None
) -> AsyncGenerator[Any, Any]:
    """The items of ``body``, each of which ``on_item`` sees first; ``on_end`` is called when it is done or has failed.

    Values sent in, exceptions thrown in and closing are passed on to ``body``. What is called must not raise.
    """
    step = body.__anext__()
    try:
        while True:
            item = await step
            on_item(item)
            try:
                sent = yield item
            except GeneratorExit:
                await body.aclose()
                raise
            except BaseException as error:
                hide_frame(error)
                if not hasattr(body, "athrow"):
                    raise
                step = body.athrow(error)
            else:
                step = body.__anext__() if sent is None else body.asend(sent)
    except StopAsyncIteration:
        if on_end is not None:
            on_end(None)
    except BaseException as error:
        hide_frame(error)
        if on_end is not None:
            on_end(error)
        raise


def _end(span: RecordedSpan | None, items: int, held: float, error: BaseException | None) -> None:
    if span is None:
        return
    try:
        span.set_attribute(names.RAY_GENERATOR_ITEMS, items)
        span.set_attribute(names.RAY_GENERATOR_HELD, held)
        # A consumer that stops early is not an error.
        if error is not None and not is_a(error, GeneratorExit):
            fail(span, error)
    finally:
        span.end()
