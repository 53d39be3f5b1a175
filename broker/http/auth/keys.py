"""API keys as credentials. Their form and storage: core/apikey.py, store/control.py."""

import time

from broker.core import apikey
from broker.core.errors import Unauthenticated
from broker.core.identity import Principal
from broker.tenants.directory import Directory

REFUSED = "This API key is unknown, or has ended."


class KeyAuth:
    """Knows callers by their API key."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def authenticate(self, token: str) -> Principal:
        """Return the key's caller.

        Raises:
            Unauthenticated: no such key, or it has ended.
            StoreUnavailable: Redis is away, and this replica has never seen the key.
        """
        if not apikey.is_well_formed(token):
            raise Unauthenticated(REFUSED)
        digest = apikey.digest(token)
        record = await self._directory.key(digest)
        expires = None if record is None or record.expires_ms is None else record.expires_ms / 1000
        if record is None or (expires is not None and expires <= time.time()):
            raise Unauthenticated(REFUSED)
        return Principal(record.tenant, record.subject, frozenset(record.scopes), expires, digest)
