"""Ray's libraries: each is instrumented in a process that imports it, and nothing of it is imported elsewhere.

A row of :data:`LIBRARIES` names a module of this package with a function ``patch(patches)``, the module of Ray that has
to be imported first, and what is lost if this version of Ray has changed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import NamedTuple

from ray_tracing_hooks._guard import report
from ray_tracing_hooks._patching import Patches, in_place
from ray_tracing_hooks._ray.imported import when_imported


class Instrumented(NamedTuple):
    """One part of a library that is instrumented."""

    part: str
    """The part in ``RAY_TRACING_RAY`` that it belongs to."""
    module: str
    """The module that instruments it, in this package."""
    of: str
    """The module of Ray that it wraps."""
    lost: str
    """What is missing without it, for a message."""
    patch: str = "patch"
    """The function in our module."""


_DATA = "ray.data._internal"
_CONTROLLER = "ray.tune.execution.tune_controller"
_TRAIN = "ray.train.v2._internal.execution"

LIBRARIES: tuple[Instrumented, ...] = (
    Instrumented(
        "data",
        "data.executions",
        f"{_DATA}.execution.streaming_executor",
        "not all of the executions of datasets are traced",
    ),
    Instrumented(
        "data",
        "data.backpressure",
        f"{_DATA}.execution.interfaces.physical_operator",
        "the backpressure of datasets is not recorded",
    ),
    Instrumented("data", "data.iteration", "ray.data.iterator", "iterations over datasets are not traced"),
    Instrumented(
        "data",
        "data.iteration",
        f"{_DATA}.block_batching.iter_batches",
        "the stages that iterations over datasets waited for are not recorded",
        "patch_stages",
    ),
    Instrumented(
        "data",
        "data.threads",
        f"{_DATA}.execution.operators.map_transformer",
        "classes that map datasets do not have the context of their task",
    ),
    Instrumented(
        "data",
        "data.threads",
        f"{_DATA}.util",
        "files are read without the context of their task",
        "patch_files",
    ),
    Instrumented(
        "data",
        "data.threads",
        f"{_DATA}.block_batching.util",
        "batches are made without the context of their iteration",
        "patch_batches",
    ),
    Instrumented("train", "train.run", "ray.train.v2.api.data_parallel_trainer", "runs of Ray Train make no spans"),
    Instrumented("train", "train.attempts", f"{_TRAIN}.controller.controller", "attempts of Ray Train make no spans"),
    Instrumented(
        "train",
        "train.ranks",
        f"{_TRAIN}.worker_group.thread_runner",
        "training loops of Ray Train make no spans, and are not in the trace of their run",
    ),
    Instrumented("train", "train.reports", f"{_TRAIN}.context", "reports of Ray Train make no spans"),
    Instrumented(
        "train", "train.collectives", f"{_TRAIN}.collective_impl", "collective functions of Ray Train make no spans"
    ),
    Instrumented(
        "train",
        "train.local",
        "ray.train.v2.api.data_parallel_trainer",
        "runs of Ray Train without workers make no spans of their rank",
    ),
    Instrumented(
        "train",
        "train.first_version",
        "ray.train.base_trainer",
        "nothing is said of runs of Ray Train's first version, which make no spans",
    ),
    Instrumented("tune", "tune.experiments", _CONTROLLER, "experiments of Ray Tune make no spans"),
    Instrumented("tune", "tune.trial_loop", _CONTROLLER, "trials of Ray Tune make no spans"),
    Instrumented(
        "tune",
        "tune.actors",
        "ray.air.execution.resources.request",
        "actors of Ray Tune are created outside of their trials",
    ),
    Instrumented("tune", "tune.exploits", "ray.tune.schedulers.pbt", "exploits of Ray Tune are not recorded"),
    Instrumented(
        "tune", "tune.naming", "ray.tune.trainable.function_trainable", "trainables of Ray Tune are not named"
    ),
    Instrumented(
        "tune",
        "tune.sessions",
        "ray.train._internal.session",
        "training functions of Ray Tune are not in the trace of their trial",
    ),
    Instrumented(
        "rllib",
        "rllib.iterations",
        "ray.rllib.algorithms.algorithm",
        "iterations of RLlib and their phases make no spans",
    ),
)


def join(parts: Iterable[str], patches: Patches, ray_version: str) -> None:
    """Instrument the libraries in ``parts`` that this process has imported, and the others when it imports them."""
    for row in LIBRARIES:
        if row.part in parts:
            when_imported(patches, row.of, partial(_instrument, row, patches, ray_version))


def _instrument(row: Instrumented, patches: Patches, ray_version: str) -> None:
    patch = getattr(import_module(f"{__package__}.{row.module}"), row.patch)
    if not in_place(patch, patches):
        report(f"{row.lost}: Ray {ray_version} has changed the code that is instrumented for it")
