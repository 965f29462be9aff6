"""Reading recorded spans and finding out what they say. Nothing here imports Ray or OpenTelemetry."""
