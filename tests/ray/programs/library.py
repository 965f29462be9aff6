"""A module that drivers and workers import."""

import ray


@ray.remote
def in_library(a):
    return ray.get(in_library_too.remote(a))


@ray.remote
def in_library_too(a):
    return a
