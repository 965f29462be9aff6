"""Checks the files for TLS, and words why a certificate is not accepted."""

from __future__ import annotations

import ssl

from ray_tracing_hooks._ship.sink import DeliveryError
from ray_tracing_hooks._ship.transport.contract import Tls


def check(tls: Tls) -> None:
    """Raises DeliveryError, which names the file, if one cannot be used.

    Without this check, gRPC ends the process for some invalid files, and the errors of ``requests`` are not helpful.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.certificate is not None:
        try:
            context.load_verify_locations(tls.certificate)
        except OSError as error:  # includes ssl.SSLError
            raise DeliveryError(_text("CA certificates", tls.certificate, error)) from error
    if tls.client_certificate is not None:
        key = tls.client_key or tls.client_certificate
        try:
            # Without a password, OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(tls.client_certificate, key, password="")
        except OSError as error:
            files = " and ".join(dict.fromkeys((tls.client_certificate, key)))
            raise DeliveryError(
                _text("the client certificate and its key, which must not be encrypted,", files, error)
            ) from error


def distrust(error: str) -> str | None:
    """Why OpenSSL or BoringSSL does not accept the certificate of a server; None if the error is another one."""
    if "CERTIFICATE_VERIFY_FAILED" not in error:
        return None
    if "has expired" in error:
        return "its certificate has expired, or that of its CA"
    if "not yet valid" in error:
        return "its certificate is not valid yet; is the clock of this machine right?"
    return (
        "its certificate is not trusted; set the CERTIFICATE variable of this exporter to the CA certificate that "
        "signed it"
    )


def _text(what: str, files: str, error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return f"cannot use TLS: expected {what} as PEM in {files}" + (
        f" ({reason.lower().replace('_', ' ')})" if reason else ""
    )
