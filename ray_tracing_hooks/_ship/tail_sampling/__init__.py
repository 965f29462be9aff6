"""Tail sampling: of the traces that were not sampled at their root, those with an error or a slow call are kept.

``policy`` decides which traces are kept, ``sampler`` collects their spans.
"""
