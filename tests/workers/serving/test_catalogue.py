"""What workers declare is listed, completed and changed as its clients see it."""

import httpx
import pytest

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.workers.serving.conftest import serve
from workers import Publisher
from workers.worker import Worker


async def templates(client: Modern | Handshake) -> list[str]:
    """Return every template, page by page."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await client.ask("resources/templates/list", **cursor)
        found += [str(each["uriTemplate"]) for each in page["resourceTemplates"]]
        if not page.get("nextCursor"):
            return found
        cursor = {"cursor": page["nextCursor"]}


def echo(part: str) -> str:
    return part


def publisher(fleet: Fleet, tenant: str) -> Publisher:
    return Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix)


async def test_instances_are_listed_among_what_is_published_in_the_order_of_uris(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("users", tenant=tenant)
    people = [f"user://{number:03}" for number in range(130)]

    @worker.resource("user://{number}", list=lambda: people)
    def user(number: str) -> str:
        return number

    published = [f"user://{number:03}.5" for number in range(0, 130, 2)] + ["user://007", "zebra://1"]
    async with publisher(fleet, tenant) as publish, serve(fleet, worker):
        for uri in published:
            await publish.publish(uri, uri)
        for client in (Modern(fleet[0].url, tenant, http), Modern(fleet[1].url, tenant, http)):
            assert await client.list() == sorted({*people, *published})
        async with Handshake(fleet[0].url, tenant, http) as handshake:
            assert await handshake.list() == sorted({*people, *published})
        client = Modern(fleet[0].url, tenant, http)
        assert (await client.read("user://007"))[0]["text"] == "user://007"
        assert (await client.read("user://008"))[0]["text"] == "008"


async def test_a_list_callback_that_fails_does_not_take_the_list_with_it(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("half", tenant=tenant)

    def fail() -> list[str]:
        raise RuntimeError("no database")

    @worker.resource("good://one")
    def one() -> str:
        return "one"

    @worker.resource("bad://{part}", list=fail)
    def bad(part: str) -> str:
        return part

    async with serve(fleet, worker):
        assert await Modern(fleet[0].url, tenant, http).list() == ["good://one"]


async def test_templates_are_listed_in_pages(fleet: Fleet, tenant: str, http: httpx.AsyncClient) -> None:
    worker = Worker("many", tenant=tenant)
    expected = [f"t{number:03}://{{part}}" for number in range(150)]
    for template in reversed(expected):
        worker.resource(template, name="it")(echo)
    async with serve(fleet, worker):
        for replica in fleet.replicas:
            assert await templates(Modern(replica.url, tenant, http)) == expected


async def test_the_exact_uri_comes_before_the_most_literal_template_on_every_replica(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    shapes = {"demo://{a}/x": "one", "demo://{+p}": "many", "demo://1/x": "exact"}

    def one(a: str) -> str:
        return f"one {a}"

    def many(p: str) -> str:
        return f"many {p}"

    def declare(order: list[str]) -> Worker:
        worker = Worker("shapes", tenant=tenant)
        for uri in order:
            if uri == "demo://1/x":
                worker.resource(uri, name="it")(lambda: "exact")
            elif uri == "demo://{a}/x":
                worker.resource(uri, name="it")(one)
            else:
                worker.resource(uri, name="it")(many)
        return worker

    for order in (list(shapes), list(reversed(shapes))):
        async with serve(fleet, declare(order)):
            for replica in fleet.replicas:
                client = Modern(replica.url, tenant, http)
                uris = ("demo://1/x", "demo://2/x", "demo://2/y", "demo://2/y/z")
                texts = [(await client.read(uri))[0]["text"] for uri in uris]
                assert texts == ["exact", "one 2", "many 2/y", "many 2/y/z"]


async def test_a_completion_reaches_the_worker_with_the_other_arguments(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("places", tenant=tenant)

    @worker.resource("place://{country}/{city}")
    def place(country: str, city: str) -> str:
        return f"{city} in {country}"

    @worker.complete("place://{country}/{city}", "city")
    def cities(typed: str, others: dict[str, str]) -> list[str]:
        return [f"{typed}{number}-{others.get('country', '')}" for number in range(150)]

    ref = {"type": "ref/resource", "uri": "place://{country}/{city}"}
    asked = {"ref": ref, "argument": {"name": "city", "value": "c"}}
    async with serve(fleet, worker), Handshake(fleet[1].url, tenant, http) as handshake:
        for client in (Modern(fleet[0].url, tenant, http), handshake):
            context = {"arguments": {"country": "kr"}}
            found = (await client.ask("completion/complete", **asked, context=context))["completion"]
            assert found["values"] == [f"c{number}-kr" for number in range(100)]
            assert found["hasMore"] is True
            for unknown in (
                {"ref": ref, "argument": {"name": "country", "value": "c"}},
                {"ref": {"type": "ref/resource", "uri": "none://{x}"}, "argument": asked["argument"]},
                {"ref": {"type": "ref/prompt", "name": "none"}, "argument": asked["argument"]},
            ):
                assert (await client.ask("completion/complete", **unknown))["completion"]["values"] == []


async def test_published_contents_win_over_a_worker_and_give_way_when_they_are_removed(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("both", tenant=tenant)

    @worker.resource("both://one")
    def one() -> str:
        return "called"

    @worker.resource("both://{part}/more")
    def more(part: str) -> str:
        return f"called {part}"

    client = Modern(fleet[0].url, tenant, http)

    async def text(uri: str) -> str:
        try:
            return str((await client.read(uri))[0]["text"])
        except RpcError:
            return ""

    async with publisher(fleet, tenant) as publish, serve(fleet, worker, repeat=0.2):
        for uri, called in (("both://one", "called"), ("both://x/more", "called x")):
            assert await text(uri) == called
            await publish.publish(uri, "published")
            assert await text(uri) == "published"
            await publish.remove(uri)
            await until(lambda uri=uri: text(uri), "the worker's answer again")
            assert await text(uri) == called


async def test_what_changes_at_run_time_is_told_and_listed_at_once_in_both_eras(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("moving", tenant=tenant)

    @worker.resource("stays://one")
    def stays() -> str:
        return "stays"

    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, worker), Handshake(fleet[1].url, tenant, http) as session:
        stream = await session.get_stream()
        async with await client.listen(wants_list=True) as listening:

            async def changed(change: object, expected: list[str], shapes: list[str]) -> None:
                modern, handshake = listening.list_changes, stream.list_changes
                assert callable(change)
                change()
                await until(lambda: listening.list_changes > modern, "a cue of the list")
                await until(lambda: stream.list_changes > handshake, "a cue of the list")
                for one in (client, Modern(fleet[1].url, tenant, http)):
                    assert (await one.list(), await templates(one)) == (expected, shapes)

            await changed(
                lambda: worker.resource("comes://two", name="it")(lambda: "two"),
                ["comes://two", "stays://one"],
                [],
            )
            await changed(lambda: worker.disable("stays://one"), ["comes://two"], [])
            with pytest.raises(RpcError):
                await client.read("stays://one")
            await changed(lambda: worker.enable("stays://one"), ["comes://two", "stays://one"], [])
            await changed(lambda: worker.remove("comes://two"), ["stays://one"], [])
            await changed(
                lambda: worker.resource("t://{part}", name="it")(echo), ["stays://one"], ["t://{part}"]
            )
            await changed(lambda: worker.remove("t://{part}"), ["stays://one"], [])


async def test_registrations_of_dead_workers_disappear_and_nothing_else(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    gone, here = Worker("gone", tenant=tenant), Worker("here", tenant=tenant)
    gone.resource("gone://one", name="it")(lambda: "gone")
    gone.resource("gone://{part}/more", name="it")(echo)
    gone.resource("both://one", name="it")(lambda: "gone")
    here.resource("here://one", name="it")(lambda: "here")
    here.resource("here://{part}/more", name="it")(echo)
    client = Modern(hasty_fleet[0].url, tenant, http)
    async with publisher(hasty_fleet, tenant) as publish, serve(hasty_fleet, here, repeat=0.3):
        async with serve(hasty_fleet, gone, repeat=0.3):
            await publish.publish("both://one", "published")
            assert await client.list() == ["both://one", "gone://one", "here://one"]
            assert await templates(client) == ["gone://{part}/more", "here://{part}/more"]
        async with await client.listen(wants_list=True) as listening:

            async def is_swept() -> bool:
                return await templates(client) == ["here://{part}/more"]

            await until(is_swept, "the dead worker's template gone", 20)
            await until(lambda: listening.list_changes, "a cue of the list")
        assert await client.list() == ["both://one", "here://one"]
        assert (await client.read("both://one"))[0]["text"] == "published"
        assert (await client.read("here://one"))[0]["text"] == "here"
