"""The Sentinel set-up and the Cluster can be hurt, move, and heal."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis
from redis.crc import key_slot

from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinel
from tests.support.redis_server import RedisServer

KEY = "{a}kept"


@pytest.fixture(scope="module")
def sentinel() -> Iterator[RedisSentinel]:
    with RedisSentinel() as sentinel:
        yield sentinel


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


def write(server: RedisServer, value: str) -> None:
    """Write, and wait until one replica has it: what a failover keeps."""
    with server.client() as client:
        client.set(KEY, value)
        assert cast("Any", client).wait(1, 5000) >= 1


def read(server: RedisServer) -> bytes | None:
    with server.client() as client:
        return cast("bytes | None", client.get(KEY))


def test_sentinels_replace_a_primary_that_crashed(sentinel: RedisSentinel) -> None:
    write(sentinel.primary, "crash")
    old = sentinel.kill()
    assert read(sentinel.until_moved(old)) == b"crash"
    sentinel.heal()
    assert all(read(server) == b"crash" for server in sentinel.servers)


def test_a_paused_primary_comes_back_as_a_replica(sentinel: RedisSentinel) -> None:
    write(sentinel.primary, "pause")
    old = sentinel.pause()
    with old.client() as client:
        new = sentinel.until_moved(old)
        sentinel.heal()
        assert read(new) == b"pause"
        with pytest.raises(redis.ReadOnlyError):
            client.set(KEY, "late")


def test_sentinels_move_the_primary_when_asked(sentinel: RedisSentinel) -> None:
    write(sentinel.primary, "asked")
    assert read(sentinel.failover()) == b"asked"
    sentinel.heal()


def test_a_cluster_replaces_a_primary_that_crashed(cluster: RedisCluster) -> None:
    write(cluster.primary(KEY), "crash")
    old = cluster.kill(KEY)
    assert read(cluster.until_moved(KEY, old)) == b"crash"
    cluster.heal()
    assert old not in cluster.primaries


def test_a_cluster_moves_a_primary_when_asked(cluster: RedisCluster) -> None:
    write(cluster.primary(KEY), "asked")
    old = cluster.primary(KEY)
    new = cluster.failover(KEY)
    assert new is not old
    assert read(new) == b"asked"
    cluster.until_whole()


def test_a_slot_stays_on_its_way_until_its_move_ends(cluster: RedisCluster) -> None:
    slot = key_slot(KEY.encode())
    write(cluster.primary(KEY), "moved")
    target = next(node for node in cluster.primaries if node is not cluster.primary(KEY))
    source = cluster.begin_migration(slot, target)
    assert cluster.primary(KEY) is source
    assert cluster.move_keys(slot, source, target) == 1
    cluster.end_migration(slot, target)
    assert cluster.primary(KEY) is target
    assert read(target) == b"moved"
    with cluster.client() as client:
        assert client.get(KEY) == b"moved"
    cluster.until_whole()
