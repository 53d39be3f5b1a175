"""What the environment says to a backend job: the only place in workers that reads it.

The variables are the broker's own, so a job beside a broker needs nothing of its own.
"""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Defaults for a publisher; what is passed to it in Python wins."""

    model_config = SettingsConfigDict(
        env_prefix="BROKER_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    redis_url: str | None = Field(
        default=None,
        description="redis://, rediss:// or unix:// URL; unset finds this machine's embedded one.",
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

    @property
    def embedded_dir(self) -> Path:
        """Where a broker on this machine keeps its embedded Redis, unless told otherwise."""
        return self.state_dir or self.state_home.expanduser() / "mcp-resource-broker"
