"""Transports: each sends one request to a server and reports the result. Sinks interpret it."""
