"""Analyses a run: where its time went, what waited for what, and what to do about it. Produces no output itself."""
