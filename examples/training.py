"""A small training with Ray Train, and a search with Ray Tune: what a trace of each looks like.

Run it, in an environment with both (``pip install 'ray[train]'``), then look at what it did:

    python examples/training.py
    ray-tracing-hooks tree
    ray-tracing-hooks view --open

``fit`` trains on two workers; the second one is slower, and the page shows it as a heat map. ``search`` tries three
learning rates; one of them is too large. Nothing is really trained, so that neither PyTorch nor a GPU is needed. Only
the hook in ``ray.init`` and the program's own spans are about tracing.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import ray
from opentelemetry import trace
from ray import train, tune
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

tracer = trace.get_tracer("training")


def train_loop(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    for step in range(config["steps"]):
        with tracer.start_as_current_span("forward and backward"):
            time.sleep(0.3 if rank == 1 else 0.1)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0 and step == config["steps"] - 1:
                with open(os.path.join(folder, "model"), "w") as file:
                    file.write("weights")
                checkpoint = train.Checkpoint.from_directory(folder)
            train.report({"loss": 1 / (step + 1)}, checkpoint=checkpoint)


def fit(folder: str) -> None:
    trainer = DataParallelTrainer(
        train_loop,
        train_loop_config={"steps": 8},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(name="model", storage_path=folder),
    )
    trainer.fit()


def objective(config: dict[str, Any]) -> None:
    loss = 10.0
    for _ in range(3):
        with tracer.start_as_current_span("evaluate"):
            loss *= abs(1 - config["rate"])
        if loss > 10:
            raise ValueError("the loss grows")
        tune.report({"loss": loss})


def search(folder: str) -> None:
    tune.Tuner(
        tune.with_resources(objective, {"cpu": 0.5}),
        param_space={"rate": tune.grid_search([0.1, 0.5, 3.0])},
        run_config=tune.RunConfig(name="search", storage_path=folder, verbose=0),
    ).fit()


def main() -> None:
    ray.init("local", num_cpus=2, include_dashboard=False, _tracing_startup_hook="ray_tracing_hooks.local:setup")
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        with tracer.start_as_current_span("train a model"):
            fit(folder)
        with tracer.start_as_current_span("search a rate"):
            search(folder)
    ray.shutdown()


if __name__ == "__main__":
    main()
