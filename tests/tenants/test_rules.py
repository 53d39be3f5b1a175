"""What a resource requires, asked at every way in: list, read, listen, subscribe, cues, catch-up, removal."""

from typing import Any, cast

import pytest

from broker.core.access import check_subjects, may_read, parted
from broker.core.backlog import Backlog
from broker.core.declaration import Declaration
from broker.core.errors import InvalidContents, TooLarge
from broker.core.hub import Hub
from broker.core.identity import Principal, ResourceKey, TenantId
from broker.core.log import CHANGE, REMOVE, Entry
from broker.core.publication import Description, describe
from broker.core.revision import Revision
from broker.wire.extension import KNOWN, REVISIONS
from tests.support.mcp import Modern, RpcError
from tests.tenants.yard import Caller, Yard
from workers import Worker
from workers.serving import serving

OPEN, SECRET = "docs://open", "docs://secret"
ACME = TenantId("acme")


def who(subject: str = "key:ann", *scopes: str) -> Principal:
    return Principal(ACME, subject, frozenset(scopes))


def _echo(x: str) -> str:
    return x


# -- the rule itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "rule", "may"),
    [
        (who(), (), True),
        (who("key:ann", "a"), ("a",), True),
        (who("key:ann", "a"), ("a", "b"), False),
        (who(), ('"key:ann',), True),
        (who(), ('"key:ben',), False),
        (who(), ('"key:ben', '"key:ann'), True),
        (who("key:ann", "a"), ("a", '"key:ann'), True),
        (who(), ("a", '"key:ann'), False),
        (who("key:ann", "a"), ("a", '"key:ben'), False),
        (who("key:ann", '"key:ben'), ('"key:ben',), False),
        (who("a b%\n"), ('"a%20b%25%0A',), True),
        (who("key:ann"), ('"',), False),
        (who("key:ann", '"'), ('"',), False),
        (Principal(ACME, "anonymous", None), ("a", '"key:ben'), True),
    ],
    ids=str,
)
def test_all_scopes_and_one_of_the_subjects(
    principal: Principal,
    rule: tuple[str, ...],
    may: bool,  # noqa: FBT001 # a row of the table
) -> None:
    assert may_read(principal, frozenset(rule)) is may


def test_an_allow_list_comes_back_as_it_was_given() -> None:
    given = ["https://as.example/realms/x#ä b", "key:ci"]
    assert parted(check_subjects(given)) == ([], sorted(given))
    assert parted(check_subjects([])) == ([], [])
    assert parted(["a"]) == (["a"], None)


def test_only_what_has_no_allow_list_is_open_and_an_empty_one_is_nobodys() -> None:
    """An empty list was taken for none: whoever removed the last subject opened the resource to everybody."""
    lists: tuple[Description, ...] = ({}, {"subjects": None}, {"subjects": []})
    key = ResourceKey(ACME, OPEN)
    rules = [describe(key, "x", **cast("Any", given)).scopes for given in lists]
    assert [may_read(who("key:ann", "a"), frozenset(rule)) for rule in rules] == [True, True, False]
    nobodys = describe(key, "x", subjects=iter(()))
    assert nobodys.digest != describe(key, "x").digest


def test_a_worker_declares_the_same_rules_as_a_publisher() -> None:
    worker = Worker("rules")
    worker.resource("a://{x}", scopes="board council", subjects=["key:ann"])(_echo)
    worker.resource("b://{x}", subjects=[])(_echo)
    declared = {each.uri: Declaration.decode(each.encode()) for each in worker.declarations()}
    assert declared["a://{x}"].scopes == {"board", "council", '"key:ann'}
    assert not may_read(who("key:ann"), declared["b://{x}"].scopes)
    with pytest.raises(InvalidContents):
        worker.resource("c://{x}", subjects="key:ann")(_echo)


@pytest.mark.parametrize("bad", ["key:ci", [""], ["a\nb"], [7]], ids=str)
def test_an_allow_list_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidContents):
        check_subjects(bad)


