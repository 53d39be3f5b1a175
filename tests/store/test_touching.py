"""A touch reaches those who may read what it is about, also where only a template says who that is."""

from broker.core.declaration import Declaration
from broker.core.publication import encode_meta
from broker.store import registry
from broker.store.client import Connect
from broker.store.log import LogStore
from broker.store.scripts import run
from tests.store.shelf import Shelf
from tests.support.redis_server import RedisServer

URI = "users://7/profile"


async def declare(shelf: Shelf, template: str, *scopes: str) -> None:
    meta = encode_meta(template, None, {"name": "profile"}, is_template=True)
    declaration = Declaration(template, is_template=True, meta=meta, scopes=frozenset(scopes))
    done = await run(shelf.redis, registry.register_template(shelf.keys, shelf.tenant, "app", declaration))
    assert done.status == "registered"


async def told(shelf: Shelf, server: RedisServer) -> frozenset[str]:
    """Return who hears of the last change: by its entry, and by what a resync finds."""
    log = LogStore(Connect(server.url, shelf.keys), shelf.redis, {})
    [standing] = await log.standings([shelf.key(URI)])
    last = (await shelf.entries())[-1]
    assert last.uri == URI
    assert standing.rule == last.scopes
    assert standing.stamp.revision == last.revision
    return last.scopes


async def test_a_touch_of_a_templates_instance_asks_what_the_template_asks(
    shelf: Shelf, redis_server: RedisServer
) -> None:
    """The cue of an instance went to everybody in the tenant who watched it, allowed to read it or not."""
    await declare(shelf, "users://{id}/profile", "staff", "hr")
    await shelf.touch(URI)
    assert await told(shelf, redis_server) == {"staff", "hr"}


async def test_a_changed_rule_counts_at_the_very_next_touch(shelf: Shelf, redis_server: RedisServer) -> None:
    await shelf.touch(URI)
    assert await told(shelf, redis_server) == frozenset()
    for scopes in (("staff",), ("hr",), ()):
        await declare(shelf, "users://{id}/profile", *scopes)
        await shelf.touch(URI)
        assert await told(shelf, redis_server) == frozenset(scopes)


async def test_the_most_specific_template_says_who(shelf: Shelf, redis_server: RedisServer) -> None:
    await declare(shelf, "users://{+path}", "everything")
    await declare(shelf, "users://{id}/profile", "staff")
    await declare(shelf, "other://{id}", "nobody")
    await shelf.touch(URI)
    assert await told(shelf, redis_server) == {"staff"}


async def test_a_value_that_cannot_be_read_does_not_open_a_template(shelf: Shelf) -> None:
    await declare(shelf, "users://{id}/profile", "staff")
    await shelf.touch("users://%FF/profile")
    assert (await shelf.entries())[-1].scopes == {"staff"}


async def test_what_is_published_has_its_own_rule_and_leaves_it_to_no_template(
    shelf: Shelf, redis_server: RedisServer
) -> None:
    await declare(shelf, "users://{id}/profile", "staff")
    await shelf.publish("x", URI, {"scopes": ("own",)})
    await shelf.touch(URI)
    assert await told(shelf, redis_server) == {"own"}
    await shelf.remove(URI)
    await shelf.touch(URI)
    assert await told(shelf, redis_server) == {"staff"}


async def test_without_a_template_the_end_of_what_was_hidden_stays_hidden(
    shelf: Shelf, redis_server: RedisServer
) -> None:
    await shelf.publish("x", URI, {"scopes": ("own",)})
    await shelf.remove(URI)
    await shelf.touch(URI)
    assert await told(shelf, redis_server) == {"own"}


async def test_a_repeated_touch_is_the_first_one_whatever_became_of_the_template(shelf: Shelf) -> None:
    first = await shelf.touch(URI, idempotency_key="k")
    await declare(shelf, "users://{id}/profile", "staff")
    again = await shelf.touch(URI, idempotency_key="k")
    assert (again.status, again.stamp) == ("replayed", first.stamp)
