"""Transports: each sends one request to a server and says what became of it. What it means is for the sinks to know."""
