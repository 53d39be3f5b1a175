"""Who calls: the only maker of `Principal`, once per request.

Until credentials exist there is one mode, open: for development and trusted networks. The tenant is a
setting, or what a development client names in a header; the caller may do everything in it. The process says
loudly that it is open (settings.check_exposure refuses other machines).
"""

from collections.abc import Mapping

from broker.core.identity import Principal, check_tenant
from broker.settings import AuthSettings

OPEN_SUBJECT = "anonymous"


class OpenAuth:
    """The open mode."""

    def __init__(self, settings: AuthSettings) -> None:
        self._default = Principal(check_tenant(settings.tenant), OPEN_SUBJECT)
        self._header = settings.header.lower()

    async def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller. `headers` have lower-case names.

        Raises:
            InvalidTenant: the header names what cannot be a tenant.
        """
        named = headers.get(self._header)
        return self._default if named is None else Principal(check_tenant(named), OPEN_SUBJECT)
