"""Publishing over HTTP, in process with a real Redis: what any language's client sees."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI

from broker.core.revision import Stamp
from broker.http.publish import Limits, router
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from tests.publish.conftest import LIMIT, HeaderGate
from tests.store.shelf import URI, Shelf

AT = f"/v1/resources?uri={quote(URI, safe='')}"
MARKDOWN = {"content-type": "text/markdown"}


def reason(response: httpx.Response, status: int) -> str:
    """Return why a request was refused, checked to be of the one form that refusals have."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(response.json()) == {"error"}
    assert set(error) == {"reason", "message"}
    assert error["message"].endswith((".", ")"))
    return error["reason"]


def done(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_put_is_stored_and_answered_with_its_revision(api: httpx.AsyncClient, shelf: Shelf) -> None:
    answer = await api.put(AT, content="# Héllo", headers=MARKDOWN)
    stored = await shelf.read()
    assert stored is not None
    assert done(answer) == {"uri": URI, "status": "published", "revision": str(stored.stamp)}
    assert answer.headers["etag"] == f'"{stored.stamp}"'
    assert json.loads(stored.contents) == [{"uri": URI, "mimeType": "text/markdown", "text": "# Héllo"}]
    again = await api.put(AT, content="# Héllo", headers=MARKDOWN)
    assert done(again)["status"] == "unchanged"
    assert again.headers["etag"] == answer.headers["etag"]


async def test_a_put_that_too_few_replicas_have_is_stored_and_no_success(
    api: httpx.AsyncClient, shelf: Shelf
) -> None:
    answer = await api.put(f"{AT}&waitReplicas=1&waitMs=50", content="one")
    assert reason(answer, 503) == "not_replicated"
    assert "only on 0 of 1 replicas" in answer.json()["error"]["message"]
    assert await shelf.read() is not None
    assert reason(await api.put(f"{AT}&waitReplicas=many", content="two"), 400) == "bad_request"
    assert reason(await api.put(f"{AT}&waitReplicas=1&waitMs=3600000", content="two"), 400) == "bad_request"
    assert "two" not in str(await shelf.text())


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", "é".encode(), {"text": "é"}),
        ("text/plain; charset=latin-1", "é".encode("latin-1"), {"text": "é"}),
        ("Application/JSON", b'{"a":1}', {"text": '{"a":1}'}),
        ("application/geo+json", b"{}", {"text": "{}"}),
        ("image/svg+xml", b"<svg/>", {"text": "<svg/>"}),
        ("image/png", b"\x89PNG", {"blob": base64.b64encode(b"\x89PNG").decode()}),
        ("application/octet-stream", b"text", {"blob": base64.b64encode(b"text").decode()}),
        (None, b"text", {"text": "text"}),
        (None, b"a\x00b", {"blob": base64.b64encode(b"a\x00b").decode()}),
        (None, b"\xff", {"blob": "/w=="}),
        ("text/plain", b"", {"text": ""}),
    ],
)
async def test_the_content_type_decides_text_or_blob_and_is_kept_as_it_is(
    api: httpx.AsyncClient, shelf: Shelf, kind: str | None, body: bytes, expected: dict[str, str]
) -> None:
    done(await api.put(AT, content=body, headers={} if kind is None else {"content-type": kind}))
    mime = {} if kind is None else {"mimeType": kind}
    assert json.loads(await shelf.text() or "") == [{"uri": URI, **mime, **expected}]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b"\xff"),
        ("text/plain; charset=klingon", b"a"),
        ("text/plain; charset=base64", b"a"),
        ("text/plain; charset=punycode", b"a" * 1000 + b"-" + b"9999" * 200),
        ("text/plain; charset=IDNA", b"xn--a." * 100),
        ("text/plain; charset=undefined", b"a"),
        ("text/plain; charset=unicode_escape", b"a"),
        ("application/x-www-form-urlencoded", b"a=b"),
        ("multipart/form-data; boundary=x", b"--x--"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_refused(
    api: httpx.AsyncClient, shelf: Shelf, kind: str, body: bytes
) -> None:
    assert reason(await api.put(AT, content=body, headers={"content-type": kind}), 400) == "invalid_contents"
    assert await shelf.read() is None


@pytest.mark.parametrize(
    ("written", "uri"),
    [
        ("x:a+b", "x:a+b"),
        ("x%3Aa%2Bb", "x:a+b"),
        ("x:a%252Fb", "x:a%2Fb"),
        ("x:caf%C3%A9", "x:café"),
        ("x:caf%25C3%25A9", "x:caf%C3%A9"),
        ("x://h?q=1", "x://h?q=1"),
        ("x://h/..//.%23f", "x://h/..//.#f"),
    ],
)
async def test_a_uri_is_percent_decoded_once_and_nothing_else(
    api: httpx.AsyncClient, shelf: Shelf, written: str, uri: str
) -> None:
    assert done(await api.put(f"/v1/resources?uri={written}", content="a"))["uri"] == uri
    assert await shelf.uris() == [uri]
    assert done(await api.get(f"/v1/resources?uri={written}"))["resource"]["uri"] == uri
    assert done(await api.delete(f"/v1/resources?uri={written}"))["status"] == "removed"


async def test_a_uri_that_is_missing_twice_there_or_none_is_refused(api: httpx.AsyncClient) -> None:
    for query, why in (
        ("", "bad_request"),
        ("?uri=", "invalid_uri"),
        ("?uri=readme", "invalid_uri"),
        ("?uri=x:a&uri=x:b", "bad_request"),
        ("?uri=x:%FF", "bad_request"),
        ("?uri=%40list", "invalid_uri"),
        (f"?uri=x:{'a' * 700}", "invalid_uri"),
    ):
        assert reason(await api.put(f"/v1/resources{query}", content="a"), 400) == why
        assert reason(await api.delete(f"/v1/resources{query}"), 400) == why


async def test_the_query_describes_what_is_put(api: httpx.AsyncClient, shelf: Shelf) -> None:
    about = "&name=n&title=A+title&description=d&size=3&scopes=b%20a&ttlMs=5&cacheScope=public&version=7"
    done(await api.put(f"{AT}{about}&expiresIn=60.5", content="a"))
    stored = await shelf.read()
    assert stored is not None
    assert json.loads(stored.meta) == {
        "uri": URI, "name": "n", "title": "A title", "description": "d", "size": 3,
    }  # fmt: skip
    assert (stored.scopes, stored.ttl_ms, stored.cache_scope, stored.version) == ({"a", "b"}, 5, "public", 7)
    assert stored.expires_ms is not None
    for bad in ("version=x", "version=-1", "size=1.5", "ttlMs=99999999999999999", "expiresIn=soon",
                "expiresIn=0", "expiresIn=nan", "expiresIn=1e308", "cacheScope=all", "color=red",
                "name="):  # fmt: skip
        assert await api.put(f"{AT}&{bad}", content="b") is not None
        reason(await api.put(f"{AT}&{bad}", content="b"), 400)
    assert '"a"' in str(await shelf.text())


async def test_if_match_lets_only_the_named_revision_through(api: httpx.AsyncClient, shelf: Shelf) -> None:
    first = await api.put(AT, content="a")
    tag = first.headers["etag"]
    second = await api.put(AT, content="b", headers={"if-match": f'"other", {tag}'})
    assert done(second)["status"] == "published"
    for stale in (tag, '"garbage"', f"W/{second.headers['etag']}", "garbage", ""):
        assert reason(await api.put(AT, content="c", headers={"if-match": stale}), 412) == "conflict"
        assert reason(await api.delete(AT, headers={"if-match": stale}), 412) == "conflict"
    assert done(await api.put(AT, content="c", headers={"if-match": "*"}))["status"] == "published"
    assert reason(await api.put(AT, content="d", headers={"if-none-match": "*"}), 412) == "conflict"
    for both in ({"if-none-match": tag}, {"if-none-match": "*", "if-match": "*"}):
        assert reason(await api.put(AT, content="d", headers=both), 400) == "bad_request"
    assert '"c"' in str(await shelf.text())


async def test_if_none_match_publishes_only_what_is_not_there(api: httpx.AsyncClient) -> None:
    assert done(await api.put(AT, content="a", headers={"if-none-match": "*"}))["status"] == "published"
    assert reason(await api.put(AT, content="a", headers={"if-none-match": "*"}), 412) == "conflict"


async def test_an_idempotency_key_replays_and_is_not_reused(api: httpx.AsyncClient, shelf: Shelf) -> None:
    key = {"idempotency-key": "job-1"}
    first = done(await api.put(AT, content="a", headers=key))
    await api.put(AT, content="b")
    again = done(await api.put(AT, content="a", headers=key))
    assert (again["status"], again["revision"]) == ("replayed", first["revision"])
    assert '"b"' in str(await shelf.text())
    assert reason(await api.put(AT, content="c", headers=key), 409) == "key_reused"
    assert reason(await api.delete(AT, headers=key), 409) == "key_reused"
    assert (
        reason(await api.put(AT, content="c", headers={"idempotency-key": "x" * 300}), 400) == "bad_request"
    )


async def test_a_late_version_is_superseded_and_that_is_no_error(api: httpx.AsyncClient) -> None:
    await api.put(f"{AT}&version=2", content="new")
    assert done(await api.put(f"{AT}&version=1", content="late"))["status"] == "superseded"
    assert done(await api.delete(f"{AT}&version=2"))["status"] == "superseded"
    assert done(await api.delete(f"{AT}&version=3"))["status"] == "removed"


async def test_a_body_over_the_limit_is_refused_while_it_arrives(
    api: httpx.AsyncClient, shelf: Shelf
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 500
            assert sent < 20 * LIMIT, "it goes on reading"
            yield b"x" * 500
            await asyncio.sleep(0)

    for answer in (
        await api.put(AT, content="x" * (LIMIT + 1)),
        await api.put(AT, content=endless()),
        await api.put(AT, content=b"\xff" * LIMIT),  # within it as bytes, over it as Base64
        await api.put(AT, content="x", headers={"content-length": str(10**30)}),
    ):
        assert reason(answer, 413) == "too_large"
        assert answer.headers["connection"] == "close"
    assert await shelf.read() is None


async def test_a_get_shows_what_is_stored_and_knows_when_it_has_not_changed(api: httpx.AsyncClient) -> None:
    put = await api.put(f"{AT}&version=7&ttlMs=5&cacheScope=public&scopes=s", content="a", headers=MARKDOWN)
    got = await api.get(AT)
    tag = put.headers["etag"]
    assert got.headers["etag"] == tag
    assert done(got) == {
        "resource": {"uri": URI, "name": "readme", "mimeType": "text/markdown"},
        "contents": [{"uri": URI, "mimeType": "text/markdown", "text": "a"}],
        "revision": put.json()["revision"],
        "version": 7,
        "scopes": ["s"],
        "ttlMs": 5,
        "cacheScope": "public",
    }
    for none_match in (tag, f'"x", W/{tag}', "*"):
        same = await api.get(AT, headers={"if-none-match": none_match})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (await api.get(AT, headers={"if-none-match": '"x.1.y"'})).status_code == 200
    assert reason(await api.get("/v1/resources?uri=docs://other"), 404) == "resource_not_found"


async def test_the_list_comes_in_pages_whose_cursors_end(api: httpx.AsyncClient) -> None:
    uris = sorted(f"x:{number}é+" for number in range(7))
    for uri in uris:
        done(await api.put(f"/v1/resources?uri={quote(uri)}", content="a"))
    for limit in (1, 2, 3, 50):
        found: list[str] = []
        cursor = ""
        for _ in range(10):
            page = done(await api.get(f"/v1/resources?limit={limit}{cursor}"))
            found += [each["uri"] for each in page["resources"]]
            if "nextCursor" not in page:
                break
            cursor = f"&cursor={page['nextCursor']}"
        assert found == uris
    for bad in ("cursor=", "cursor=!", "cursor=eA", "cursor=é"):
        assert reason(await api.get(f"/v1/resources?{bad}"), 400) == "invalid_cursor"
    for bad in ("limit=0", "limit=x", "limit=-1"):
        assert reason(await api.get(f"/v1/resources?{bad}"), 400) == "bad_request"


async def test_several_resources_have_a_result_each(api: httpx.AsyncClient, shelf: Shelf) -> None:
    await shelf.publish("newer", uri="x:held", version=9)
    items: list[Any] = [
        {"uri": "x:text", "text": "a", "mimeType": "text/plain", "title": "T", "version": 1},
        {"uri": "x:json", "json": "a string"},
        {"uri": "x:many", "contents": [{"text": "a"}, {"blob": "AA==", "uri": "x:part", "mimeType": "a/b"}]},
        {"uri": "x:held", "text": "late", "version": 1},
        {"uri": "no uri", "text": "a"},
    ]
    results = done(await api.post("/v1/publish", json={"resources": items}))["results"]
    assert [each.get("status", each.get("error", {}).get("reason")) for each in results] == [
        "published", "published", "published", "superseded", "invalid_uri",
    ]  # fmt: skip
    assert [each["uri"] for each in results] == [item["uri"] for item in items]
    assert json.loads(await shelf.text("x:json") or "")[0]["text"] == '"a string"'
    assert json.loads(await shelf.text("x:many") or "")[1] == {
        "uri": "x:part",
        "mimeType": "a/b",
        "blob": "AA==",
    }


REFUSED_ITEMS: list[Any] = [
    5,
    {"text": "a"},
    {"uri": "x:a"},
    {"uri": "x:a", "text": "a", "blob": "AA=="},
    {"uri": "x:a", "text": 5},
    {"uri": "x:a", "blob": "AA"},
    {"uri": "x:a", "blob": "-_=="},
    {"uri": "x:a", "blob": 5},
    {"uri": "x:a", "contents": "a"},
    {"uri": "x:a", "contents": [{}]},
    {"uri": "x:a", "contents": [{"text": "a", "blob": "AA=="}]},
    {"uri": "x:a", "contents": [{"text": "a", "mimetype": "a/b"}]},
    {"uri": "x:a", "text": "a", "mimetype": "a/b"},
    {"uri": "x:a", "text": "a", "mimeType": ""},
    {"uri": "x:a", "text": "a", "version": "7"},
    {"uri": "x:a", "text": "a", "expiresIn": "7"},
    {"uri": "x:a", "text": "a", "expiresIn": -1},
    {"uri": "x:a", "text": "a", "expect": "maybe"},
    {"uri": "x:a", "text": "a", "idempotencyKey": 5},
    {"uri": "x:a", "text": "\ud800"},
    {"uri": "x:a", "text": "a" * LIMIT},
    {"uri": "x:a", "text": "a", "expiresIn": 1e308},
    {"uri": "x:a", "text": "a", "scopes": 5},
    {"uri": "x:a", "text": "a", "scopes": False},
    {"uri": "x:a", "text": "a", "subjects": 5},
    {"uri": "x:a", "text": "a", "subjects": False},
    {"uri": "x:a", "text": "a", "subjects": ""},
]


@pytest.mark.parametrize("item", REFUSED_ITEMS, ids=lambda item: str(item)[:60])
async def test_a_resource_that_cannot_be_published_does_not_hold_up_the_others(
    api: httpx.AsyncClient, shelf: Shelf, item: Any
) -> None:
    body = json.dumps({"resources": [item, {"uri": "x:fine", "text": "a"}]})
    refused, fine = done(await api.post("/v1/publish", content=body))["results"]
    assert refused["error"]["message"].endswith((".", ")"))
    assert fine["status"] == "published"
    assert await shelf.uris() == ["x:fine"]


async def test_expect_and_keys_of_a_listed_resource_hold(api: httpx.AsyncClient, shelf: Shelf) -> None:
    first = await shelf.publish("a", uri="x:a")
    items = [
        {"uri": "x:a", "text": "b", "expect": "absent"},
        {"uri": "x:a", "text": "b", "expect": str(first.stamp), "idempotencyKey": "k"},
        {"uri": "x:a", "text": "b", "expect": str(first.stamp), "idempotencyKey": "k"},
        {"uri": "x:a", "text": "c", "idempotencyKey": "k"},
    ]
    results = done(await api.post("/v1/publish", json={"resources": items}))["results"]
    assert [each.get("status", each.get("error", {}).get("reason")) for each in results] == [
        "conflict", "published", "replayed", "key_reused",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"resources": []}',
        b'{"resources": {}}',
        b'{"resources": [1,2,3,4,5,6]}',
        b'{"resources": [NaN]}',
        b"\xff",
        b"[" * 1500,
    ],
    ids=lambda body: str(body[:30]),
)
async def test_a_request_that_cannot_be_read_is_refused_as_a_whole(
    api: httpx.AsyncClient, body: bytes
) -> None:
    assert reason(await api.post("/v1/publish", content=body), 400) == "bad_request"
    assert reason(await api.post("/v1/touch", content=body), 400) == "bad_request"


