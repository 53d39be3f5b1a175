"""Reading: one resource in one command, and pages that lose nothing."""

import asyncio
import random
from typing import Any

import pytest

from broker.core.errors import WrongStore
from broker.core.identity import TenantId
from broker.store import resources
from tests.store.shelf import Shelf


async def walk(shelf: Shelf, count: int) -> list[str]:
    """Return the URIs of all pages."""
    found: list[str] = []
    after = None
    while True:
        listed, has_more = await resources.page(shelf.redis, shelf.keys, shelf.tenant, after, count)
        assert len(listed) == count or not has_more
        found += [each.uri for each in listed]
        if not has_more:
            return found
        after = found[-1]


async def test_a_read_returns_everything_that_belongs_together(shelf: Shelf) -> None:
    outcome = await shelf.publish(
        "a",
        about={"scopes": "s", "ttl_ms": 0, "cache_scope": "public", "title": "T"},
        version=0,
        expires_in_ms=60_000,
    )
    stored = await shelf.read()
    assert stored is not None
    assert stored.stamp == outcome.stamp
    assert (stored.scopes, stored.ttl_ms, stored.cache_scope, stored.version) == ({"s"}, 0, "public", 0)
    assert stored.meta == b'{"uri":"docs://readme","name":"readme","title":"T"}'
    assert stored.expires_ms is not None


async def test_unknown_removed_and_touched_read_as_nothing(shelf: Shelf) -> None:
    assert await shelf.read() is None
    await shelf.touch()
    assert await shelf.read() is None
    await shelf.publish("a")
    await shelf.remove()
    assert await shelf.read() is None


async def test_a_page_is_in_the_order_of_bytes_and_knows_whether_there_is_more(shelf: Shelf) -> None:
    uris = ["a:1", "a:10", "a:2", "a:B", "a:b", "a:é", "a:\U0001f600", "b:0"]
    for uri in random.sample(uris, len(uris)):
        await shelf.publish("x", uri=uri)
    assert sorted(uris, key=str.encode) == uris
    for count in (1, 2, 3, 7, 8, 9):
        assert await walk(shelf, count) == uris


async def test_an_exact_page_is_the_last_one(shelf: Shelf) -> None:
    for number in range(4):
        await shelf.publish("x", uri=f"a:{number}")
    listed, has_more = await resources.page(shelf.redis, shelf.keys, shelf.tenant, "a:1", 2)
    assert ([each.uri for each in listed], has_more) == (["a:2", "a:3"], False)


async def test_a_page_after_a_uri_that_is_gone_goes_on_behind_it(shelf: Shelf) -> None:
    for number in range(4):
        await shelf.publish("x", uri=f"a:{number}")
    await shelf.remove("a:1")
    listed, _ = await resources.page(shelf.redis, shelf.keys, shelf.tenant, "a:1", 10)
    assert [each.uri for each in listed] == ["a:2", "a:3"]


async def test_no_resource_that_stays_is_lost_or_repeated_while_others_come_and_go(shelf: Shelf) -> None:
    stay = [f"a:{number:03}-stays" for number in range(0, 90, 3)]
    for uri in stay:
        await shelf.publish("x", uri=uri)
    walking = asyncio.Event()

    async def churn(seed: int) -> int:
        rng, calls = random.Random(seed), 0
        while not walking.is_set():
            uri = f"a:{rng.randrange(90):03}-goes-{seed}"
            await (shelf.publish("x", uri=uri) if rng.random() < 0.5 else shelf.remove(uri))
            calls += 1
        return calls

    churning = [asyncio.ensure_future(churn(seed)) for seed in range(4)]
    try:
        for count in (1, 7, 100):
            found = await walk(shelf, count)
            assert [uri for uri in found if uri.endswith("stays")] == stay
            assert len(set(found)) == len(found)
    finally:
        walking.set()
    assert min(await asyncio.gather(*churning)) > 0


async def test_what_is_left_in_order_without_a_resource_does_not_shorten_a_page(
    shelf: Shelf, raw: Any
) -> None:
    """A publish that died between the order and the contents leaves such a member."""
    for number in range(0, 10, 2):
        await shelf.publish("x", uri=f"a:{number}")
        raw.zadd(shelf.keys.order(shelf.tenant), {f"a:{number + 1}": 0})
    assert await walk(shelf, 2) == [f"a:{number}" for number in range(0, 10, 2)]


async def test_an_empty_tenant_has_an_empty_page(shelf: Shelf) -> None:
    assert await resources.page(shelf.redis, shelf.keys, TenantId("nobody"), None, 10) == ([], False)


async def test_a_page_shows_metadata_and_required_scopes(shelf: Shelf) -> None:
    await shelf.publish("x", about={"title": "T", "scopes": ("b", "a")})
    (listed,), _ = await resources.page(shelf.redis, shelf.keys, shelf.tenant, None, 10)
    assert listed.meta == b'{"uri":"docs://readme","name":"readme","title":"T"}'
    assert listed.scopes == {"a", "b"}


async def test_a_resource_of_another_type_is_an_operators_error(shelf: Shelf, raw: Any) -> None:
    raw.set(shelf.keys.resource(shelf.key()), "not ours")
    with pytest.raises(WrongStore):
        await shelf.read()


async def test_odd_uris_are_stored_listed_and_read_byte_for_byte(shelf: Shelf) -> None:
    uris = [
        "demo://host", "demo://host/", "DEMO://host", "demo:a%2Fb", "demo:a%2fb", "demo:a/b", "demo:+~?&=#x",
        "demo:../..//.", "demo:caf%C3%A9", "demo:café", "demo:cafe\u0301", "urn:isbn:1", "x:{id}",
        "x:\\'[]*?",
    ]  # fmt: skip
    for uri in uris:
        await shelf.publish(f"<{uri}>", uri=uri)
    assert sorted(await shelf.uris()) == sorted(uris)
    for uri in uris:
        stored = await shelf.read(uri)
        assert stored is not None
        assert f"<{uri}>".encode() in stored.contents.replace(b"\\\\", b"\\")
