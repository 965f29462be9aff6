"""The layout of an encoded span, which nothing outside this folder knows.

:mod:`.tags` has the field numbers, :mod:`.encode` writes spans as every process does, :mod:`.read` finds what the
shipper needs without decoding the rest, and :mod:`.decode` decodes any OTLP message. The messages are those of
``opentelemetry/proto/trace/v1/trace.proto`` and its imports.
"""
