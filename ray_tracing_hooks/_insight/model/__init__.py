"""The spans of a run as a table, and what they describe: calls, processes, starting workers. Not yet the analysis."""
