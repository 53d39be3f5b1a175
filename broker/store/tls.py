"""TLS to Redis: which certificates count, which one is ours, and what a refusal means.

Rule: the files are read again when they have changed, so renewed certificates need no restart; connections
that are open keep what they were opened with.
"""

import ssl
from functools import lru_cache
from pathlib import Path

from broker.core.errors import BrokerError, Misconfigured, StoreUnavailable
from broker.store.address import Tls

_KEPT = 16
"""Contexts that are kept: a renewal makes a new one, and making one reads and parses the authorities."""


def context(tls: Tls) -> ssl.SSLContext:
    """Return the context for a new connection.

    Raises:
        StoreUnavailable: a file cannot be read, or is no certificate or key (now: it may be being replaced).
    """
    try:
        changed = tuple(
            Path(file).stat().st_mtime_ns for file in (tls.ca_file, tls.cert_file, tls.key_file) if file
        )
        return _context(tls, changed)
    except ssl.SSLError as error:
        raise StoreUnavailable(f"The TLS files cannot be used: {_files(tls)} ({error.reason}).") from None
    except OSError as error:
        file = f" {error.filename}" if error.filename else ""
        raise StoreUnavailable(f"The TLS file{file} cannot be read: {error.strerror}.") from None


@lru_cache(_KEPT)
def _context(tls: Tls, _changed: tuple[int, ...]) -> ssl.SSLContext:
    # With a file of one's own the system's authorities are not trusted beside it.
    made = ssl.create_default_context(cafile=tls.ca_file)
    made.check_hostname = tls.is_hostname_checked and tls.is_verified
    if not tls.is_verified:
        made.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        made.load_cert_chain(tls.cert_file, tls.key_file)
    return made


def check(tls: Tls | None) -> None:
    """Refuse files that cannot be used, before anything is started.

    Raises:
        Misconfigured: with the file.
    """
    if tls is None:
        return
    try:
        context(tls)
    except StoreUnavailable as error:
        raise Misconfigured(str(error)) from None


def _files(tls: Tls) -> str:
    return ", ".join(file for file in (tls.ca_file, tls.cert_file, tls.key_file) if file)


_MEANINGS = (
    ("certificate has expired", "its certificate has expired: renew it"),
    ("not yet valid", "its certificate is not valid yet: check the clocks"),
    ("mismatch", "its certificate is for another name: use a name that it has, or issue one for this name"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is signed by nobody we trust: set BROKER_REDIS__CA_FILE"),
    (
        "WRONG_VERSION_NUMBER",
        "it does not speak TLS on this port: write redis for rediss, or use its TLS port",
    ),
    (
        "RECORD_LAYER_FAILURE",
        "it does not speak TLS on this port: write redis for rediss, or use its TLS port",
    ),
    ("CERTIFICATE_REQUIRED", "it wants a certificate of ours: set BROKER_REDIS__CERT_FILE and __KEY_FILE"),
    ("UNKNOWN_CA", "it does not trust our certificate: have it signed by an authority of the server's"),
    ("ALERT", "it refused us: check BROKER_REDIS__CERT_FILE, and whether ours has expired"),
)
"""What OpenSSL says → what it means, the more telling first."""


def meaning(error: ssl.SSLError | TimeoutError) -> BrokerError:
    """Return what a failed handshake means, and what to do."""
    if not isinstance(error, ssl.SSLError):
        # A plain Redis waits for the end of a line that never comes.
        return StoreUnavailable(
            "Nobody answered with TLS in time: Redis cannot be reached, or does not speak TLS on this port; "
            "then write redis for rediss, or use its TLS port."
        )
    said = f"{error.reason} {getattr(error, 'verify_message', '')} {error}"
    for word, means in _MEANINGS:
        if word in said:
            return StoreUnavailable(f"Redis is there, but {means} ({error.reason or error}).")
    return StoreUnavailable(f"Redis is there, but TLS cannot be agreed on ({error.reason or error}).")
