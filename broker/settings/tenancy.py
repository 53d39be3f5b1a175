"""Settings of OAuth, of the administrators' API, and what each tenant may use."""

import json
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from broker.core.errors import InvalidTenant
from broker.core.identity import check_tenant
from broker.settings.group import MB, Group, Names, setting

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class Issuer(BaseModel):
    """An authorization server whose tokens are accepted, and whose tenant they are of.

    The tenant is `tenant`, or the value of the claim `tenant_claim`, or, with neither, the issuer's own name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    jwks_url: str | None = None
    tenant: str | None = None
    tenant_claim: str | None = None
    introspection_url: str | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = Field(default=None, repr=False)

    @field_validator("issuer", "jwks_url", "introspection_url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            return value
        raise ValueError("it must be an https:// URL (http:// on this machine only)")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.tenant is not None and self.tenant_claim is not None:
            raise ValueError("give it a tenant or a tenant_claim, not both")
        if self.introspection_url is not None and (self.client_id is None or self.client_secret is None):
            raise ValueError("introspection needs client_id and client_secret")
        if self.tenant_claim is None:
            try:
                check_tenant(self.tenant or self.issuer)
            except InvalidTenant as error:
                raise ValueError(f"{error}; give it a tenant or a tenant_claim") from None
        return self


def _read(value: Any) -> Any:
    """Read JSON from the environment or a flag."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError('it must be JSON, as in [{"issuer": "https://…", "tenant": "acme"}]') from None


Issuers = Annotated[tuple[Issuer, ...], NoDecode, BeforeValidator(_read)]


class OAuthSettings(Group):
    """OAuth 2.1: which access tokens are accepted."""

    resource: str = setting(
        "", "", "The URL by which clients reach /mcp, byte for byte: what a token must be made for."
    )
    audiences: Names = setting(
        (),
        "",
        "More audiences that are accepted, exactly; the resource always is, with or without a slash.",
    )
    issuers: Issuers = setting(
        (),
        "",
        "The authorization servers, as JSON: a list of objects with issuer, tenant or tenant_claim, and "
        "jwks_url or introspection_url with client_id and client_secret (docs/tenants.md).",
    )
    leeway_seconds: float = setting(
        30.0, "seconds", "How far clocks may differ when a token's times are checked.", ge=0, le=300
    )
    jwks_seconds: float = setting(
        300.0, "seconds", "How often an issuer's keys are fetched anew.", ge=1, le=86_400
    )
    introspection_seconds: float = setting(
        30.0, "seconds", "How long the answer about an opaque token is believed.", ge=0, le=300
    )
    max_token_bytes: int = setting(8192, "bytes", "The largest access token that is looked at.", ge=512)
    accept_unlisted_tenants: bool = setting(
        default=False,
        unit="",
        sentence="Serve every tenant that a trusted issuer names, not only those that were created.",
    )


class AdminSettings(Group):
    """The administrators' API on the internal port."""

    token: SecretStr | None = setting(
        None, "", "The credential of the administrators' API, 32 characters or more; unset switches it off."
    )

    @field_validator("token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 32:  # noqa: PLR2004 # as its sentence says
            raise ValueError("it has fewer than 32 characters; make one with openssl rand -hex 32")
        return value


class QuotaSettings(Group):
    """What a tenant may use over the whole fleet, unless it has limits of its own; 0 is no limit."""

    streams: int = setting(2000, "streams", "Open streams of one tenant.", ge=0)
    sessions: int = setting(10_000, "sessions", "Sessions of one tenant.", ge=0)
    stream_uris: int = setting(1000, "URIs", "Resources that one stream or session may watch.", ge=0)
    uris: int = setting(
        100_000, "URIs", "Resources that all streams and sessions of one tenant may watch.", ge=0
    )
    resources: int = setting(100_000, "resources", "Resources that one tenant may have.", ge=0)
    content_bytes: int = setting(
        1000 * MB, "bytes", "Contents that one tenant may have stored, encoded.", ge=0
    )
    resource_bytes: int = setting(
        10 * MB, "bytes", "Contents of one resource, encoded; never above the HTTP limit.", ge=0
    )
    publishes: int = setting(
        0,
        "per second",
        "Changes of one tenant; 0 is the log's length in a minute, which is the most.",
        ge=0,
    )
    publish_bytes: int = setting(
        10 * MB, "bytes per second", "Contents that one tenant may publish, encoded.", ge=0
    )
    reads: int = setting(2000, "per second", "Reads, lists and subscriptions of one tenant.", ge=0)
    calls: int = setting(500, "calls", "Calls to workers that one tenant may have under way.", ge=0)
    principal_streams: int = setting(500, "streams", "Open streams of one caller.", ge=0)
    principal_sessions: int = setting(2000, "sessions", "Sessions of one caller.", ge=0)
    principal_reads: int = setting(1000, "per second", "Reads, lists and subscriptions of one caller.", ge=0)
    principal_publishes: int = setting(
        0, "per second", "Changes that one caller may publish over HTTP.", ge=0
    )
    principal_publish_bytes: int = setting(
        0, "bytes per second", "Contents that one caller may publish over HTTP.", ge=0
    )
