"""Ray Train: its runs, their attempts, the training loops of their ranks, and what these report.

The run is a span where ``fit()`` is called, so that it ends in every case. Its attempts are spans in the controller, an
actor, and the loops of the ranks are spans in the workers, below the attempt that started them. Methods of Ray are
wrapped, in place of a callback: nothing of this package is pickled to processes that may not have it.
"""
