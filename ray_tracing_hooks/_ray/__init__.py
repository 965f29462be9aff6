"""Instrumentation of Ray: each file is named after the part of Ray that it wraps."""
