"""A search with Ray Tune for the best learning rate; one of three trials fails.

Run it, then look at its trials:

    pip install 'ray[tune]'
    python examples/tune_search.py
    ray-tracing-hooks tree

You see each trial with its parameters, its reports and your own spans, and why one of them failed.
"""

import tempfile

import ray
from opentelemetry import trace
from ray import tune

tracer = trace.get_tracer("search")


def objective(config):
    loss = 10.0
    for _ in range(3):
        with tracer.start_as_current_span("evaluate"):
            loss *= abs(1 - config["rate"])
        if loss > 10:
            raise ValueError("the loss grows")
        tune.report({"loss": loss})


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    with tempfile.TemporaryDirectory() as storage, tracer.start_as_current_span("search a rate"):
        results = tune.Tuner(
            objective,
            param_space={"rate": tune.grid_search([0.1, 0.5, 3.0])},
            run_config=tune.RunConfig(name="search", storage_path=storage, verbose=0),
        ).fit()
    print("the best rate:", results.get_best_result("loss", "min").config["rate"])