def test_a_rule_that_would_swell_the_log_is_refused() -> None:
    with pytest.raises(TooLarge, match="scope that these subjects have"):
        describe(ResourceKey(ACME, OPEN), "x", subjects=[f"key:{n:030}" for n in range(40)])


# -- the hub -----------------------------------------------------------------------------------------------


class Watcher:
    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.backlog: Backlog[str] = Backlog()

    def mark(self) -> None: ...


def entry(n: int, kind: str = CHANGE, *rule: str) -> Entry:
    return Entry("e", n, f"m{n}", "", kind, ACME, SECRET, scopes=frozenset(rule))


def test_a_rule_that_narrows_takes_back_what_was_not_told_yet() -> None:
    hub: Hub[str] = Hub(lambda key: key.uri)
    watcher = Watcher(who())
    topic = hub.subscribe(watcher, ResourceKey(ACME, SECRET))
    hub.dispatch(entry(1), tick=1)
    assert topic in watcher.backlog
    hub.dispatch(entry(2, CHANGE, "board"), tick=2)
    assert topic not in watcher.backlog


def test_a_removal_is_not_told_to_those_who_could_not_see_it() -> None:
    hub: Hub[str] = Hub(lambda key: key.uri)
    watcher = Watcher(who())
    hub.subscribe(watcher, ResourceKey(ACME, SECRET))
    assert hub.dispatch(entry(1, REMOVE, "board"), tick=1) == 0


def test_what_a_resync_finds_is_told_only_to_those_who_may_know() -> None:
    hub: Hub[str] = Hub(lambda key: key.uri)
    mine, theirs = Watcher(who("key:ann", "board")), Watcher(who())
    for watcher in (mine, theirs):
        topic = hub.subscribe(watcher, ResourceKey(ACME, SECRET))
    rule = frozenset({"board"})
    hub.observe(topic, Revision(1, "a"), 0, rule)
    assert hub.observe(topic, Revision(2, "b"), 0, rule) == 1
    assert (len(mine.backlog), len(theirs.backlog)) == (1, 0)


def test_a_principal_that_lost_a_scope_loses_what_it_was_owed() -> None:
    hub: Hub[str] = Hub(lambda key: key.uri)
    watcher = Watcher(who("key:ann", "board"))
    topic = hub.subscribe(watcher, ResourceKey(ACME, SECRET))
    hub.dispatch(entry(1, CHANGE, "board"), tick=1)
    watcher.principal = who()
    hub.restrict(watcher, [topic])
    assert len(watcher.backlog) == 0


# -- over the wire -----------------------------------------------------------------------------------------


@pytest.fixture
async def board(yard: Yard, acme: str) -> Caller:
    """Give a caller with a scope of the tenant's own."""
    key = await yard.key(acme, "board", ["resources:read", "resources:publish", "board"])
    return yard.caller(key)


@pytest.fixture
async def reader(yard: Yard, acme: str) -> Caller:
    return yard.caller(await yard.key(acme, "reader", ["resources:read"]), 1)


async def test_what_requires_a_scope_is_listed_and_read_only_by_those_who_have_it(
    board: Caller, reader: Caller
) -> None:
    await board.publish(OPEN, "x")
    await board.publish(SECRET, "x", scopes="board")
    assert await board.modern().list() == [OPEN, SECRET]
    assert await reader.modern().list() == [OPEN]
    assert (await board.modern().read(SECRET))[0]["text"] == "x"
    async with reader.handshake() as session:
        assert await session.list() == [OPEN]
        for client in (session, reader.modern()):
            unknown, forbidden = await refusal(client, "docs://nobody"), await refusal(client, SECRET)
            assert (unknown.status, unknown.code) == (forbidden.status, forbidden.code)
            assert unknown.message.replace("docs://nobody", SECRET) == forbidden.message


