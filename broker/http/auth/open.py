"""The open mode, for development and trusted networks: nobody is asked who they are.

The tenant is a setting, or what the client names in a header or in the address; the caller may do everything
in it. The process says loudly that it is open (settings.check_exposure refuses other machines).
"""

from collections.abc import Mapping

from broker.core.errors import BrokerError, TenantNotFound
from broker.core.identity import Principal, TenantId, check_tenant
from broker.settings import AuthSettings

OPEN_SUBJECT = "anonymous"


class OpenGate:
    """The gate that lets everybody in."""

    def __init__(self, settings: AuthSettings) -> None:
        self._default = Principal(check_tenant(settings.tenant), OPEN_SUBJECT)
        self._header = settings.header.lower()

    async def admit(
        self, headers: Mapping[str, str], scope: str, tenant: TenantId | None = None
    ) -> Principal:
        """Return the caller. `headers` have lower-case names.

        Raises:
            InvalidTenant: the header names what cannot be a tenant.
            TenantNotFound: the header and the address name two.
        """
        del scope
        named = headers.get(self._header)
        if named is None:
            return self._default if tenant is None else Principal(tenant, OPEN_SUBJECT)
        if tenant not in (None, named):
            raise TenantNotFound("There is nothing at this address for this tenant.")
        return Principal(check_tenant(named), OPEN_SUBJECT)

    def challenge(self, error: BrokerError, tenant: TenantId | None = None) -> bytes | None:
        """Return None: nobody is challenged."""
        del error, tenant
