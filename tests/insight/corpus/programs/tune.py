"""Experiments of Ray Tune."""

import os

from corpus import healthy, planted, spend
from corpus.running import main

WITH = {"library": "train", "cluster": {"num_cpus": 7}}


def trial(space):
    from ray import tune

    config = space["trial"]
    for step in range(config["steps"]):
        spend(config["seconds"])
        if step == config.get("fails_at"):
            raise ValueError("bad number")
        tune.report({"score": step})


def experiment(trials, at_once=None, **options):
    from ray import tune

    tuner = tune.Tuner(
        trial,
        param_space={"trial": tune.grid_search(trials)},
        tune_config=tune.TuneConfig(max_concurrent_trials=at_once, **options),
        run_config=tune.RunConfig(
            name="search", storage_path=os.path.join(os.environ["CORPUS_FOLDER"], "storage"), verbose=0
        ),
    )
    return tuner.fit()


@planted(("slow-trial", "straggler"), beside=("worker-start",), **WITH)
def slow_trial(run):
    """One of four trials takes six times as long as the others."""
    slow = run.seconds(0.6, 0.1)
    experiment([{"steps": 10, "seconds": slow if number == 2 else 0.1} for number in range(4)])
    run.cost(10 * (slow - 0.1))


@planted("ended-trials", says=("ValueError",), beside=("worker-start",), **WITH)
def failed_trials(run):
    """Three of six trials fail before their end."""
    fails_at = None if run.mended else 6
    seconds = run.seconds(0.25)
    experiment([{"steps": 10, "seconds": seconds, "fails_at": fails_at if number % 2 else None} for number in range(6)])


@planted(("few-trials", "waiting-for-resources"), beside=("worker-start",), **WITH)
def one_trial_at_a_time(run):
    """Six trials run one after the other, although there are processors for all."""
    seconds = run.seconds(0.2)
    experiment([{"steps": 5, "seconds": seconds} for _ in range(6)], at_once=6 if run.mended else 1)
    run.cost(5 * 5 * seconds)


@planted("ended-trials", says=("time",), never=("100 % of the running time",), beside=("worker-start",), **WITH)
def time_budget(run):
    """The budget of time ends the experiment when half of the trials have not run to their end."""
    experiment([{"steps": 8, "seconds": run.seconds(0.5)} for _ in range(4)], time_budget_s=100 if run.mended else 3)


@healthy(beside=("worker-start",), **WITH)
def equal_trials(run):
    """Four equal trials side by side."""
    experiment([{"steps": 10, "seconds": 0.5} for _ in range(4)])


if __name__ == "__main__":
    main()
