"""A worker whose instances come and go says so, and whoever watches the list hears of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client

from tests.support.replica import Fleet
from tests.support.wait import within
from workers import Conflict, Publisher, SyncPublisher, Worker
from workers.serving import serving

TEAMS = ["core"]


def teams() -> list[str]:
    return [f"teams://{name}/roster" for name in TEAMS]


worker = Worker("teams", tenant="acme")


@worker.resource("teams://{team_id}/roster", list=teams, ttl=600)
def roster(team_id: str) -> str:
    """Members of one team."""
    return f"Members of team {team_id}"


@pytest.fixture
async def place(fleet: Fleet) -> AsyncIterator[Fleet]:
    TEAMS[:] = ["core"]
    async with (
        serving(worker, url=fleet.redis_url, prefix=fleet.prefix),
        Publisher(fleet.redis_url, tenant="acme", prefix=fleet.prefix) as publisher,
    ):
        # The replica may still hold what another test's list said.
        await publisher.list_changed()
        yield fleet


async def _listed(client: Client) -> list[str]:
    return [str(each.uri) for each in (await client.list_resources()).resources]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_new_instances_are_listed_and_told_even_if_the_list_is_cached(place: Fleet, mode: Any) -> None:
    async with (
        Publisher(place.redis_url, tenant="acme", prefix=place.prefix) as publisher,
        Client(place.replicas[0].url.replace("/mcp", "/t/acme/mcp"), mode=mode) as watcher,
    ):
        assert await _listed(watcher) == ["teams://core/roster"]
        TEAMS.append("growth")
        assert await _listed(watcher) == ["teams://core/roster"], "its ttl is ten minutes"
        if mode == "auto":
            async with watcher.listen(resources_list_changed=True) as changes:
                assert (await publisher.list_changed()).status == "touched"
                await within(anext(aiter(changes)), "the list change")
        else:
            await publisher.list_changed()
        assert await _listed(watcher) == ["teams://core/roster", "teams://growth/roster"]


async def test_a_repeated_announcement_is_one(place: Fleet) -> None:
    with SyncPublisher(place.redis_url, tenant="acme", prefix=place.prefix) as publisher:
        first = publisher.list_changed(idempotency_key="k")
        again = publisher.list_changed(idempotency_key="k")
        assert (first.status, again.status) == ("touched", "replayed")
        assert again.stamp == first.stamp
        with pytest.raises(Conflict, match="used for something else"):
            publisher.touch("x://y", idempotency_key="k")
        later = publisher.list_changed()
        assert later.stamp is not None
        assert first.stamp is not None
        assert later.stamp.n > first.stamp.n
