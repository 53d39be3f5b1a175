"""WWW-Authenticate, and the metadata that it points to (RFC 6750, 3; RFC 9728; MCP "Authorization").

The resource is the string that the operator set, byte for byte but for the case of its scheme and host: a
slash more or less makes another resource to strict clients, and so would a URL type. The metadata of
https://h/team/mcp is at https://h/.well-known/oauth-protected-resource/team/mcp; it is also served at the
root of the well-known address. Each tenant's own address has metadata of its own, the same for every name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from broker.core.access import PUBLISH, READ
from broker.core.errors import BrokerError, Forbidden, Misconfigured, Unauthenticated
from broker.core.identity import TenantId
from broker.core.publication import encode_json
from broker.http.address import tenant_in_path

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"


@dataclass(frozen=True)
class Challenge:
    """What a refused client is told. Without a `resource` (no OAuth) there is no metadata."""

    resource: str = ""
    issuers: Sequence[str] = ()
    name: str = "MCP resource broker"
    scopes: Sequence[str] = field(default=(READ, PUBLISH))

    def header(self, error: BrokerError, tenant: TenantId | None = None) -> bytes | None:
        """Return the header's value for a refusal at the address of `tenant`, None if it needs none."""
        parts: list[tuple[str, str]] = []
        if isinstance(error, Unauthenticated):
            if error.is_presented:
                parts += [("error", "invalid_token"), ("error_description", _quotable(str(error)))]
            parts.append(("scope", READ))
        elif isinstance(error, Forbidden):
            if error.scope is None:
                return None
            parts += [("error", "insufficient_scope"), ("error_description", _quotable(str(error)))]
            parts.append(("scope", error.scope))
        else:
            return None
        if self.resource:
            parts.append(("resource_metadata", self.metadata_url(tenant)))
        return ("Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts)).encode("ascii")

    def metadata_url(self, tenant: TenantId | None = None) -> str:
        """Return where the metadata of the (tenant's) resource is (RFC 9728, 3.1)."""
        origin, path = _parted(self.resource_of(tenant))
        return origin + WELL_KNOWN + path

    def resource_of(self, tenant: TenantId | None = None) -> str:
        """Return the resource's identifier, of a tenant's own address if one is given."""
        if tenant is None:
            return self.resource
        base = self.resource.removesuffix("/").removesuffix(MCP_PATH)
        return f"{base}/t/{quote(tenant, safe='')}{MCP_PATH}"

    def audiences(self, tenant: TenantId) -> frozenset[str]:
        """Return what the audience of a tenant's token may be: its two addresses, with or without a slash."""
        bare = [one.removesuffix("/") for one in (self.resource, self.resource_of(tenant))]
        return frozenset(one + end for one in bare for end in ("", "/"))

    def metadata(self, path: str) -> bytes | None:
        """Return the document at the raw path of a request, None if there is none."""
        if not self.resource or not path.startswith(WELL_KNOWN):
            return None
        rest = path.removeprefix(WELL_KNOWN)
        own = _parted(self.resource)[1]
        if rest in ("", "/") or rest.removesuffix("/") == own.removesuffix("/"):
            return self._document(None)
        prefix = own.removesuffix("/").removesuffix(MCP_PATH) + "/t/"
        named = rest.removesuffix("/").removeprefix(prefix).removesuffix(MCP_PATH)
        if not rest.startswith(prefix) or not rest.removesuffix("/").endswith(MCP_PATH) or "/" in named:
            return None
        tenant = tenant_in_path(named)
        return None if tenant is None else self._document(tenant)

    def _document(self, tenant: TenantId | None) -> bytes:
        document: dict[str, Any] = {
            "resource": self.resource_of(tenant),
            "authorization_servers": list(self.issuers),
            "scopes_supported": list(self.scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": self.name,
        }
        return encode_json(document)


def canonical(resource: str) -> str:
    """Return the resource as set, with scheme and host in lower case and nothing else changed.

    Raises:
        Misconfigured: not an absolute http(s) URL, or with a query or fragment (RFC 8707, 2).
    """
    parts = urlsplit(resource)
    plain = resource.isascii() and resource.isprintable() and not set(resource) & set(' "\\')
    if parts.scheme not in ("http", "https") or not parts.hostname or "?" in resource or "#" in resource:
        plain = False
    if not plain or "@" in parts.netloc:
        raise Misconfigured(
            "BROKER_OAUTH__RESOURCE is the URL that clients use for this broker, as in "
            "https://mcp.example.org/mcp, without query and fragment."
        )
    origin, path = _parted(resource)
    return origin.lower() + path


def _parted(url: str) -> tuple[str, str]:
    """Return a URL's origin and its path, as they are written."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}", slash + path


def _quotable(text: str) -> str:
    """Return what a quoted string of RFC 6750, 3 may hold."""
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "'" for c in text)
