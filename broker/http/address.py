"""Which addresses are MCP endpoints: /mcp, where the credential alone names the tenant, and /t/{tenant}/mcp.

The tenant is one raw segment of the path, percent-decoded once, so a name may hold a slash. A final slash is
served as it is: clients do not follow a redirect of a POST.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from broker.core.errors import InvalidTenant
from broker.core.identity import TenantId, check_tenant

_OWN = re.compile(r"/t/([^/]+)/mcp/?")


class Address(NamedTuple):
    """An MCP endpoint's address; `tenant` is None at /mcp."""

    tenant: TenantId | None


def endpoint(scope: Mapping[str, Any]) -> Address | None:
    """Return the MCP endpoint that an ASGI scope addresses, None if it is none."""
    if scope["path"] in ("/mcp", "/mcp/"):
        return Address(None)
    found = _OWN.fullmatch(raw_path(scope))
    if found is None:
        return None
    tenant = tenant_in_path(found[1])
    return None if tenant is None else Address(tenant)


def raw_path(scope: Mapping[str, Any]) -> str:
    """Return the path as it was sent, without its query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def tenant_in_path(segment: str) -> TenantId | None:
    """Return the tenant that one raw segment of a path names, None if it cannot be one."""
    try:
        return check_tenant(unquote_to_bytes(segment).decode())
    except (UnicodeDecodeError, InvalidTenant):
        return None
