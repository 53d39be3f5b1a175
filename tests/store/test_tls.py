"""TLS on a real server: what is right works, and what is wrong is said so (by Debian's Redis)."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import Misconfigured, StoreUnavailable
from broker.store.address import Access
from broker.store.client import Connect, commands, commands_sync, reader
from broker.store.errors import translated
from broker.store.keys import Keys
from tests.store.shelf import Shelf
from tests.support.authority import DAY, NOW, Authority, Pair
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.full

KEYS = Keys("tls")


class TlsServer(RedisServer):
    """Debian's Redis on a port that speaks TLS only."""

    def __init__(self, pair: Pair, authority: Authority, *, wants_client: bool = False) -> None:
        asks = "yes" if wants_client else "no"
        super().__init__(
            "--tls-cert-file", str(pair.cert), "--tls-key-file", str(pair.key),
            "--tls-ca-cert-file", str(authority.file), "--tls-auth-clients", asks,
        )  # fmt: skip
        self._authority = authority
        self._client_pair = pair

    @property
    def tls_url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    def _argv(self, port: int) -> list[str]:
        found = shutil.which("redis-server")
        assert found is not None, "make test-full says which packages are needed"
        plain = super()._argv(port)
        at = plain.index("--port")
        return [found, *plain[1:at], "--port", "0", "--tls-port", str(port), *plain[at + 2 :]]

    def client(self) -> Any:
        import redis  # noqa: PLC0415 - as the parent's, with TLS

        return redis.Redis(
            port=self.port,
            host="127.0.0.1",
            socket_timeout=5,
            ssl=True,
            ssl_ca_certs=str(self._authority.file),
            ssl_certfile=str(self._client_pair.cert),
            ssl_keyfile=str(self._client_pair.key),
            # Some are made to be refused; by the broker's client, that is.
            ssl_cert_reqs="none",
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[TlsServer]:
    with TlsServer(authority.issue("server"), authority) as running:
        yield running


async def asked(url: str, access: Access = Access()) -> None:  # noqa: B008 - a frozen value
    """Connect both ways, and raise what went wrong."""
    how = Connect(url, KEYS, access=access)
    client: Any = commands(how)
    try:
        with translated():
            await client.ping()
    finally:
        await client.aclose()
        plain: Any = commands_sync(how)
        with translated():
            plain.ping()
        plain.close()


async def test_commands_readers_and_scripts_speak_tls(server: TlsServer, authority: Authority) -> None:
    how = Connect(server.tls_url, KEYS, access=Access(ca_file=str(authority.file)))
    client, tail = commands(how), reader(how)
    assert (await Shelf(client, KEYS).publish("x")).status == "published"
    untyped: Any = tail
    assert await untyped.xread({KEYS.log(0): "0-0"}, count=1, block=100)
    plain: Any = commands_sync(how)
    assert plain.ping()
    plain.close()
    await tail.aclose()
    await client.aclose()


async def test_the_files_may_stand_in_the_url(server: TlsServer, authority: Authority) -> None:
    await asked(f"{server.tls_url}?ssl_ca_certs={authority.file}")


async def test_a_server_signed_by_somebody_else_is_refused(server: TlsServer, authority: Authority) -> None:
    other = Authority(authority.folder, "other")
    with pytest.raises(StoreUnavailable, match=r"nobody we trust: set BROKER_REDIS__CA_FILE"):
        await asked(server.tls_url, Access(ca_file=str(other.file)))
    with pytest.raises(StoreUnavailable, match=r"nobody we trust"):
        await asked(server.tls_url)
    await asked(f"{server.tls_url}?ssl_cert_reqs=none")


async def test_a_certificate_for_another_name_is_refused_unless_told(authority: Authority) -> None:
    with TlsServer(authority.issue("elsewhere", address="127.0.0.9"), authority) as elsewhere:
        # The test's own client checks the name as well.
        access = Access(ca_file=str(authority.file))
        with pytest.raises(StoreUnavailable, match="for another name"):
            await asked(elsewhere.tls_url, access)
        await asked(f"{elsewhere.tls_url}?ssl_check_hostname=false", access)


async def test_an_expired_certificate_is_named(authority: Authority) -> None:
    access = Access(ca_file=str(authority.file))
    expired = authority.issue("old", until=NOW - DAY)
    with TlsServer(expired, authority) as old, pytest.raises(StoreUnavailable, match="has expired: renew it"):
        await asked(old.tls_url, access)


async def test_tls_to_a_plain_port_is_named(redis_server: RedisServer) -> None:
    with pytest.raises(StoreUnavailable, match="does not speak TLS on this port"):
        await asked(redis_server.url.replace("redis:", "rediss:"))


async def test_a_plain_client_on_a_tls_port_is_told_what_it_may_be(server: TlsServer) -> None:
    with pytest.raises(StoreUnavailable, match="rediss://"):
        await asked(server.tls_url.replace("rediss:", "redis:"))


async def test_a_server_that_asks_for_our_certificate_gets_it(authority: Authority) -> None:
    with TlsServer(authority.issue("strict"), authority, wants_client=True) as strict:
        ca = str(authority.file)
        with pytest.raises(StoreUnavailable, match="certificate"):
            await asked(strict.tls_url, Access(ca_file=ca))
        mine = authority.issue("mine")
        await asked(strict.tls_url, Access(ca_file=ca, cert_file=str(mine.cert), key_file=str(mine.key)))


async def test_renewed_files_are_read_for_the_next_connection(
    server: TlsServer, authority: Authority
) -> None:
    file = authority.folder / "renewed.pem"
    file.write_bytes(Authority(authority.folder, "stale").file.read_bytes())
    client: Any = commands(Connect(server.tls_url, KEYS, access=Access(ca_file=str(file))))
    with pytest.raises(StoreUnavailable), translated():
        await client.ping()
    file.write_bytes(authority.file.read_bytes())
    assert await client.ping()
    await client.aclose()


def test_files_that_cannot_be_used_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"nowhere\.pem cannot be read"):
        Connect("rediss://h", KEYS, access=Access(ca_file="/nowhere.pem"))
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    with pytest.raises(Misconfigured, match=r"nonsense\.pem"):
        Connect("rediss://h", KEYS, access=Access(ca_file=str(nonsense)))
