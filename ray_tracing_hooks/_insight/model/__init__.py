"""The spans of a run as a table, and what each of them is: a call, a process, a worker that starts. No findings yet."""
