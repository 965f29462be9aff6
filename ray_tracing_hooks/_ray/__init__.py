"""Instrumentation of Ray: each file wraps what its name says, in Ray's own words."""
