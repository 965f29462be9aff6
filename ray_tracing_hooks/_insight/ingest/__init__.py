"""Reading spans: files of OTLP-JSON, also while they grow, the spool of a node, and merging what was read in parts."""
