"""What secrets look like: their usual names and text patterns, shared by everything that redacts them."""

from __future__ import annotations

import re
from functools import lru_cache

# No expression may take long for any text: an unbounded repetition must not be followed by something that it may run
# past from many starting points.

_NAME = re.compile(
    r"password|passwd|passphrase|passcode|pwd|secret|(?<!max_)(?<!num_)token(?!iz|_?(?:count|num|len|limit|type))|"
    r"credential|(?:api|access|account|private|signing|encryption|ssh)_?key|auth(?!or(?!iz))|bearer|cookie|"
    r"session_?(?:id|key)|jwt|signature|connection_?string|sas_?url|webhook|card_?number|mnemonic|seed_?phrase|"
    r"(?:^|_)(?:pass|pw|pin|pin_?code|t?otp|ssn|dsn|cvv|cvc|iban|key|creds?|pat|psk|hmac|pem)(?:$|_)",
    re.IGNORECASE,
)
"""Names of parameters and keys whose values are secrets; their parts may also be joined as in ``api-key``, ``apiKey``
and ``api.key``."""

_BETWEEN_PARTS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=1024)
def is_name_of_secret(name: str) -> bool:
    """Whether a parameter or key of this name holds a secret."""
    return any(map(_NAME.search, (name, _BETWEEN_PARTS.sub("_", name))))


VARIABLE = re.compile(
    r"(HEADERS|PASSWORD|PASSWD|TOKEN|AUTHENTICATION|SECRET|CREDENTIALS|(?<!CLIENT_)KEY)$", re.IGNORECASE
)
"""Environment variables that hold a secret. The CLIENT_KEY of an exporter is only the path of one."""

USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")
QUERY = re.compile(r"(?<=[\w/])\?[^\s'\")]+")
"""The parts of a URL before the host and after the path, which often contain keys."""

TEXT = re.compile(
    r"-----BEGIN|"  # PEM
    r"://[^/\s@]+@|://[^/\s@:]*:[^\s@]{0,256}@|"  # a URL with a password or a key
    r"hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/|"
    r"(?<![a-z0-9])(?:"
    r"eyJ[\w-]{8}|"  # a JSON Web Token
    r"(?:AKIA|ASIA)[A-Z0-9]{12}|"  # Amazon
    r"[sprw]k[-_][\w-]{12}|whsec_\w{12}|"  # OpenAI, Anthropic, Stripe
    r"gh[opusr]_\w{16}|github_pat_\w{16}|glpat-[\w-]{16}|"  # GitHub, GitLab
    r"xox[abeprs]-[\w-]{8}|xapp-[\w-]{8}|"  # Slack
    r"hf_\w{16}|npm_\w{16}|pypi-\w{16}|dop_v1_\w{16}|SG\.[\w-]{16}|AIza[\w-]{20}|ya29\.|GOCSPX-[\w-]{8}|"
    r"dapi[0-9a-f]{16}|hv[bs]\.[\w-]{16}|glsa_\w{16}|nvapi-[\w-]{16}|gsk_\w{16}|r8_\w{16}|AGE-SECRET-KEY-|"
    r"(?:Bearer|Basic|Token)\s+[\w+/=.~-]{8})|"  # an Authorization header
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?|(?:api|access|account|private)[-_ ]?key|"
    r"(?<![a-z])(?:pass|pw|sig|signature|cookie|auth|authorization))[\\\"']*\s*[=:]\s*\S|"
    r"[?&](?:key|code)=\S|"
    r"(?<!\S)--?[\w-]{0,40}(?:password|passwd|passphrase|pwd|pass|secret|token|key)\s+\S",  # on a command line
    re.IGNORECASE,
)
"""Matches whatever in a text looks like a secret."""
