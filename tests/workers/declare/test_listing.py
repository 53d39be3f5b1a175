"""What is listed, completed and switched at run time."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from broker.core.declaration import CallRequest, Failure, Instances, Values
from workers import Completion, Context, Instance, InvalidDeclaration, NotFound, Worker
from workers.testing import CallFailed, TestClient

ROSTER = "teams://{team_id}/roster"


@pytest.fixture
def worker() -> Worker:
    worker = Worker("teams")

    @worker.resource("config://app")
    def get_config() -> str:
        return "region=eu-west-1"

    @worker.resource("users://{user_id}/profile")
    def get_profile(user_id: str) -> dict[str, str]:
        return {"userId": user_id}

    assert [get_config.__name__, get_profile.__name__] == ["get_config", "get_profile"]
    return worker


def roster(team_id: str) -> str:
    """Members of one team."""
    return f"Members of team {team_id}"


async def _uris(worker: Worker) -> list[str]:
    return [each["uri"] for each in await TestClient(worker).list()]


async def test_a_template_without_a_list_is_readable_and_never_listed(worker: Worker) -> None:
    assert await _uris(worker) == ["config://app"]
    assert await TestClient(worker).read("users://7/profile")


async def test_instances_are_listed_among_the_fixed_ones_in_the_order_of_uris(worker: Worker) -> None:
    async def teams() -> list[Instance]:
        return [
            Instance("teams://growth/roster", name="Growth team roster"),
            Instance("teams://core/roster", name="Core team roster"),
        ]

    worker.resource(ROSTER, list=teams)(roster)
    assert await _uris(worker) == ["config://app", "teams://core/roster", "teams://growth/roster"]
    assert [each["uriTemplate"] for each in TestClient(worker).templates()] == [
        ROSTER,
        "users://{user_id}/profile",
    ]
    assert worker.declarations()[-1].has_list


async def test_an_instance_is_as_its_template_says_unless_it_says_otherwise() -> None:
    worker = Worker("teams")

    def teams() -> list[Any]:
        return [
            "teams://a/roster",
            {"uri": "teams://b/roster", "name": "b", "mime_type": "text/csv", "size": 3},
            Instance("teams://c/roster", title="C", description="The C team."),
        ]

    worker.resource(ROSTER, title="A roster", mime_type="text/markdown", list=teams)(roster)
    assert await TestClient(worker).list() == [
        {
            "uri": "teams://a/roster",
            "name": "roster",
            "description": "Members of one team.",
            "mimeType": "text/markdown",
        },
        {
            "uri": "teams://b/roster",
            "name": "b",
            "description": "Members of one team.",
            "mimeType": "text/csv",
            "size": 3,
        },
        {
            "uri": "teams://c/roster",
            "name": "roster",
            "title": "C",
            "description": "The C team.",
            "mimeType": "text/markdown",
        },
    ]


async def test_a_list_may_be_any_iterable_and_ask_for_the_context() -> None:
    worker = Worker("teams")

    def teams(ctx: Context) -> Iterable[str]:
        return (f"teams://{ctx.subject}-{i}/roster" for i in range(2))

    worker.resource(ROSTER, list=teams)(roster)
    assert worker.declarations()[0].is_personal, "what is listed depends on who asks"
    listed = await TestClient(worker, subject="ada").list()
    assert [each["uri"] for each in listed] == ["teams://ada-0/roster", "teams://ada-1/roster"]


async def test_one_bad_instance_does_not_take_the_list_away(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("teams")

    def teams() -> list[Any]:
        return [
            "other://x/roster",
            "teams://../roster",
            "teams://%ZZ/roster",
            {"uri": "teams://a/roster", "nme": "typo"},
            7,
            Instance("teams://b/roster", size=-1),
            "teams://good/roster",
            "teams://good/roster",
        ]

    worker.resource(ROSTER, list=teams)(roster)
    assert await _uris(worker) == ["teams://good/roster"]
    assert [record.message for record in caplog.records].count("instance_left_out") == 6


async def test_a_list_that_fails_says_so(worker: Worker) -> None:
    def teams() -> list[str]:
        raise RuntimeError("no database")

    worker.resource(ROSTER, list=teams)(roster)
    with pytest.raises(CallFailed):
        await TestClient(worker).list()


def test_a_list_that_wants_arguments_is_refused(worker: Worker) -> None:
    def teams(what: str) -> list[str]:
        return [what]

    with pytest.raises(InvalidDeclaration, match="is called with nothing"):
        worker.resource(ROSTER, list=teams)(roster)


async def test_only_those_with_the_scopes_see_a_resource(worker: Worker) -> None:
    worker.resource("secret://x", name="secret", scopes=["admin"])(lambda: "secret")
    worker.resource(ROSTER, scopes=["teams"], list=lambda: ["teams://a/roster"])(roster)
    for scopes, uris in (
        ([], ["config://app"]),
        (["admin"], ["config://app", "secret://x"]),
        (["teams", "admin"], ["config://app", "secret://x", "teams://a/roster"]),
    ):
        client = TestClient(worker, scopes=scopes)
        assert [each["uri"] for each in await client.list()] == uris
    with pytest.raises(NotFound):
        await TestClient(worker, scopes=["teams"]).read("secret://x")


async def test_a_fixed_uri_comes_before_any_template(worker: Worker) -> None:
    def get(rest: str) -> str:
        return rest

    worker.resource("config://{+rest}")(get)
    assert worker.route("config://app") == "config://app"
    assert worker.route("config://other") == "config://{+rest}"
    assert worker.route("nothing://x") is None


# --- Completion


async def test_a_variable_is_completed_with_the_other_values_as_context() -> None:
    worker = Worker("git")
    repositories = {"ada": ["engine", "notes"], "bob": ["x"]}

    @worker.resource("git://{owner}/{repo}")
    def get(owner: str, repo: str) -> str:
        return owner + repo

    @worker.complete("git://{owner}/{repo}", "owner")
    def owners(typed: str) -> list[str]:
        return [name for name in repositories if name.startswith(typed)]

    @worker.complete("git://{owner}/{repo}", "repo")
    async def repos(typed: str, others: Mapping[str, str], ctx: Context) -> Iterable[str]:
        assert ctx.subject == "tester"
        return (name for name in repositories[others["owner"]] if name.startswith(typed))

    assert (get("a", "b"), owners("b"), repos.__name__) == ("ab", ["bob"], "repos")
    [declared] = worker.declarations()
    assert declared.completes == ("owner", "repo")
    client = TestClient(worker)
    assert await client.complete("git://{owner}/{repo}", "owner", "a") == Completion(
        ("ada",), 1, has_more=False
    )
    found = await client.complete("git://{owner}/{repo}", "repo", "", {"owner": "ada"})
    assert found.values == ("engine", "notes")


async def test_at_most_a_hundred_values_are_sent_and_the_rest_is_counted(worker: Worker) -> None:
    @worker.complete("users://{user_id}/profile", "user_id")
    def users(typed: str) -> Any:
        many = [str(i) for i in range(250)]
        return {
            "": many,
            "some": Completion(["1"], total=7),
            "more": Completion(["1"], has_more=True),
            "none": [],
        }[typed]

    client = TestClient(worker)
    found = {
        typed: await client.complete("users://{user_id}/profile", "user_id", typed)
        for typed in ("", "some", "more", "none")
    }
    assert len(list(found[""].values)) == 100
    assert (found[""].total, found[""].has_more) == (250, True)
    assert found["some"] == Completion(("1",), 7, has_more=True)
    assert found["more"] == Completion(("1",), None, has_more=True)
    assert found["none"] == Completion((), 0, has_more=False)
    assert users("none") == []


async def test_what_nobody_completes_has_no_values(worker: Worker) -> None:
    client = TestClient(worker)
    for template in ("users://{user_id}/profile", "other://{x}"):
        assert await client.complete(template, "user_id", "a") == Completion((), None, has_more=False)


def test_a_completion_of_what_is_not_there_is_refused(worker: Worker) -> None:
    def complete(typed: str) -> list[str]:
        return [typed]

    for template, variable in (
        ("other://{x}", "x"),
        ("users://{user_id}/profile", "x"),
        ("config://app", "x"),
    ):
        with pytest.raises(InvalidDeclaration):
            worker.complete(template, variable)(complete)
    callbacks: list[Callable[..., list[str]]] = [roster_of_nobody, three_at_once]
    for callback in callbacks:
        with pytest.raises(InvalidDeclaration, match="it is called with the typed text"):
            worker.complete("users://{user_id}/profile", "user_id")(callback)


def roster_of_nobody() -> list[str]:
    return []


def three_at_once(typed: str, others: str, more: str) -> list[str]:
    return [typed, others, more]


# --- Changing


async def test_what_is_disabled_is_neither_listed_nor_read_until_it_is_enabled(worker: Worker) -> None:
    client = TestClient(worker)
    worker.disable("config://app")
    worker.disable("users://{user_id}/profile")
    assert await client.list() == client.templates() == []
    for uri in ("config://app", "users://7/profile"):
        with pytest.raises(NotFound):
            await client.read(uri)
    request = CallRequest("read", "config://app", "config://app", "t", "s", None, time.time() + 10)
    answer = await worker.call(request)
    assert isinstance(answer, Failure), "a call that was under way when it was disabled"
    assert answer.reason == "not_found"
    worker.enable("config://app")
    assert await _uris(worker) == ["config://app"]
    assert await client.read("config://app")


async def test_what_is_removed_is_gone_and_may_be_declared_again(worker: Worker) -> None:
    worker.remove("config://app")
    assert await _uris(worker) == []
    worker.resource("config://app", name="again")(lambda: "again")
    assert (await TestClient(worker).read("config://app"))[0].text == "again"


def test_every_change_is_told_once_to_whoever_asked(worker: Worker) -> None:
    told: list[int] = []
    stop = worker.on_change(lambda: told.append(len(worker.declarations())))
    worker.resource("x://y", name="x")(lambda: "")
    worker.disable("x://y")
    worker.disable("x://y")
    worker.enable("x://y")
    worker.remove("x://y")
    assert told == [3, 2, 3, 2]
    stop()
    worker.disable("config://app")
    assert len(told) == 4


def test_changing_what_is_not_declared_is_a_mistake(worker: Worker) -> None:
    for change in (worker.enable, worker.disable, worker.remove, worker.on_watched, worker.on_unwatched):
        with pytest.raises(InvalidDeclaration, match="declares nothing as"):
            change("x://y")


async def test_list_and_complete_calls_answer_in_the_words_of_brokers(worker: Worker) -> None:
    worker.resource(ROSTER, name="roster", list=lambda: ["teams://a/roster"])(roster)
    deadline = time.time() + 10
    listed = await worker.call(CallRequest("list", ROSTER, ROSTER, "t", "s", None, deadline))
    assert isinstance(listed, Instances)
    assert [json.loads(meta)["uri"] for meta in listed.metas] == ["teams://a/roster"]
    unlisted = await worker.call(
        CallRequest("list", "config://app", "config://app", "t", "s", None, deadline)
    )
    assert isinstance(unlisted, Failure)
    completed = await worker.call(
        CallRequest("complete", ROSTER, ROSTER, "t", "s", None, deadline, "team_id")
    )
    assert completed == Values(())


# --- Demand


async def test_the_first_and_the_last_watcher_are_told_to_those_who_ask(worker: Worker) -> None:
    told: list[tuple[str, ...]] = []

    @worker.on_watched("users://{user_id}/profile")
    async def start(uri: str, ctx: Context) -> None:
        await asyncio.sleep(0)
        told.append(("start", uri, ctx.tenant))
        assert not ctx.is_cancelled

    @worker.on_unwatched("users://{user_id}/profile")
    def stop(uri: str) -> None:
        told.append(("stop", uri))

    assert [each.wants_demand for each in worker.declarations()] == [False, True]
    await worker.watched("users://{user_id}/profile", "users://7/profile", "acme")
    await worker.unwatched("users://{user_id}/profile", "users://7/profile", "acme")
    await worker.watched("config://app", "config://app", "acme")
    assert told == [("start", "users://7/profile", "acme"), ("stop", "users://7/profile")]
    assert (start.__name__, stop.__name__) == ("start", "stop")


async def test_a_failing_demand_callback_is_logged_and_hurts_nobody(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    @worker.on_watched("config://app")
    def start(uri: str) -> None:
        raise RuntimeError(uri)

    await worker.watched("config://app", "config://app", "acme")
    assert [record.message for record in caplog.records] == ["demand_callback_failed"]
    with pytest.raises(RuntimeError):
        start("x")