async def refusal(client: Any, uri: str) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await client.read(uri)
    return refused.value


async def test_what_names_subjects_is_read_by_these_alone(board: Caller, reader: Caller) -> None:
    resource = {"uri": SECRET, "text": "x", "subjects": ["key:reader"]}
    answer = await board.http.post(f"{board.api}/publish", json={"resources": [resource]})
    assert answer.json()["results"][0]["status"] == "published"
    assert (await reader.modern().read(SECRET))[0]["text"] == "x"
    await refusal(board.modern(), SECRET)
    shown = await board.http.get(f"{board.api}/resources", params={"uri": SECRET})
    assert shown.json()["subjects"] == ["key:reader"]


async def test_whoever_takes_the_last_name_off_an_allow_list_closes_it_for_readers_and_streams(
    board: Caller, reader: Caller
) -> None:
    async def let(*subjects: str) -> None:
        resource = {"uri": SECRET, "text": f"{len(subjects)}", "subjects": subjects}
        answer = await board.http.post(f"{board.api}/publish", json={"resources": [resource]})
        assert answer.json()["results"][0]["status"] == "published"

    await let("key:reader")
    async with await reader.modern().listen([SECRET, OPEN]) as stream:
        await let()
        await board.publish(OPEN, "x")
        await stream.cue(OPEN)
        assert stream.cues == [OPEN]
        for one in (board, reader):
            await refusal(one.modern(), SECRET)
            assert await one.modern().list() == [OPEN]
        shown = await board.http.get(f"{board.api}/resources", params={"uri": SECRET})
        assert shown.json()["subjects"] == []
        await let("key:reader")
        await stream.cue(SECRET)
    assert (await reader.modern().read(SECRET))[0]["text"] == "1"


async def test_a_template_for_some_subjects_is_not_there_for_others(
    yard: Yard, acme: str, board: Caller, reader: Caller
) -> None:
    worker = Worker("some", tenants=[acme])
    worker.resource("some://{x}", subjects=["key:reader"])(_echo)
    worker.resource("none://{x}", subjects=[])(_echo)
    async with serving(worker, url=yard.fleet.redis_url, prefix=yard.fleet.prefix):
        assert (await reader.modern().read("some://1"))[0]["text"] == "1"
        for one, uri in ((board, "some://1"), (board, "none://1"), (reader, "none://1")):
            unknown, forbidden = (
                await refusal(one.modern(), "docs://nobody"),
                await refusal(one.modern(), uri),
            )
            assert unknown.message.replace("docs://nobody", uri) == forbidden.message


async def test_a_touch_of_a_scoped_templates_instance_is_heard_by_those_alone_who_have_the_scope(
    yard: Yard, acme: str, board: Caller, reader: Caller
) -> None:
    """The cue of an instance went to everybody in the tenant who watched it."""
    worker = Worker("some", tenants=[acme])
    worker.resource("some://{x}", scopes=["board"])(_echo)
    instance = "some://1"
    async with (
        serving(worker, url=yard.fleet.redis_url, prefix=yard.fleet.prefix),
        board.handshake() as inner_session,
        reader.handshake() as outer_session,
        await board.modern().listen([instance, OPEN]) as inner,
        await reader.modern().listen([instance, OPEN]) as outer,
    ):
        for session in (inner_session, outer_session):
            await session.subscribe(instance)
            await session.subscribe(OPEN)
        inner_get, outer_get = await inner_session.get_stream(), await outer_session.get_stream()
        await board.http.post(f"{board.api}/touch", json={"uri": instance})
        for stream in (inner, inner_get):
            await stream.cue(instance)
        await board.publish(OPEN, "last")
        for stream in (outer, outer_get):
            await stream.cue(OPEN)
            assert set(stream.cues) == {OPEN}


