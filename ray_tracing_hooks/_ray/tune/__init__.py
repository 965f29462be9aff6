"""Ray Tune: its experiments and trials, and the threads in which trainables run that are functions.

Experiment and trials are spans in the process that calls ``Tuner.fit()``, whose loop decides about them; the executions
of a trainable are below its trial.
"""
