"""Experiments of Ray Tune."""

import glob
import os
import time

from corpus import healthy, planted, spend
from corpus.running import main

WITH = {"library": "train", "cluster": {"num_cpus": 7}}


def trial(space):
    from ray import tune

    config, begun = space["trial"], time.time()
    for step in range(config["steps"]):
        spend(config["seconds"])
        if step == config.get("fails_at"):
            raise ValueError("bad number")
        tune.report({"score": step})
        with open(os.path.join(config["folder"], f"trial-{begun}"), "w") as file:
            file.write(f"{begun} {time.time()}")


def experiment(run, trials, at_once=None, **options):
    """Returns when each trial has begun and ended, by the time of its last step."""
    from ray import tune

    folder, called = os.environ["CORPUS_FOLDER"], time.time()
    trials = [{**each, "folder": folder} for each in trials]
    tuner = tune.Tuner(
        trial,
        param_space={"trial": tune.grid_search(trials)},
        tune_config=tune.TuneConfig(max_concurrent_trials=at_once, **options),
        run_config=tune.RunConfig(name="search", storage_path=os.path.join(folder, "storage"), verbose=0),
    )
    tuner.fit()
    returned, found = time.time(), []
    for path in glob.glob(os.path.join(folder, "trial-*")):
        with open(path) as file:
            found.append(tuple(map(float, file.read().split())))
    if found:
        run.start = min(begin for begin, _ in found) - called + returned - max(end for _, end in found)
    return found


@planted("slow-place", beside=("worker-start",), **WITH)
def slow_trial(run):
    """One of four trials takes twelve times as long as the others."""
    slow = run.seconds(1.2, 0.1)
    experiment(run, [{"steps": 10, "seconds": slow if number == 2 else 0.1} for number in range(4)])
    run.cost(10 * (slow - 0.1))


@planted("ended-trials", says=("ValueError",), beside=("worker-start",), **WITH)
def failed_trials(run):
    """Three of six trials fail before their end."""
    fails_at = None if run.mended else 6
    seconds = run.seconds(0.25)
    experiment(
        run, [{"steps": 10, "seconds": seconds, "fails_at": fails_at if number % 2 else None} for number in range(6)]
    )


@planted("trials-in-turn", says=("search",), beside=("worker-start",), **WITH)
def one_trial_at_a_time(run):
    """Six trials run one after the other, although there are processors for all."""
    seconds = run.seconds(0.2)
    ran = experiment(run, [{"steps": 5, "seconds": seconds} for _ in range(6)], at_once=6 if run.mended else 1)
    all_of_them = max(end for _, end in ran) - min(begin for begin, _ in ran)
    run.cost(all_of_them - max(end - begin for begin, end in ran))


@planted("ended-trials", says=("search",), never=("100 % of the running time",), beside=("worker-start",), **WITH)
def time_budget(run):
    """The budget of time ends the experiment when half of the trials have not run to their end."""
    experiment(
        run, [{"steps": 8, "seconds": run.seconds(0.5)} for _ in range(4)], time_budget_s=100 if run.mended else 3
    )


@healthy(beside=("worker-start",), **WITH)
def equal_trials(run):
    """Four equal trials side by side."""
    experiment(run, [{"steps": 10, "seconds": 0.5} for _ in range(4)])


if __name__ == "__main__":
    main()