async def test_a_value_that_cannot_be_read_tells_of_no_template_that_is_forbidden(
    yard: Yard, acme: str, board: Caller, reader: Caller
) -> None:
    """Callers were told what was wrong with it, and so that the template was there."""
    worker = Worker("some", tenants=[acme])
    worker.resource("some://{x}", scopes=["board"])(_echo)
    async with serving(worker, url=yard.fleet.redis_url, prefix=yard.fleet.prefix):
        for uri in ("some://%ZZ", "some://%FF"):
            unknown, refused = (
                await refusal(reader.modern(), "docs://nobody"),
                await refusal(reader.modern(), uri),
            )
            assert (refused.status, refused.code) == (unknown.status, unknown.code)
            assert refused.message == unknown.message.replace("docs://nobody", uri)
            assert "percent" in (await refusal(board.modern(), uri)).message


async def test_an_acknowledgement_confirms_nothing_of_what_is_forbidden(
    board: Caller, reader: Caller
) -> None:
    await board.publish(OPEN, "x")
    await board.publish(SECRET, "x", scopes="board")
    async with await reader.modern().listen([OPEN, SECRET, "docs://nobody"]) as stream:
        assert set(stream.acknowledgement["_meta"][REVISIONS]) == {OPEN}


async def test_a_forbidden_resource_stays_silent_through_its_whole_life(
    board: Caller, reader: Caller
) -> None:
    async with reader.handshake() as session, await reader.modern().listen([SECRET, OPEN]) as listening:
        await session.subscribe(SECRET)
        await session.subscribe(OPEN)
        stream = await session.get_stream()
        await board.publish(SECRET, "1", scopes="board")
        await board.publish(SECRET, "2", scopes="board")
        await board.http.post(f"{board.api}/touch", json={"uri": SECRET})
        await board.http.delete(f"{board.api}/resources", params={"uri": SECRET})
        await board.http.post(f"{board.api}/touch", json={"uri": SECRET})
        await board.publish(OPEN, "last")
        await listening.cue(OPEN)
        await stream.cue(OPEN)
        assert (set(listening.cues), set(stream.cues)) == ({OPEN}, {OPEN})
        again = await session.get_stream()
        await board.publish(OPEN, "very last")
        await again.cue(OPEN)
        assert set(again.cues) == {OPEN}


async def test_a_changed_rule_is_applied_to_open_streams_before_the_next_cue(
    board: Caller, reader: Caller
) -> None:
    await board.publish(SECRET, "1")
    async with await reader.modern().listen([SECRET, OPEN]) as stream:
        await board.publish(SECRET, "2")
        await stream.cue(SECRET)
        await board.publish(SECRET, "3", scopes="board")
        await board.publish(SECRET, "4", scopes="board")
        await board.publish(OPEN, "x")
        await stream.cue(OPEN)
        assert stream.cues.count(SECRET) == 1
        await board.publish(SECRET, "5")
        await stream.cue(SECRET, 2)


async def test_a_tombstone_forgets_its_rule_when_something_else_is_published_there(
    board: Caller, reader: Caller
) -> None:
    await board.publish(SECRET, "1", scopes="board")
    await board.http.delete(f"{board.api}/resources", params={"uri": SECRET})
    await board.publish(SECRET, "2")
    assert (await reader.modern().read(SECRET))[0]["text"] == "2"


async def test_catching_up_tells_of_what_is_forbidden_as_of_what_never_was(
    board: Caller, reader: Caller
) -> None:
    await board.publish(SECRET, "x", scopes="board")
    await board.publish(OPEN, "x")
    async with await reader.modern().listen([SECRET, OPEN, "docs://nobody"]) as first:
        meta = {KNOWN: first.acknowledgement["_meta"][REVISIONS]}
    await board.publish(SECRET, "y", scopes="board")
    await board.publish(OPEN, "y")
    client: Modern = reader.modern()
    async with await client.listen([SECRET, OPEN, "docs://nobody"], meta=meta) as second:
        await second.cue(OPEN)
        assert second.cues == [OPEN]
