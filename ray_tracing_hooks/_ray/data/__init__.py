"""Ray Data: an execution of a dataset is a span, below it is one for each operator, and below these are its calls.

``executions`` wraps the executor, and ``operators`` and ``statistics`` are what is recorded of it. ``tasks`` names the
calls, and gives the user's functions their context in the workers. ``iteration`` is the consumer's side.
"""
