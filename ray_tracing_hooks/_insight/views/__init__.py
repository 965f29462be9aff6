"""Views of a run: trees, executions of datasets as plain values, the page, and exports."""
