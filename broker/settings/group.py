"""The groups of settings, and how one setting is declared."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_settings import NoDecode

from broker.core.errors import InvalidTenant
from broker.core.identity import check_tenant
from broker.store.address import Access

MINUTE = 60
HOUR = 3600
MB = 1_000_000


def _split(value: Any) -> Any:
    """Read a list from the environment: JSON, or values parted by commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return [part.strip() for part in value.split(",") if part.strip()]


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


def setting(default: Any, unit: str, sentence: str, **rest: Any) -> Any:
    """Declare a setting: its default, its unit ("" for none) and its sentence."""
    extra = {"unit": unit, "shown": rest.pop("shown", None)}
    if callable(default):
        return Field(default_factory=default, description=sentence, json_schema_extra=extra, **rest)
    return Field(default=default, description=sentence, json_schema_extra=extra, **rest)


class Group(BaseModel):
    """Some settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AuthSettings(Group):
    """Who may call, and for which tenant."""

    mode: Literal["open", "keys", "oauth", "keys+oauth"] = setting(
        "open",
        "",
        "How callers are known: API keys, OAuth access tokens, both; open is for development: "
        "nobody is, and anybody may do anything.",
    )
    accept_open: bool = setting(
        default=False,
        unit="",
        sentence="Serve in open mode on an address that other machines can reach, knowing what that means.",
    )
    tenant: str = setting("default", "", "The tenant of a caller in open mode that names none.")
    header: str = setting(
        "broker-tenant",
        "",
        "The request header by which a caller in open mode chooses its tenant; empty for none.",
    )

    @field_validator("tenant")
    @classmethod
    def _tenant(cls, value: str) -> str:
        try:
            return check_tenant(value)
        except InvalidTenant as error:
            raise ValueError(str(error)) from None

    @field_validator("header")
    @classmethod
    def _header(cls, value: str) -> str:
        if not all(c.isascii() and (c.isalnum() or c in "-_") for c in value):
            raise ValueError("a header name has letters, digits, - and _ only")
        return value.lower()


class HttpSettings(Group):
    """The public HTTP side."""

    allowed_hosts: Names = setting(
        (),
        "",
        "Names that a request's Host may have; without a port any port will do, * allows all.",
        shown="the loopback names",
    )
    allowed_origins: Names = setting(
        (),
        "",
        "Web origins whose pages may call, as browsers send them (https://app.example.org); * allows all.",
        shown="the loopback's, on any port",
    )
    max_header_bytes: int = setting(32_768, "bytes", "The largest request head that is read.", ge=1024, le=MB)
    max_body_bytes: int = setting(
        1 * MB, "bytes", "The largest JSON-RPC request that is read.", ge=1024, le=1000 * MB
    )
    max_content_bytes: int = setting(
        10 * MB, "bytes", "The largest contents of one resource, as published over HTTP.", ge=1, le=500 * MB
    )
    keepalive_seconds: float = setting(
        15.0,
        "seconds",
        "How often an idle stream gets a comment line, so that nothing between cuts it.",
        gt=0,
    )
    retry_ms: int = setting(
        1000,
        "ms",
        "How long a client is asked to wait before it opens an ended stream again.",
        ge=0,
        le=600_000,
    )
    head_seconds: float = setting(
        20.0, "seconds", "How long a request's head may take to come; then the connection is closed.", gt=0
    )
    body_seconds: float = setting(
        30.0,
        "seconds",
        "How long a request's body may take to come (what is published: each megabyte); then it is refused.",
        gt=0,
    )
    idle_seconds: int = setting(
        75,
        "seconds",
        "How long a connection without a request stays open; more than the proxy's in front.",
        ge=1,
    )
    backlog: int = setting(2048, "connections", "How many connections may wait to be accepted.", ge=1)


class SessionSettings(Group):
    """Sessions of the handshake era (up to 2025-11-25)."""

    idle_seconds: int = setting(
        HOUR, "seconds", "A session without a request or stream for this long has ended.", ge=10
    )
    max_uris: int = setting(1000, "URIs", "How many resources one session may watch.", ge=1)
    refusal_wait_ms: int = setting(
        400,
        "ms",
        "How long a request waits for Redis to say whether its session lives, before it is refused.",
        ge=0,
    )


class ListenSettings(Group):
    """Listen streams of the modern era (2026-07-28)."""

    max_uris: int = setting(1000, "URIs", "How many resources one listen request may name.", ge=1)


class ListSettings(Group):
    """What the list requests answer."""

    page_size: int = setting(
        100, "resources", "The most resources on one page of resources/list.", ge=1, le=1000
    )
    empty_tools_and_prompts: bool = setting(
        default=True,
        unit="",
        sentence="Answer tools/list and prompts/list with empty lists, since some frameworks fail without.",
    )


class StreamSettings(Group):
    """Every open response stream, of both eras."""

    writer: Literal["auto", "portable", "fast"] = setting(
        "auto",
        "",
        "How streams are written: fast on uvicorn's own transport, portable through ASGI, auto the fast way "
        "where this uvicorn is known. Both write the same bytes.",
    )
    write_deadline_seconds: float = setting(
        30.0,
        "seconds",
        "A client that takes no byte for this long is a slow consumer, and its stream is cut.",
        gt=0,
    )
    max_age_seconds: float = setting(
        12 * HOUR,
        "seconds",
        "A stream ends cleanly after 0.8 to 1.0 times this; 0 lets it live for ever.",
        ge=0,
    )


class ShedSettings(Group):
    """From when on a replica refuses what would stay open: it would otherwise end for want of something."""

    descriptors_share: float = setting(
        0.9,
        "share",
        "From this share of its descriptors on a replica refuses new streams and sessions, and is unready.",
        gt=0.05,
        le=1,
    )
    memory_share: float = setting(
        0.85, "share", "The same for this share of its memory, where that has a limit.", gt=0.05, le=1
    )
    memory_bytes: int = setting(
        0, "bytes", "How much memory a replica may use; 0 is what its container allows.", ge=0
    )


class RedisSettings(Group):
    """The connections to Redis."""

    pool_size: int = setting(
        20, "connections", "The most command connections of one replica.", ge=1, le=10_000
    )
    connect_timeout_seconds: float = setting(1.0, "seconds", "How long connecting may take.", gt=0, le=MINUTE)
    timeout_seconds: float = setting(2.0, "seconds", "How long one command may take.", gt=0, le=MINUTE)
    username: str | None = setting(None, "", "The Redis user; goes before the one in the URL.")
    password_file: str | None = setting(
        None,
        "",
        "A file with the Redis user's password, read again for each connection, so that it can be rotated.",
    )
    sentinel_username: str | None = setting(None, "", "The user for the sentinels, if they have users.")
    sentinel_password_file: str | None = setting(
        None, "", "A file with the password for the sentinels, read again for each connection."
    )
    ca_file: str | None = setting(
        None, "", "The certificates (PEM) that the server's is checked with; unset trusts the system's."
    )
    cert_file: str | None = setting(
        None, "", "Our certificate (PEM), where the server wants one; read again for each connection."
    )
    key_file: str | None = setting(None, "", "The key (PEM) of our certificate, unless it is in that file.")

    @property
    def access(self) -> Access:
        """What these settings say beside the URL."""
        return Access(
            self.username,
            self.password_file,
            self.sentinel_username,
            self.sentinel_password_file,
            self.ca_file,
            self.cert_file,
            self.key_file,
        )


class LogSettings(Group):
    """The log in Redis that every replica follows, and what we write to standard error."""

    length: int = setting(
        100_000, "entries", "How many changes a log keeps: 30 s of the permitted rate at least.", ge=20_000
    )
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "", "The least important event that is written to standard error."
    )
    format: Literal["text", "json"] = setting(
        "text", "", "How an event is written: text for people, or json, one object a line."
    )


class MetricsSettings(Group):
    """What /metrics on the internal port tells."""

    tenants: int = setting(
        0,
        "tenants",
        "For how many tenants metrics have series of their own, by name; the rest is summed up.",
        ge=0,
        le=1000,
    )


class TraceSettings(Group):
    """Where traces go; the rest of OpenTelemetry's own settings are its own OTEL_ variables."""

    endpoint: str | None = setting(
        None,
        "",
        "The OTLP collector that gets traces over HTTP, as http://collector:4318; unset traces nothing.",
    )


class WorkerSettings(Group):
    """Calls to workers, and their registrations."""

    call_seconds: float = setting(10.0, "seconds", "How long a worker may take for an answer.", gt=0, le=300)
    running_per_tenant: int = setting(
        500, "executions", "How many executions of one tenant may wait for workers on a replica.", ge=1
    )
    kept_bytes: int = setting(
        64 * MB, "bytes", "How much memory results may take that are kept for their declared ttl.", ge=0
    )
    demand_seconds: float = setting(
        5.0,
        "seconds",
        "How often a replica repeats what is watched to workers that want to know; below their linger.",
        gt=0,
        le=10,
    )
    unheard_seconds: float = setting(
        30.0,
        "seconds",
        "How long what a worker registered stays listed once no process of it is there to repeat it.",
        gt=0,
    )
