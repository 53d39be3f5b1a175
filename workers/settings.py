"""What the environment says to a backend job: the only place in workers that reads it.

The variables are the broker's own, so a job beside a broker needs nothing of its own.
"""

from pathlib import Path

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from broker.core.errors import Misconfigured
from broker.store import embedded
from broker.store.address import NO_ACCESS, Access


class RedisAccess(BaseModel):
    """What goes beside the URL; the same variables as a broker's (docs/configuration.md)."""

    username: str | None = None
    password_file: str | None = None
    sentinel_username: str | None = None
    sentinel_password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class Settings(BaseSettings):
    """Defaults for a publisher; what is passed to it in Python wins."""

    model_config = SettingsConfigDict(
        env_prefix="BROKER_", env_nested_delimiter="__", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    redis_url: str | None = Field(
        default=None,
        description="URL of the brokers' Redis, as theirs; unset finds this machine's embedded one.",
    )
    redis: RedisAccess = Field(
        default=RedisAccess(), description="BROKER_REDIS__USERNAME, __PASSWORD_FILE, __CA_FILE and so on."
    )
    prefix: str = Field(default="mrb", description="What every Redis key begins with.")
    tenant: str = Field(default="default", description="The tenant that is published for.")
    state_dir: Path | None = Field(
        default=None, description="Where a broker on this machine keeps its embedded Redis."
    )
    state_home: Path = Field(
        default=Path("~/.local/state"),
        validation_alias="XDG_STATE_HOME",
        description="Where the user's programs keep their state; holds the default of state_dir.",
    )

    def find(self, url: str | None, doing: str) -> tuple[str, Access]:
        """Return `url`, the one that is set or that of a broker on this machine; and what goes beside.

        Raises:
            Misconfigured: there is no Redis to be `doing`.
        """
        given = url or self.redis_url
        if given is not None:
            return given, Access(**self.redis.model_dump())
        found = embedded.find(self.embedded_dir)
        if found is None:
            raise Misconfigured(
                f"There is no Redis to {doing}: set BROKER_REDIS_URL (or pass url=…), or start a broker on "
                f"this machine; none keeps an embedded Redis in {self.embedded_dir}."
            )
        return found, NO_ACCESS

    @property
    def embedded_dir(self) -> Path:
        """Where a broker on this machine keeps its embedded Redis, unless told otherwise."""
        return self.state_dir or self.state_home.expanduser() / "mcp-resource-broker"
