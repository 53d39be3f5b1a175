"""Catch-up for the modern era: a listen that says what its client has seen is told what changed since.

Our `_meta` extension (design section 5, wire/extension.py); the replica that answers is never the one that
answered before.
"""

from typing import Any

import httpx
import pytest

from broker.wire.extension import KNOWN, REVISION, REVISIONS, TOKEN
from tests.support.mcp import Listening, Modern
from tests.support.replica import Fleet
from workers import Publisher

pytestmark = pytest.mark.requirement("extension.catch-up")

A, B, C = "docs:a", "docs:b", "docs:c"
MARK = "docs:mark"
"""Changed last; once it is cued, everything before it has been told or never will be."""


@pytest.fixture
def client(fleet: Fleet, tenant: str, http: httpx.AsyncClient) -> Modern:
    return Modern(fleet.url, tenant, http)


async def seen(client: Modern, *uris: str, wants_list: bool = False) -> Listening:
    """Listen once and leave: what the acknowledgement said is what the client has seen."""
    listening = await client.listen(uris, wants_list=wants_list)
    await listening.close()
    return listening


async def told(
    client: Modern, publisher: Publisher, meta: dict[str, Any], *uris: str, wants_list: bool = False
) -> list[str]:
    """Listen again, and return which URIs are cued before the mark is."""
    async with await client.listen((*uris, MARK), wants_list=wants_list, meta=meta) as listening:
        await publisher.publish(MARK, str(meta))
        await listening.cue(MARK)
        # The mark itself may be owed as well, and is then cued at once.
        return [uri for uri in listening.cues if uri != MARK] + ["@list"] * listening.list_changes


FORMS = pytest.mark.parametrize("form", ["map", "token"])


def of(listening: Listening, form: str) -> dict[str, Any]:
    meta: dict[str, Any] = listening.acknowledgement["_meta"]
    return {KNOWN: meta[REVISIONS]} if form == "map" else {TOKEN: meta[TOKEN]}


@FORMS
async def test_what_changed_while_nobody_listened_is_told_and_nothing_else(
    form: str, client: Modern, publisher: Publisher
) -> None:
    for uri in (A, B, C):
        await publisher.publish(uri, "1")
    before = await seen(client, A, B, C)
    await publisher.publish(A, "2")
    await publisher.remove(B)
    assert sorted(await told(client, publisher, of(before, form), A, B, C)) == [A, B]


@FORMS
async def test_what_was_published_for_the_first_time_is_told(
    form: str, client: Modern, publisher: Publisher
) -> None:
    before = await seen(client, A, B)
    await publisher.publish(A, "1")
    assert await told(client, publisher, of(before, form), A, B) == [A]


@FORMS
async def test_the_list_is_told_like_a_resource(form: str, client: Modern, publisher: Publisher) -> None:
    await publisher.publish(A, "1")
    await publisher.publish(MARK, "0")
    before = await seen(client, A, wants_list=True)
    assert await told(client, publisher, of(before, form), A, wants_list=True) == []
    await publisher.publish(B, "1")
    assert await told(client, publisher, of(before, form), A, wants_list=True) == ["@list"]


async def test_without_the_extension_nothing_of_before_is_told(client: Modern, publisher: Publisher) -> None:
    await publisher.publish(A, "1")
    await seen(client, A)
    await publisher.publish(A, "2")
    assert await told(client, publisher, {}, A) == []


async def test_a_token_covers_a_part_of_its_filter_and_what_it_does_not_cover_is_told_once(
    client: Modern, publisher: Publisher
) -> None:
    for uri in (A, B, C):
        await publisher.publish(uri, "1")
    before = of(await seen(client, A, B), "token")
    assert await told(client, publisher, before, A) == []
    assert await told(client, publisher, before, A, C) == [C]


async def test_a_read_brings_the_map_up_to_date(client: Modern, publisher: Publisher) -> None:
    await publisher.publish(A, "1")
    known = of(await seen(client, A), "map")
    await publisher.publish(A, "2")
    read = await client.ask("resources/read", uri=A)
    known[KNOWN][A] = read["_meta"][REVISION]
    assert await told(client, publisher, known, A) == []
    await publisher.publish(A, "3")
    assert await told(client, publisher, known, A) == [A]


@pytest.mark.parametrize("form", [{KNOWN: {A: "unreadable"}}, {TOKEN: "no-token"}, {TOKEN: 5}])
async def test_what_we_cannot_read_is_unknown_and_told_once(
    form: dict[str, Any], client: Modern, publisher: Publisher
) -> None:
    """During a rolling update it may come from a newer release."""
    await publisher.publish(A, "1")
    assert await told(client, publisher, form, A) == [A]


async def test_a_token_of_another_tenant_covers_nothing_of_ours(
    client: Modern, publisher: Publisher, fleet: Fleet, http: httpx.AsyncClient
) -> None:
    await publisher.publish(A, "1")
    other = Modern(fleet.url, f"{client.tenant}x", http)
    foreign = of(await seen(other, A), "token")
    assert await told(client, publisher, foreign, A) == [A]


async def test_the_map_counts_where_both_come(client: Modern, publisher: Publisher) -> None:
    await publisher.publish(A, "1")
    before = await seen(client, A)
    assert await told(client, publisher, of(before, "map") | {TOKEN: ""}, A) == []
