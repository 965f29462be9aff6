"""How the bytes of a span are laid out, and nothing outside this folder knows it.

:mod:`.tags` has the numbers of the fields, :mod:`.encode` writes spans as every process does, :mod:`.read` finds what
the shipper needs in them without decoding the rest, and :mod:`.decode` takes any OTLP message apart. The messages are
those of ``opentelemetry/proto/trace/v1/trace.proto`` and of what it imports.
"""
