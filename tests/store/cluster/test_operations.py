"""Operators' commands on a Redis Cluster: it is examined node by node, and an installation moves there."""

from pathlib import Path

from tests.operations.test_commands import broker
from tests.store.cluster.conftest import Place
from tests.support.redis_server import RedisServer
from workers import SyncPublisher


def test_the_doctor_examines_every_node_that_has_a_log(place: Place) -> None:
    done = broker("doctor", BROKER_REDIS_URL=place.cluster.url, BROKER_PREFIX=place.prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    for node in place.cluster.primaries:
        assert f"127.0.0.1:{node.port}: Everything that a broker does is permitted." in done.stdout


def test_a_node_of_a_cluster_is_not_taken_for_a_single_server(place: Place) -> None:
    url = f"redis://127.0.0.1:{place.cluster.primaries[0].port}"
    done = broker("doctor", BROKER_REDIS_URL=url, BROKER_PREFIX=place.prefix)
    assert done.returncode == 2
    assert "redis+cluster://" in done.stdout


def test_an_installation_moves_from_a_single_server_to_a_cluster_and_back(
    redis_server: RedisServer, prefix: str, place: Place, tmp_path: Path
) -> None:
    old = {"BROKER_REDIS_URL": redis_server.url, "BROKER_PREFIX": prefix}
    new = {"BROKER_REDIS_URL": place.cluster.url, "BROKER_PREFIX": place.prefix}
    tenants = place.tenants(4)
    for tenant in tenants:
        with SyncPublisher(redis_server.url, tenant=tenant, prefix=prefix) as publisher:
            publisher.publish_many([(f"n://{number}", str(number)) for number in range(60)])
    assert broker("tenant", "create", tenants[0], **old).returncode == 0
    file, back = tmp_path / "all.jsonl", tmp_path / "back.jsonl"
    assert broker("export", str(file), **old).returncode == 0
    done = broker("import", str(file), **new)
    assert done.returncode == 0, done.stderr
    assert "added\t240" in done.stdout
    assert broker("import", str(file), "--check", **new).returncode == 0
    for tenant in tenants:
        with SyncPublisher(place.cluster.url, tenant=tenant, prefix=place.prefix) as publisher:
            assert len(list(publisher.list())) == 60
            assert publisher.publish("n://7", "7").status == "unchanged"
    assert broker("export", str(back), **new).returncode == 0
    assert back.read_text() == file.read_text()
