"""Takes an installation's keys back to an earlier state, as a restored backup or a lost failover does.

All keys change in one transaction, so that no reader sees half of it.
"""

from typing import Any, cast

import redis

from tests.support.redis_server import keys_of


class Snapshot:
    """The keys under one prefix as they are now."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = cast("Any", client)  # the client's replies have no types
        self._prefix = prefix
        self._keys = {key: (self._client.dump(key), ttl) for key, ttl in keys_of(client, prefix)}

    def restore(self) -> None:
        """Make everything under the prefix what it was, and remove what was not there."""
        with self._client.pipeline(transaction=True) as pipe:
            for key, _ in keys_of(self._client, self._prefix):
                pipe.delete(key)
            for key, (dump, ttl) in self._keys.items():
                pipe.restore(key, max(ttl, 0), dump)
            pipe.execute()
