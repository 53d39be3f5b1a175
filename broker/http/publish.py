"""Publishing over HTTP, for any language: `router` makes the /v1 routes.

Shell only: intake.py reads requests, store/publishing.py decides, answers.py says what became of it. The
tenant comes from the credential alone (auth/gate.py). Rules:

1. Bodies are counted as they arrive; over the limit the answer is 413 at once, whatever Content-Length said.
   One that does not come is 408: each of its megabytes has the same time.
2. Nothing here is an error of FastAPI's own form: each refusal is {"error": {"reason", "message"}}.
3. In POST /v1/publish each resource has its own result; the request is refused as a whole only if it cannot
   be read or Redis did not answer at all.
4. Host and Origin are checked as on the MCP endpoint: any page in a browser can send a POST to this machine,
   and an open broker would believe it.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from broker.core.access import PUBLISH, parted
from broker.core.errors import (
    BadRequest,
    BrokerError,
    Forbidden,
    InvalidCursor,
    LimitReached,
    ResourceNotFound,
    TooLarge,
    Unavailable,
)
from broker.core.identity import Principal, ResourceKey, TenantId, check_uri
from broker.core.publication import MAX_CONTENT_BYTES, describe, encode_json
from broker.http import answers, intake, openapi
from broker.http.auth.gate import Gate
from broker.http.exchange import joined
from broker.store import publishing, resources, touching
from broker.store.batch import run_batch
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from broker.store.resources import Stored
from broker.store.scripts import Call, run
from broker.store.waiting import run_waiting
from broker.telemetry.metrics import Metrics
from broker.tenants.publishes import Publishes
from broker.wire.headers import Perimeter

MEGABYTE = 1_000_000


WAITING = 4
"""Publishes that wait for Redis' replicas at a time, in a replica of ours."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold."""

    content_bytes: int = MAX_CONTENT_BYTES
    """Of one resource, encoded; a PUT has no more bytes than that, and a POST twice as many in all."""
    resources: int = 1000
    """In one POST /v1/publish."""
    body_seconds: float = 30.0
    """How long a body may take to come, for each megabyte that has begun."""
    page: int = 1000
    """Resources in one answer of GET /v1/resources."""
    quota: str = publishing.TRUSTED
    """The installation's limits, as the scripts take them."""
    read: Callable[[Principal], Awaitable[None]] | None = None
    """Spends one read of the caller's quota, or refuses it."""
    publishes: Publishes | None = None
    """The callers' rates of publishing."""


def _route(metrics: Metrics) -> type[APIRoute]:
    """Return routes that turn our errors into answers, here and not in the application: MCP's stay MCP's."""

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            return _answering(super().get_route_handler(), metrics)

    return Route


