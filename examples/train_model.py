"""A training on two workers with Ray Train and PyTorch; the second one has more to validate, and is late at each step.

Run it, then look for the slow rank:

    pip install 'ray[train]' torch
    python examples/train_model.py
    ray-tracing-hooks tree
    ray-tracing-hooks view --open

You see each rank with its steps and reports, and in the tab *Ranks* how long the first rank waits for the second.
"""

import os
import tempfile
import time

import ray
import torch
from opentelemetry import trace
from ray import train
from ray.train.torch import TorchTrainer, prepare_model

tracer = trace.get_tracer("training")


def train_loop(config):
    rank = train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(config["steps"]):
        with tracer.start_as_current_span("forward and backward"):
            inputs = torch.randn(32, 4)
            loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tracer.start_as_current_span("validate"):
            time.sleep(0.3 if rank == 1 else 0.1)  # stands for its share of the data
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0 and step == config["steps"] - 1:
                torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = train.Checkpoint.from_directory(folder)
            train.report({"loss": loss.item()}, checkpoint=checkpoint)


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    with tempfile.TemporaryDirectory() as storage, tracer.start_as_current_span("train a model"):
        result = TorchTrainer(
            train_loop,
            train_loop_config={"steps": 8},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="model", storage_path=storage),
        ).fit()
    print("loss:", result.metrics["loss"])