async def test_a_touch_announces_a_change(api: httpx.AsyncClient, shelf: Shelf) -> None:
    answer = done(await api.post("/v1/touch", json={"uri": "users://7"}))
    assert answer == {
        "uri": "users://7",
        "status": "touched",
        "revision": str(await shelf.stamp("users://7")),
    }
    again = await api.post("/v1/touch", json={"uri": "users://7"}, headers={"idempotency-key": "t"})
    assert done(again)["status"] == "touched"
    assert reason(await api.post("/v1/touch", json={"uri": "no uri"}), 400) == "invalid_uri"
    assert len(await shelf.entries()) == 2


async def test_a_delete_is_idempotent(api: httpx.AsyncClient, shelf: Shelf) -> None:
    assert done(await api.delete(AT)) == {"uri": URI, "status": "absent"}
    await shelf.publish("a")
    removed = done(await api.delete(AT))
    assert Outcome("removed", Stamp.parse(removed["revision"])) == Outcome("removed", await shelf.stamp())
    assert done(await api.delete(AT)) == {**removed, "status": "absent"}


async def test_a_tenant_publishes_and_sees_its_own_only(api: httpx.AsyncClient) -> None:
    other = {"test-tenant": "other"}
    done(await api.put(AT, content="ours"))
    assert reason(await api.get(AT, headers=other), 404) == "resource_not_found"
    assert done(await api.get("/v1/resources", headers=other)) == {"resources": []}
    assert done(await api.delete(AT, headers=other))["status"] == "absent"
    assert done(await api.get(AT))["contents"][0]["text"] == "ours"
    bad = await api.get(AT, headers={"test-tenant": "a\tb"})
    assert (bad.status_code, bad.json()["error"]["reason"]) == (400, "invalid_tenant")


