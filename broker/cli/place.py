"""Where a shell command finds Redis, and where it finds the broker."""

from broker.core.errors import Misconfigured
from broker.settings import Settings
from broker.store import embedded

FLAGS = frozenset({"BROKER_REDIS_URL", "BROKER_PREFIX", "BROKER_STATE_DIR"})
"""The settings by which a command that publishes finds Redis."""

BROKER_FLAGS = frozenset({"BROKER_HOST", "BROKER_PORT", "BROKER_AUTH__HEADER"})
"""The settings by which a command that speaks MCP finds the broker."""


def redis_url(settings: Settings) -> str:
    """Return the URL of the Redis to publish to: the one that is set, or a running broker's own.

    Raises:
        Misconfigured: neither is there; with what to do.
    """
    if settings.redis_url is not None:
        return settings.redis_url
    url = embedded.find(settings.state_dir)
    if url is None:
        raise Misconfigured(
            f"BROKER_REDIS_URL is not set, and no broker runs its own Redis in {settings.state_dir}: start "
            "one with broker dev, or set BROKER_REDIS_URL to the Redis of your brokers."
        )
    return url


def broker_url(settings: Settings) -> str:
    """Return the address of the broker's MCP endpoint, as its settings say."""
    # What listens everywhere is reached by the loopback address, too.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 # compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/mcp"
