"""Cursors of resources/list: where the next page begins, signed and bound to the tenant.

A cursor names the last URI of its page, so it stays right while the list changes around it, and any replica
reads it: the secret is the fleet's. It is signed, not encrypted: the URI in it is one that its holder was
just shown. The signature covers the tenant, so that a cursor taken elsewhere is refused like a forged one
(promise 7).
"""

import base64
import binascii
import hashlib
import hmac

from broker.core.errors import InvalidCursor
from broker.core.identity import MAX_URI_BYTES, TenantId

MAC_BYTES = 16
MIN_SECRET_BYTES = 16

_MAX_LENGTH = (MAC_BYTES + MAX_URI_BYTES) * 4 // 3 + 4


class CursorCodec:
    """Writes and reads cursors with the fleet's secret."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"the secret for cursors needs at least {MIN_SECRET_BYTES} bytes")
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"list cursor").digest()

    def __repr__(self) -> str:
        return "<CursorCodec>"

    def encode(self, tenant: TenantId, last_uri: str) -> str:
        """The cursor of the page after `last_uri`, in the URL-safe Base64 alphabet without padding.

        `last_uri` must be one that the caller was shown.
        """
        uri = last_uri.encode()
        return _armour(self._mac(tenant, uri) + uri)

    def decode(self, tenant: TenantId, text: str) -> str:
        """Return the last URI of the page before.

        Raises:
            InvalidCursor: anything that this fleet did not write for this tenant.
        """
        raw = _unarmour(text)
        if raw is None or len(raw) <= MAC_BYTES:
            raise _invalid()
        mac, uri = raw[:MAC_BYTES], raw[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(tenant, uri)):
            raise _invalid()
        return uri.decode()

    def _mac(self, tenant: TenantId, uri: bytes) -> bytes:
        owner = tenant.encode()
        signed = len(owner).to_bytes(4, "big") + owner + uri
        return hashlib.blake2b(signed, digest_size=MAC_BYTES, key=self._key).digest()


def _armour(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _unarmour(text: str) -> bytes | None:
    """The bytes of a cursor, or None; exactly one text stands for the same bytes."""
    if len(text) > _MAX_LENGTH or not text.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return raw if _armour(raw) == text else None


def _invalid() -> InvalidCursor:
    return InvalidCursor("This cursor is not one of ours; list again from the first page, without a cursor.")
