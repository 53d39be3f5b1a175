"""What an operator can set: the only reader of the environment.

Read once into a frozen object and passed to the part that needs it. Every field has a default, a unit and
a sentence; the flags of `broker serve` (cli/flag.py) and the table in docs/configuration.md are made from
them. A field `x` of the group `g` is the variable `BROKER_G__X` and the flag `--g-x`.
"""

import difflib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Self, cast

from pydantic import AliasChoices, BaseModel, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from broker.core.errors import Misconfigured
from broker.settings.group import (
    AuthSettings,
    Group,
    HttpSettings,
    ListenSettings,
    ListSettings,
    LogSettings,
    MetricsSettings,
    RedisSettings,
    SessionSettings,
    ShedSettings,
    StreamSettings,
    TraceSettings,
    WorkerSettings,
    setting,
)
from broker.settings.tenancy import AdminSettings, Issuer, OAuthSettings, QuotaSettings
from broker.store import address
from broker.store.address import Access
from broker.store.keys import Keys

__all__ = [
    "NO_FLAG",
    "AuthSettings",
    "Issuer",
    "OAuthSettings",
    "QuotaSettings",
    "Settings",
    "is_loopback",
    "load",
    "shown_default",
    "unit",
    "unknown",
    "variables",
]

PREFIX = "BROKER_"
NESTED = "__"
BINARY_VARIABLE = "REDIS_SERVER_BIN"
"""Not ours alone, hence without our prefix: tests and other tools read it, too."""

NO_FLAG = frozenset({"BROKER_ADMIN__TOKEN", "BROKER_OAUTH__ISSUERS"})
"""Secrets: a flag would show them to whoever may list processes."""

_FOR_PUBLISHERS = {"BROKER_TENANT", "BROKER_KEY"}
"""Read by workers/settings.py and cli/doctor.py only."""

STATE_NAME = "mcp-resource-broker"


