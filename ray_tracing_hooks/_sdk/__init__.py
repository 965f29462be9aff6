"""The OpenTelemetry SDK for users' and libraries' spans, joined to the same spool."""