async def test_a_credential_that_may_only_read_may_not_publish(api: httpx.AsyncClient, shelf: Shelf) -> None:
    reader = {"test-scopes": "resources:read"}
    publisher = {"test-scopes": "resources:read resources:publish"}
    for refused in (
        await api.put(AT, content="a", headers=reader),
        await api.post("/v1/publish", json={"resources": [{"uri": URI, "text": "a"}]}, headers=reader),
        await api.post("/v1/touch", json={"uri": URI}, headers=reader),
        await api.delete(AT, headers=reader),
        await api.get(AT, headers=reader),
    ):
        assert reason(refused, 403) == "forbidden"
        assert refused.headers["www-authenticate"] == 'Bearer scope="of the test"'
    assert await shelf.entries() == []
    assert done(await api.put(AT, content="a", headers=publisher))["status"] == "published"


async def test_a_page_of_another_origin_and_another_host_are_refused(
    api: httpx.AsyncClient, shelf: Shelf
) -> None:
    """Any page may send a POST of text/plain to this machine, and a rebound name reaches it, too."""
    body = json.dumps({"resources": [{"uri": URI, "text": "evil"}]})
    for headers, status in (
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
    ):
        for answer in (
            await api.post("/v1/publish", content=body, headers=headers),
            await api.put(AT, content="evil", headers=headers),
            await api.get(AT, headers=headers),
        ):
            assert reason(answer, status) in {"forbidden", "misdirected"}
    assert await shelf.entries() == []
    own = {"origin": "http://127.0.0.1:8000"}
    assert done(await api.put(AT, content="a", headers=own))["status"] == "published"


