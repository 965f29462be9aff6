"""A module that drivers and workers import."""

import ray
from opentelemetry import trace


@ray.remote
def in_library(a):
    return ray.get(in_library_too.remote(a))


@ray.remote
def in_library_too(a):
    return a


def in_a_child(number):
    with trace.get_tracer("library").start_as_current_span("in a child"):
        return number
