"""The settings of the sink of SkyWalking. A traced process reads them too, for its headers."""

from __future__ import annotations

import re

from ray_tracing_hooks._settings.table import Values, setting
from ray_tracing_hooks._settings.values import BOOLEAN, PATH, Kind, one_of, read_list, read_url, scalar, within


def read_text(value: object) -> str:
    text = scalar(value)
    if not text.isprintable():
        raise ValueError
    return text


def _read_id(value: object) -> int:
    text = scalar(value)
    if not text.isascii() or not text.isdigit():
        raise ValueError
    return within(int(text), 1, (1 << 31) - 1)


def _read_header_prefix(value: object) -> str:
    text = scalar(value)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,50}", text):
        raise ValueError
    return text


def _read_service_template(value: object) -> str:
    text = read_text(value)
    if "{deployment}" not in text or re.search(r"[{}]", re.sub(r"\{(deployment|application|service)\}", "", text)):
        raise ValueError
    return text


def _read_addresses(value: object) -> tuple[str, ...]:
    return tuple(read_url(address) for address in read_list(value))


TEXT: Kind[str] = Kind("a text on one line", read_text)
ADDRESSES = Kind(
    "a comma-separated list of addresses, such as oap:11800 or https://oap:11800", _read_addresses, ",".join
)
HEADER_PREFIX = Kind("letters, digits, dots, dashes and underscores, as in the name of a header", _read_header_prefix)
SERVICE_TEMPLATE: Kind[str] = Kind(
    "a text with {deployment}, and maybe {application} and {service}, such as {service}-{deployment}",
    _read_service_template,
)
ID = Kind("a whole number from 1 to 2147483647", _read_id)


class Settings(Values):
    """The names begin with ``skywalking_``. ``SW_AGENT_*`` are the variables of SkyWalking's agents."""

    prefix = "skywalking_"

    protocol: str = setting(
        one_of("sw8", "sw6"),
        "sw8",
        "the generation of SkyWalking: `sw8` is 8.0 and newer, `sw6` is 6.x and 7.x",
    )
    transport: str = setting(
        one_of("grpc", "http", "none"),
        "grpc",
        "how the SkyWalking exporter sends: `grpc`, `http` (only with `sw8`), or `none`, which only joins traces "
        "through headers; if unset, `SW_AGENT_PROTOCOL` applies",
        standard="SW_AGENT_PROTOCOL",
    )
    endpoint: tuple[str, ...] | None = setting(
        ADDRESSES,
        None,
        "comma-separated list of the addresses of SkyWalking's back end, such as `oap:11800`; "
        "if unset, `SW_AGENT_COLLECTOR_BACKEND_SERVICES` applies",
        "localhost, port 11800 (gRPC) or 12800",
        standard="SW_AGENT_COLLECTOR_BACKEND_SERVICES",
        secret=True,
    )
    token: str | None = setting(
        TEXT,
        None,
        "the token that the back end asks for; if unset, `SW_AGENT_AUTHENTICATION` applies",
        standard="SW_AGENT_AUTHENTICATION",
        secret=True,
    )
    tls: bool = setting(
        BOOLEAN,
        False,
        "TLS for addresses without a scheme; if unset, `SW_AGENT_FORCE_TLS` applies",
        standard="SW_AGENT_FORCE_TLS",
    )
    certificate: str | None = setting(
        PATH,
        None,
        "file with the CA certificates used to verify the back end; if unset, `SW_AGENT_SSL_TRUSTED_CA_PATH` applies",
        "system's",
        standard="SW_AGENT_SSL_TRUSTED_CA_PATH",
    )
    client_certificate: str | None = setting(
        PATH,
        None,
        "file with the certificate of this client, where the back end asks for one; if unset, "
        "`SW_AGENT_SSL_CERT_CHAIN_PATH` applies",
        standard="SW_AGENT_SSL_CERT_CHAIN_PATH",
    )
    client_key: str | None = setting(
        PATH,
        None,
        "file with its private key; if unset, `SW_AGENT_SSL_KEY_PATH` applies",
        "in the file of the certificate",
        standard="SW_AGENT_SSL_KEY_PATH",
    )
    service: str | None = setting(
        TEXT,
        None,
        "the name of the service in SkyWalking; if unset, `SW_AGENT_NAME` applies",
        "`service.name`",
        standard="SW_AGENT_NAME",
    )
    instance: str | None = setting(
        TEXT,
        None,
        "the name of the instance, the same for the whole cluster; if unset, `SW_AGENT_INSTANCE_NAME` applies",
        "the session of Ray",
        standard="SW_AGENT_INSTANCE_NAME",
    )
    namespace: str | None = setting(
        TEXT,
        None,
        "namespace, appended to the name of the service after a vertical bar; if unset, `SW_AGENT_NAMESPACE` applies",
        standard="SW_AGENT_NAMESPACE",
    )
    deployment_service: str | None = setting(
        SERVICE_TEMPLATE,
        None,
        "name of a separate SkyWalking service for each deployment of Ray Serve: "
        "`{service}-{deployment}`, `{application}.{deployment}`; only with `sw8`",
        "the service of the cluster",
    )
    header_prefix: str | None = setting(
        HEADER_PREFIX,
        None,
        "prefix of the names of headers: `shop` gives `shop-sw8`, as a Java agent's namespace does until 8.9",
    )
    correlation: bool = setting(
        BOOLEAN, False, "send baggage as correlation context (`sw8-correlation`), and turn it into baggage on arrival"
    )
    unsampled: str = setting(
        one_of("omit", "suppress", "flag"),
        "omit",
        "header of calls from a trace that is not sampled: none (`omit`), one that keeps the receiver from tracing "
        "(`suppress`, only with `sw8`), or one with the flag 0, which receivers ignore (`flag`)",
    )
    service_id: int | None = setting(
        ID, None, "with `sw6`: the id that the service is registered with", "assigned by the back end"
    )
    instance_id: int | None = setting(
        ID, None, "with `sw6`: the id that the instance is registered with", "assigned by the back end"
    )