def _state_dir() -> Path:
    """Return the user's state directory for us (XDG base directory specification)."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / STATE_NAME


class Settings(BaseSettings):
    """All settings of a broker, frozen."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=PREFIX,
        env_nested_delimiter=NESTED,
        env_ignore_empty=True,
        extra="forbid",
        populate_by_name=True,
    )

    redis_url: str | None = setting(
        None,
        "",
        "URL of the Redis that all replicas share: redis://, rediss:// (TLS), unix://, redis+sentinel:// or "
        "redis+cluster://; unset starts our own.",
    )
    prefix: str = setting("mrb", "", "What every Redis key begins with; one prefix is one installation.")
    host: str = setting("127.0.0.1", "", "The address that the broker listens on; 0.0.0.0 is every IPv4 one.")
    port: int = setting(8000, "", "The port of MCP and publishing; 0 takes any free one.", ge=0, le=65535)
    internal_host: str = setting(
        "127.0.0.1", "", "The address of health and metrics; 0.0.0.0 in a container."
    )
    internal_port: int = setting(
        8001, "", "The port of health and metrics; 0 takes any free one.", ge=0, le=65535
    )
    state_dir: Path = setting(
        _state_dir,
        "",
        "Where the embedded Redis keeps its data.",
        shown=f"$XDG_STATE_HOME/{STATE_NAME} or ~/.local/state/{STATE_NAME}",
    )
    ephemeral: bool = setting(
        default=False,
        unit="",
        sentence="Give the embedded Redis a directory of its own, shared with nobody and deleted at the end.",
    )
    redis_server_bin: str | None = setting(
        None,
        "",
        "The Redis or Valkey server that is started as the embedded Redis; unset looks for one.",
        validation_alias=AliasChoices(BINARY_VARIABLE),
    )
    ready_file: Path | None = setting(
        None, "", "A file that gets one line of JSON, with the ports and the pid, once the broker serves."
    )
    drain_seconds: float = setting(
        20.0,
        "seconds",
        "How long a leaving replica may take to end its streams; below the grace period.",
        ge=0,
    )
    linger_seconds: float = setting(
        3.0, "seconds", "How long a leaving replica goes on serving at least, so that balancers notice.", ge=0
    )
    auth: AuthSettings = AuthSettings()
    http: HttpSettings = HttpSettings()
    session: SessionSettings = SessionSettings()
    listen: ListenSettings = ListenSettings()
    list: ListSettings = ListSettings()
    stream: StreamSettings = StreamSettings()
    shed: ShedSettings = ShedSettings()
    redis: RedisSettings = RedisSettings()
    log: LogSettings = LogSettings()
    oauth: OAuthSettings = OAuthSettings()
    quota: QuotaSettings = QuotaSettings()
    admin: AdminSettings = AdminSettings()
    metrics: MetricsSettings = MetricsSettings()
    traces: TraceSettings = TraceSettings()
    worker: WorkerSettings = WorkerSettings()

    @field_validator("redis_url")
    @classmethod
    def _redis_url(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                address.parse(value)
            except Misconfigured as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        try:
            return Keys(value).prefix
        except Misconfigured as error:
            raise ValueError(str(error)) from None

    @property
    def is_exposed(self) -> bool:
        """Whether anybody on another machine could reach the broker without a credential."""
        return self.auth.mode == "open" and not is_loopback(self.host)

    def check_exposure(self) -> None:
        """Refuse to serve openly to the network unless the operator said so.

        Raises:
            Misconfigured: with what to do.
        """
        if self.is_exposed and not self.auth.accept_open:
            raise Misconfigured(
                f"In open mode anybody who reaches {self.host} could read and publish everything. Listen on "
                "this machine only with BROKER_HOST=127.0.0.1, or say BROKER_AUTH__ACCEPT_OPEN=true if the "
                "network itself keeps strangers out."
            )

    def with_redis(self, url: str) -> Self:
        """Return these settings with the URL of a Redis that we started."""
        # What goes beside a URL is for the Redis that it was set for.
        plain = self.redis.model_copy(update=dict.fromkeys(field.name for field in fields(Access)))
        return self.model_copy(update={"redis_url": url, "redis": plain})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def load(flags: Mapping[str, Any] | None = None) -> Settings:
    """Read the environment, overruled by `flags`, nested like the model itself.

    Raises:
        Misconfigured: one sentence a problem, each with the variable's name.
    """
    try:
        return Settings(**(flags or {}))
    except ValidationError as error:
        problems = [_sentence(details) for details in error.errors(include_url=False)]
        raise Misconfigured("\n".join(problems)) from None
    except SettingsError as error:
        raise Misconfigured(
            f"{error}. Set a group's variables one by one, as in BROKER_HTTP__RETRY_MS=1000, or give it JSON."
        ) from None


def _sentence(details: Mapping[str, Any]) -> str:
    """Say what is wrong with one variable."""
    path = tuple(str(part) for part in details["loc"])
    name = _variable_at(path)
    message = str(details["msg"]).removeprefix("Value error, ").rstrip(".")
    if details["type"] == "extra_forbidden":
        return f"{name} is not a setting{_suggest(name)}"
    value = details["input"]
    hint = ""
    if isinstance(value, str) and value.startswith(("tcp://", "udp://")):
        hint = (
            " Kubernetes puts such a value there for a Service named broker: set enableServiceLinks: false "
            "in the pod, or name the Service otherwise."
        )
    # A URL may hold a password, and this goes to logs.
    shown = name if is_secret(name) else f"{name}={value}"
    return f"{shown} will not do: {message[:1].lower()}{message[1:]}.{hint}"


def is_secret(variable: str) -> bool:
    """Whether a variable's value may hold a password: then it goes into no message."""
    return any(word in variable for word in ("URL", "TOKEN", "ISSUERS"))


def _variable_at(path: tuple[str, ...]) -> str:
    """Return the variable's name for a position in the model."""
    if path == (BINARY_VARIABLE,):
        return BINARY_VARIABLE
    # What follows a group's field is a position in a list.
    depth = (
        2 if path and isinstance(getattr(Settings.model_fields.get(path[0]), "default", None), Group) else 1
    )
    return PREFIX + NESTED.join(path[:depth]).upper()


def variables() -> Iterator[tuple[str, tuple[str, ...], FieldInfo]]:
    """Yield every setting: its variable, its position in the model, and its field."""
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, Group):
            group = cast("type[BaseModel]", type(field.default))
            for inner, inner_field in group.model_fields.items():
                yield f"{PREFIX}{name}{NESTED}{inner}".upper(), (name, inner), inner_field
        else:
            alias = BINARY_VARIABLE if name == "redis_server_bin" else f"{PREFIX}{name}".upper()
            yield alias, (name,), field


def unit(field: FieldInfo) -> str:
    """Return a setting's unit, "" for none."""
    return str(_extra(field)["unit"])


def shown_default(field: FieldInfo) -> str:
    """Return a setting's default as a person would write it."""
    shown = _extra(field)["shown"]
    if shown is not None:
        return str(shown)
    default = field.default
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ",".join(cast("tuple[str, ...]", default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _extra(field: FieldInfo) -> dict[str, Any]:
    return cast("dict[str, Any]", field.json_schema_extra)


def unknown() -> list[str]:
    """Return a sentence for each variable in the environment that looks like a setting and is none.

    They are warnings and no refusals: Kubernetes puts BROKER_SERVICE_HOST and its like into every pod
    beside a Service named broker.
    """
    known = {variable for variable, _, _ in variables()} | _FOR_PUBLISHERS
    groups = {
        f"{PREFIX}{name}".upper()
        for name, field in Settings.model_fields.items()
        if isinstance(field.default, Group)
    }
    return [
        f"{name} is not a setting{_suggest(name)}"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name not in known and name not in groups
    ]


def _suggest(name: str) -> str:
    known = [variable for variable, _, _ in variables()]
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else "; docs/configuration.md has them all."
