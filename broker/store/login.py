"""What we say when the server asks who we are: read anew for each connection, so that it can be rotated.

Rule: a password file is small and local, so it is read where it is needed, without a thread. One that cannot
be read is a state and no crash: while a secret is being replaced it may be gone for a moment.
"""

from pathlib import Path
from typing import Any

from redis.credentials import CredentialProvider

from broker.core.errors import StoreUnavailable
from broker.store.address import Login
from broker.store.errors import Ours


def password_in(file: str) -> str:
    """Return the password in `file`, without the line's end.

    Raises:
        StoreUnavailable: it cannot be read, or is empty.
    """
    try:
        password = Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StoreUnavailable(f"The password file {file} cannot be read: {why}.") from None
    if not password:
        raise StoreUnavailable(f"The password file {file} is empty.")
    return password


class _Provider(CredentialProvider):
    def __init__(self, login: Login) -> None:
        self._login = login

    def get_credentials(self) -> Any:
        login = self._login
        try:
            password = password_in(login.password_file) if login.password_file else login.password
        except StoreUnavailable as error:
            raise Ours(error) from None
        if login.username is None:
            return (password or "",)
        return (login.username, password or "")

    async def get_credentials_async(self) -> Any:
        return self.get_credentials()


def provider(login: Login) -> CredentialProvider | None:
    """Return what tells the client library our credentials, None if there are none."""
    return None if login == Login() else _Provider(login)
