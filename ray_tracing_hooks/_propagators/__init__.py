"""Propagators of OpenTelemetry, which ``OTEL_PROPAGATORS`` names."""
