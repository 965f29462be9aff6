"""Is one driver of the cluster after another; some end where spans of the program's are open."""

import code
import contextlib
import io
import os
import threading

import ray
from opentelemetry import baggage, context, trace

tracer = trace.get_tracer("in a row")


@ray.remote
def work():
    return 1


def an_error_in_a_cell():
    """As a notebook notes it, and continues."""
    with contextlib.redirect_stderr(io.StringIO()):
        code.InteractiveInterpreter().runsource("1 / 0")


def driver(end=ray.shutdown, hook=None):
    ray.init(address=os.environ["RTH_ADDRESS"], log_to_driver=False, _tracing_startup_hook=hook)
    ray.get(work.remote())
    end()


def end_within_a_span():
    with tracer.start_as_current_span("within"):
        ray.shutdown()


def end_in_a_thread():
    thread = threading.Thread(target=ray.shutdown)
    thread.start()
    thread.join()


def end_with_baggage():
    context.attach(baggage.set_baggage("mine", "kept"))
    end_in_a_thread()


def note(name):
    tracer.start_span(name).end()


an_error_in_a_cell()
hooks = os.environ["RTH_HOOKS"].split()
for end, hook in zip((end_within_a_span, end_in_a_thread, ray.shutdown), hooks, strict=True):
    driver(end, hook)
    note(f"after {end.__name__}")
    an_error_in_a_cell()
with tracer.start_as_current_span("around"):
    driver()
    driver()
    note("within around")
driver(end_with_baggage)
driver(lambda: None)
with tracer.start_as_current_span("across"):
    ray.shutdown()
    driver(lambda: None)
ray.get(work.remote())
ray.shutdown()
print("RESULT", f'"{baggage.get_baggage("mine")}"')