def _answering(
    handle: Callable[[Request], Coroutine[Any, Any, Response]], metrics: Metrics
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def answered(request: Request) -> Response:
        try:
            return await handle(request)
        except BrokerError as error:
            metrics.request_refused(error.reason)
            return answers.refused(error, getattr(request.state, "challenge", None))
        except ClientDisconnect:
            # Nobody is there to read this; it keeps a traceback out of the log.
            return Response(status_code=400)

    return answered


def router(  # noqa: C901, PLR0915 # routes are closures; each is short
    redis: Client,
    keys: Keys,
    gate: Gate,
    limits: Limits,
    perimeter: Perimeter = Perimeter(),  # noqa: B008 # a frozen value: this machine only
    *,
    metrics: Metrics | None = None,
) -> APIRouter:
    """Return the routes of the publishing API."""
    rules = touching.Rules()
    # Who waits for replicas holds a connection, and must not hold them all.
    waiting = asyncio.Semaphore(WAITING)
    counts = metrics or Metrics()
    routes = APIRouter(prefix="/v1", route_class=_route(counts), tags=["publishing"])
    body_of = partial(_body, seconds=limits.body_seconds)

    async def publisher(request: Request) -> Principal:
        _check_perimeter(request.headers, perimeter)
        try:
            # Of two credentials neither counts, as on the MCP endpoint: a proxy may have looked at the other.
            who = await gate.admit(joined(request.scope["headers"]), PUBLISH)
            if request.method == "GET" and limits.read is not None:
                await limits.read(who)
        except BrokerError as error:
            request.state.challenge = gate.challenge(error)
            raise
        return who

    async def admitted(who: Principal, changes: int, size: int) -> None:
        if limits.publishes is not None:
            limits.publishes.check(who)
            await limits.publishes.charge(who, changes, size)

    async def sent(who: Principal, work: Awaitable[Outcome]) -> Outcome:
        try:
            return await work
        except LimitReached as error:
            noted(who, error)
            raise

    def noted(who: Principal, error: object) -> None:
        if limits.publishes is not None and isinstance(error, LimitReached):
            limits.publishes.note(who, error)

    def decide(tenant: TenantId, order: intake.Order) -> Call[Outcome]:
        key = ResourceKey(tenant, check_uri(order.uri))
        publication = describe(key, order.contents, limits.content_bytes, **order.about)
        return publishing.publish(
            keys,
            publication,
            version=order.version,
            expect=order.expect,
            idempotency_key=order.idempotency_key,
            expires_in_ms=order.expires_in_ms,
            limits=limits.quota,
        )

    @routes.put("/resources", summary="Publish one resource", **openapi.PUT)
    async def put(
        request: Request, who: Annotated[Principal, Depends(publisher)], uri: Annotated[str, Depends(_uri)]
    ) -> Response:
        body = await body_of(request, limits.content_bytes)
        order = intake.order(uri, body, request.headers, request.query_params)
        call = decide(who.tenant, order)
        await admitted(who, 1, len(body))
        if order.wait is None:
            outcome = await sent(who, run(redis, call))
        else:
            async with waiting:
                outcome = await sent(who, run_waiting(redis, keys, who.tenant, call, order.wait))
        return answers.answer(answers.done(uri, outcome), headers=answers.etag(outcome.stamp))

    @routes.post("/publish", summary="Publish several resources", **openapi.PUBLISH)
    async def publish(request: Request, who: Annotated[Principal, Depends(publisher)]) -> Response:
        body = await body_of(request, 2 * limits.content_bytes)
        given = intake.document(body).get("resources")
        items = cast("list[Any]", given) if isinstance(given, list) else []
        if not 0 < len(items) <= limits.resources:
            raise BadRequest(f"resources is a list of 1 to {limits.resources} objects.")
        decided = [_decided(item, lambda order: decide(who.tenant, order)) for item in items]
        await admitted(who, len(items), len(body))
        said = iter(await run_batch(redis, [call for _, call in decided if isinstance(call, Call)]))
        results = [(uri, next(said) if isinstance(call, Call) else call) for uri, call in decided]
        for _, result in results:
            noted(who, result)
        if all(isinstance(result, Unavailable) for _, result in results):
            raise next(result for _, result in results if isinstance(result, Unavailable))
        for _, result in results:
            if isinstance(result, BrokerError):
                counts.request_refused(result.reason)
        return answers.answer({"results": [_result(uri, result) for uri, result in results]})

    @routes.post("/touch", summary="Announce that a resource changed", **openapi.TOUCH)
    async def touch(request: Request, who: Annotated[Principal, Depends(publisher)]) -> Response:
        given = intake.document(await body_of(request, limits.content_bytes))
        uri = given.get("uri")
        if not isinstance(uri, str):
            raise BadRequest('The body is {"uri": "…"}: the resource that changed.')
        key = request.headers.get("idempotency-key")
        await admitted(who, 1, 0)
        touched = touching.touch(
            redis, rules, keys, ResourceKey(who.tenant, uri), idempotency_key=key, limits=limits.quota
        )
        outcome = await sent(who, touched)
        return answers.answer(answers.done(uri, outcome), headers=answers.etag(outcome.stamp))

    @routes.delete("/resources", summary="Remove one resource", **openapi.DELETE)
    async def delete(
        request: Request,
        who: Annotated[Principal, Depends(publisher)],
        uri: Annotated[str, Depends(_uri)],
        version: Annotated[str | None, Query(description="The publisher's own version number.")] = None,
    ) -> Response:
        call = publishing.remove(
            keys,
            ResourceKey(who.tenant, uri),
            version=None if version is None else intake.whole("version", version),
            expect=intake.expectation(request.headers),
            idempotency_key=request.headers.get("idempotency-key"),
        )
        outcome = await run(redis, call)
        return answers.answer(answers.done(uri, outcome))

    @routes.get("/resources", summary="Read one resource, or list a page of them", **openapi.GET)
    async def get(
        request: Request,
        who: Annotated[Principal, Depends(publisher)],
        limit: Annotated[str | None, Query(description="How many to list, 100 by default.")] = None,
        cursor: Annotated[str | None, Query(description="nextCursor of the page before.")] = None,
    ) -> Response:
        uri = intake.exact(request.scope["query_string"], "uri")
        if uri is not None:
            stored = await resources.read(redis, keys, ResourceKey(who.tenant, check_uri(uri)))
            return _shown(uri, stored, request.headers)
        count = min(100 if limit is None else intake.whole("limit", limit), limits.page)
        if count == 0:
            raise BadRequest("limit is at least 1.")
        after = None if cursor is None else _after(cursor)
        listed, has_more = await resources.page(redis, keys, who.tenant, after, count)
        body = b'{"resources":[%b]' % b",".join(each.meta for each in listed)
        if has_more:
            body += b',"nextCursor":%b' % encode_json(_cursor(listed[-1].uri))
        return answers.raw(body + b"}")

    return routes


async def _uri(  # a plain function would go through a thread, at the price of all the rest
    request: Request,
    uri: Annotated[str | None, Query(description="The resource's URI, percent-encoded once.")] = None,
) -> str:
    """Return the URI in the query; the parameter documents it, and form decoding would change it."""
    del uri
    exact = intake.exact(request.scope["query_string"], "uri")
    if exact is None:
        raise BadRequest("Say which resource: ?uri=docs%3A%2F%2Freadme (its URI, percent-encoded).")
    return check_uri(exact)


def _check_perimeter(headers: Mapping[str, str], perimeter: Perimeter) -> None:
    host, origin = headers.get("host", ""), headers.get("origin")
    if not perimeter.has_host(host):
        raise answers.Misdirected(
            f"This server does not answer for the Host {host[:80]!a}; BROKER_HTTP__ALLOWED_HOSTS allows it."
        )
    if origin is not None and not perimeter.has_origin(origin):
        raise Forbidden(
            f"Pages of the origin {origin[:80]!a} may not publish; BROKER_HTTP__ALLOWED_ORIGINS allows it."
        )


async def _body(request: Request, limit: int, seconds: float) -> bytes:
    """Return the body, counted as it arrives (rule 1)."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    started = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(started + seconds) as clock:
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
                clock.reschedule(started + seconds * (1 + len(body) // MEGABYTE))
    except TimeoutError:
        raise answers.TooSlow(
            f"The body did not come within {seconds:g} seconds a megabyte; send it again, or ask the "
            "operator to raise BROKER_HTTP__BODY_SECONDS."
        ) from None
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body has more than {limit} bytes; publish less, or in several requests.")


def _decided(
    item: Any, decide: Callable[[intake.Order], Call[Outcome]]
) -> tuple[str | None, Call[Outcome] | BrokerError]:
    """Return the URI of one listed resource if it has one, and its call or why there is none."""
    uri = cast("dict[str, Any]", item).get("uri") if isinstance(item, dict) else None
    try:
        return uri, decide(intake.listed_order(item))
    except BrokerError as error:
        return uri, error


def _result(uri: str | None, result: Outcome | BrokerError) -> dict[str, Any]:
    if isinstance(result, BrokerError):
        return {"uri": uri, "error": answers.problem(result)}
    return answers.done(uri or "", result)


def _shown(uri: str, stored: Stored | None, headers: Mapping[str, str]) -> Response:
    """Return one resource as its publisher sees it; contents and metadata are spliced in as stored."""
    if stored is None:
        raise ResourceNotFound(uri)
    tag = answers.etag(stored.stamp)
    none_match = headers.get("if-none-match")
    # A weak comparison (RFC 9110, 13.1.2), so the mark of a weak tag is ignored.
    if none_match is not None and (
        none_match.strip() == "*" or stored.stamp in intake.stamps(none_match.replace("W/", ""))
    ):
        return Response(status_code=304, headers=tag)
    rest: dict[str, Any] = {"revision": str(stored.stamp)}
    if stored.version is not None:
        rest["version"] = stored.version
    scopes, subjects = parted(stored.scopes)
    if scopes:
        rest["scopes"] = scopes
    if subjects is not None:
        rest["subjects"] = subjects
    if stored.ttl_ms is not None:
        rest["ttlMs"] = stored.ttl_ms
    if stored.cache_scope is not None:
        rest["cacheScope"] = stored.cache_scope
    if stored.expires_ms is not None:
        rest["expiresMs"] = stored.expires_ms
    return answers.raw(
        b'{"resource":%b,"contents":%b,%b' % (stored.meta, stored.contents, encode_json(rest)[1:]),
        headers=tag,
    )


def _cursor(uri: str) -> str:
    return base64.urlsafe_b64encode(uri.encode()).rstrip(b"=").decode()


def _after(cursor: str) -> str:
    """Return the URI that a cursor of ours names; it needs no secret, it only says where to go on."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return check_uri(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (BadRequest, binascii.Error, ValueError):
        raise InvalidCursor("cursor is the nextCursor of an earlier answer; begin without one.") from None
