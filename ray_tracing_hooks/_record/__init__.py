"""The recorder: spans encoded once, to their final OTLP bytes, and appended to the spool."""
