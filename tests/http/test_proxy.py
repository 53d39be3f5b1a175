"""Idle streams behind a real nginx with its stock timeouts: 60 s without a byte, and it cuts.

IDLE_SECONDS=600 waits ten minutes instead of a little more than one.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.mcp import Handshake, Modern
from tests.support.process import Process, free_port
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import stays, until, until_sync
from workers import Publisher

IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS", "70"))
CONF = """
daemon off;
master_process off;
pid {directory}/pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream broker {{ {servers} }}
    server {{
        listen 127.0.0.1:{port};
        # Obeyed and swallowed by nginx; the raw clients want to see it.
        proxy_pass_header X-Accel-Buffering;
        {location}
    }}
}}
"""

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

pytestmark = pytest.mark.requirement("proxy.idle")


@pytest.fixture
def nginx(fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """Give the address of an nginx in front of the replicas, set up as docs/protocol.md says."""
    program = shutil.which("nginx")
    assert program is not None, "nginx is not installed: apt-get update && apt-get install nginx-light"
    port = free_port()
    servers = " ".join(f"server {host}:{number};" for host, number in (r.address for r in fleet.replicas))
    conf = tmp_path / "nginx.conf"
    location = PAGE.read_text().partition("```nginx\n")[2].partition("```")[0]
    conf.write_text(CONF.format(directory=tmp_path, port=port, servers=servers, location=location))
    url = f"http://127.0.0.1:{port}/mcp"
    process = Process("nginx", [program, "-c", str(conf), "-p", str(tmp_path)], tmp_path / "log")
    process.start()
    try:
        until_sync(lambda: _is_serving(url, process), lambda: f"nginx answers\n{process.tail()}")
        yield url
    finally:
        process.kill()


def _is_serving(url: str, process: Process) -> bool:
    assert process.is_running, process.tail()
    try:
        return httpx.post(url, trust_env=False).status_code == 415
    except httpx.ConnectError:
        return False


@pytest.mark.full
@pytest.mark.timeout(IDLE_SECONDS + 60)
async def test_idle_streams_outlive_the_proxys_patience_and_deliver_afterwards(
    nginx: str, tenant: str, http: httpx.AsyncClient, publisher: Publisher
) -> None:
    async with Handshake(nginx, tenant, http) as session:
        await session.subscribe("docs:x")
        stream = await session.get_stream()
        listening = await Modern(nginx, tenant, http).listen(["docs:x"])
        await stays(
            lambda: stream.ended is None and listening.ended is None, "both streams are open", IDLE_SECONDS
        )
        await publisher.publish("docs:x", "1")
        await asyncio.gather(stream.cue("docs:x", seconds=1), listening.cue("docs:x", seconds=1))
        await listening.close()


async def test_an_idle_stream_gets_a_comment_as_often_as_the_setting_says(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient, prefix: str
) -> None:
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 1, BROKER_HTTP__KEEPALIVE_SECONDS="1")
    async with (
        Handshake(fleet.url, "default", http) as session,
        Publisher(redis_server.url, prefix=prefix) as publisher,
    ):
        await session.subscribe("docs:x")
        stream = await session.get_stream()
        listening = await Modern(fleet.url, "default", http).listen(["docs:x"])
        for each in (stream, listening.stream):
            await until(lambda each=each: sum(f.comment == "" for f in each.frames) >= 3, "three comments")
        await publisher.publish("docs:x", "1")
        await asyncio.gather(stream.cue("docs:x"), listening.cue("docs:x"))
        await listening.close()
