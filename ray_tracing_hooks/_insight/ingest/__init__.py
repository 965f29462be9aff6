"""Reads spans from OTLP-JSON files, also while they grow, and from a node's spool; large inputs are read in parts."""
