"""Streams behind a real nginx and a real HAProxy, configured by the snippets of docs/operations/proxies.md.

Time is compressed: the proxies' patience of 120 s and the keep-alive of 15 s become 2 s and 0.25 s, so that a
stream that is quiet for several times that patience lives by its keep-alives alone, as it does for hours.
"""

import asyncio
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.follower import Follower, close_all
from tests.support.mcp import Handshake, Modern
from tests.support.process import Process, free_port
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import stays, until, until_sync
from workers import Publisher

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "proxies.md"
KEEPALIVE_SECONDS = "0.25"
PATIENCE_SECONDS = 2
IDLE_SECONDS = 7
UNSUPPORTED_MEDIA_TYPE = 415
NGINX = """
daemon off; pid {directory}/nginx.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 512; }}
http {{
    # Obeyed and swallowed by nginx otherwise; the raw clients want to see it.
    proxy_pass_header X-Accel-Buffering;
    access_log off; client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
{snippet}
}}
"""

pytestmark = [pytest.mark.full, pytest.mark.timeout(90)]


def snippet(name: str) -> str:
    """Return the tested snippet of a proxy from the page."""
    found = re.search(rf"<!-- tested: {name} -->\n```{name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def placed(text: str, ports: dict[str, int]) -> str:
    """Return a snippet with the page's ports replaced by real ones, and its patience shortened."""
    assert text.count("120s") >= 2, "the proxy's patience is in the snippet"
    text = text.replace("120s", f"{PATIENCE_SECONDS}s")
    for port, real in ports.items():
        assert re.search(rf"\b{port}\b", text), f"the snippet has a port {port}"
        text = re.sub(rf"\b{port}\b", str(real), text)
    return text


@pytest.fixture
def fleet(new_fleet: Callable[..., Fleet], redis_server: RedisServer) -> Fleet:
    """Two replicas with a keep-alive below the proxies' shortened patience."""
    return new_fleet(redis_server.url, 2, BROKER_HTTP__KEEPALIVE_SECONDS=KEEPALIVE_SECONDS)


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """Give the MCP endpoint of a proxy in front of the two replicas."""
    name: str = request.param
    program = shutil.which(name)
    assert program is not None, f"{name} is not installed; make test-full says how"
    one, two = fleet.replicas
    port = free_port()
    ports = {"8080": port, "8000": one.port, "8010": two.port}
    if name == "haproxy":
        ports |= {"8001": one.internal_port, "8011": two.internal_port}
    text = placed(snippet(name), ports)
    path = tmp_path / f"{name}.conf"
    path.write_text(NGINX.format(directory=tmp_path, snippet=text) if name == "nginx" else text)
    options = ["-c", str(path), "-p", str(tmp_path)] if name == "nginx" else ["-f", str(path), "-db"]
    process = Process(name, [program, *options], tmp_path / f"{name}.log")
    process.start()
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        until_sync(lambda: _serves(url, process), lambda: f"{name} serves\n{process.tail()}")
        yield url
    finally:
        process.kill()


def _serves(url: str, process: Process) -> bool:
    assert process.is_running, process.tail()
    try:
        return httpx.post(url, trust_env=False).status_code == UNSUPPORTED_MEDIA_TYPE
    except httpx.TransportError:
        return False


async def test_quiet_streams_outlive_the_proxy_s_patience_and_deliver_at_once(
    proxy: str, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    async with (
        Handshake(proxy, tenant, http) as session,
        Modern(proxy, tenant, http) as client,
        Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher,
    ):
        await session.subscribe("docs://x")
        stream = await session.get_stream()
        listening = await client.listen(["docs://x"])
        await stays(lambda: stream.ended is None and listening.ended is None, "both are open", IDLE_SECONDS)
        await publisher.publish("docs://x", "1")
        await asyncio.gather(stream.cue("docs://x", seconds=2), listening.cue("docs://x", seconds=2))
        await listening.close()


async def test_a_rolling_restart_loses_no_session_no_change_and_no_request(
    proxy: str, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    followers = [
        Follower(era, lambda: [proxy], tenant, ["docs://x"], http=http, rng=random.Random(number))
        for number, era in enumerate((Handshake, Modern, Handshake, Modern))
    ]
    written = 0
    rolled = asyncio.Event()

    async def publish() -> None:
        nonlocal written
        async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
            while not rolled.is_set():
                written += 1
                await publisher.publish("docs://x", str(written))
                async with Modern(proxy, tenant, http) as reader:
                    # An error here fails the test: no request fails while replicas come and go.
                    text = (await reader.read("docs://x"))[0]["text"]
                assert int(text) >= written - 1
                await asyncio.sleep(0.05)

    async def roll() -> None:
        for replica in fleet.replicas:
            assert await asyncio.to_thread(replica.leave) == 0
            await asyncio.to_thread(replica.start)
            await until(lambda: all(f.is_subscribed.is_set() for f in followers), "all listen again")
        rolled.set()

    try:
        await until(lambda: all(f.is_idle for f in followers), "all are subscribed")
        await asyncio.gather(publish(), roll())
        await until(
            lambda: all(f.known.get("docs://x") == str(written) for f in followers),
            lambda: f"all know {written}: {followers}",
            15,
        )
    finally:
        await close_all(followers)
    for follower in followers:
        if follower.era is Handshake:
            assert follower.starts == 1, f"{follower!r} lost its session"