async def test_the_description_of_the_api_names_every_route_and_field(api: httpx.AsyncClient) -> None:
    described = done(await api.get("/openapi.json"))
    methods = {(path, method) for path, each in described["paths"].items() for method in each}
    assert methods == {
        ("/v1/resources", "put"),
        ("/v1/resources", "get"),
        ("/v1/resources", "delete"),
        ("/v1/publish", "post"),
        ("/v1/touch", "post"),
    }
    example = described["paths"]["/v1/publish"]["post"]["requestBody"]["content"]["application/json"][
        "example"
    ]
    results = done(await api.post("/v1/publish", json=example))["results"]
    assert {each["status"] for each in results} == {"published"}
    put = described["paths"]["/v1/resources"]["put"]
    names = [parameter["name"] for parameter in put["parameters"]]
    assert {"uri", "version", "ttlMs", "If-Match", "Idempotency-Key"} <= set(names)
    assert len(names) == len(set(names))


async def test_redis_out_of_reach_is_a_retryable_answer_at_once() -> None:
    redis = commands(Connect("redis://127.0.0.1:1", Keys()))
    app = FastAPI()
    app.include_router(router(redis, Keys(), HeaderGate(), Limits()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        body = {"resources": [{"uri": URI, "text": "a"}]}
        for answer in (
            await client.put(AT, content="a"),
            await client.post("/v1/publish", json=body),
            await client.get(AT),
            await client.get("/v1/resources"),
        ):
            assert reason(answer, 503) == "store_unavailable"
            assert answer.headers["retry-after"] == "1"
    await redis.aclose()
