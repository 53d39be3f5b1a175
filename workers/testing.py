"""What an author needs to test a worker: `TestClient` calls it as a broker would, without one.

    client = TestClient(worker)
    assert (await client.read("users://7/profile"))[0].text == "User 7: 12 orders since 2021."

It routes, checks scopes, converts and encodes by the code that serves clients, so what it shows is what they
get. It has no cache: each read runs the function.

`running` serves the worker from a real broker with a Redis of its own, for what only a client can see.
"""

import base64
import contextlib
import json
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from broker.core import declaration
from broker.core.access import may_read
from broker.core.declaration import (
    CallRequest,
    CallResult,
    Declaration,
    Failure,
    Kind,
    decode_result,
    encode_result,
)
from broker.core.errors import BadRequest, Misconfigured, NotFound, ResourceNotFound
from broker.core.identity import Principal, check_tenant, check_uri
from broker.core.publication import Contents
from broker.store import embedded
from workers.local import local_broker
from workers.resources import Completion
from workers.serving import serving
from workers.worker import Worker


class CallFailed(Exception):
    """The function failed, or its result could not be shown; the log has the traceback under `id`."""

    def __init__(self, message: str, call_id: str) -> None:
        super().__init__(message)
        self.id = call_id


class TestClient:
    """Calls `worker` as a client of `tenant` who is `subject` and has `scopes` (None: all of them).

    `tenant` is by default the worker's first one; `seconds` is the deadline of each call.
    """

    __test__ = False

    def __init__(
        self,
        worker: Worker,
        *,
        tenant: str | None = None,
        subject: str = "tester",
        scopes: Collection[str] | None = None,
        seconds: float = 10.0,
    ) -> None:
        self._worker = worker
        granted = None if scopes is None else frozenset(scopes)
        self._principal = Principal(check_tenant(tenant or worker.tenants[0]), subject, granted)
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"<TestClient {self._principal.subject!a} of {self._worker!r}>"

    async def read(self, uri: str) -> list[Contents]:
        """Return the entries of what a client reads at `uri`.

        Raises:
            NotFound: unknown, refused, or not this caller's.
            BadRequest: the URI or a value in it is invalid.
            CallFailed: the function failed.
        """
        declared = self._worker.route(check_uri(uri))
        found = next((each for each in self._visible() if each.uri == declared), None)
        if found is None:
            raise ResourceNotFound(uri)
        try:
            result = await self._call("read", found.uri, uri)
        except NotFound:
            # What a client is told does not say why.
            raise ResourceNotFound(uri) from None
        assert isinstance(result, declaration.Contents)
        return [_entry(each) for each in json.loads(result.body)]

    async def list(self) -> list[dict[str, Any]]:
        """Return what resources/list shows, in the order of URIs.

        Raises:
            CallFailed: a list callback failed.
        """
        listed: dict[str, dict[str, Any]] = {}
        for each in self._visible():
            if not each.is_template:
                listed[each.uri] = json.loads(each.meta)
        for each in self._visible():
            if each.has_list:
                result = await self._call("list", each.uri, each.uri)
                assert isinstance(result, declaration.Instances)
                for shown in map(json.loads, result.metas):
                    listed.setdefault(shown["uri"], shown)
        return [listed[uri] for uri in sorted(listed)]

    def templates(self) -> "list[dict[str, Any]]":
        """Return what resources/templates/list shows, in the order of templates."""
        shown = [json.loads(each.meta) for each in self._visible() if each.is_template]
        return sorted(shown, key=lambda each: each["uriTemplate"])

    async def complete(
        self, template: str, variable: str, value: str = "", arguments: Mapping[str, str] | None = None
    ) -> Completion:
        """Return the values for `variable` when `value` was typed; empty where nothing completes it.

        Raises:
            CallFailed: the callback failed.
        """
        if not any(each.uri == template for each in self._visible()):
            return Completion((), has_more=False)
        result = await self._call(
            "complete", template, template, argument=variable, value=value, arguments=arguments
        )
        assert isinstance(result, declaration.Values)
        return Completion(result.values, result.total, result.has_more)

    def _visible(self) -> "list[Declaration]":
        return [each for each in self._worker.declarations() if may_read(self._principal, each.scopes)]

    async def _call(
        self,
        kind: Kind,
        declared: str,
        uri: str,
        *,
        argument: str = "",
        value: str = "",
        arguments: Mapping[str, str] | None = None,
    ) -> CallResult:
        principal = self._principal
        request = CallRequest(
            kind=kind,
            declared=declared,
            uri=uri,
            tenant=principal.tenant,
            subject=principal.subject,
            scopes=principal.scopes,
            deadline=time.time() + self._seconds,
            argument=argument,
            value=value,
            arguments=arguments or {},
        )
        # By way of bytes, as between processes.
        answer = await self._worker.call(CallRequest.decode(request.encode()))
        result = decode_result(encode_result(answer))
        match result:
            case Failure(reason="not_found" | "forbidden", message=message):
                raise NotFound(message)
            case Failure(reason="invalid", message=message):
                raise BadRequest(message)
            case Failure(message=message, id=call_id):
                raise CallFailed(message, call_id)
            case _:
                return result


def _entry(shown: Mapping[str, Any]) -> Contents:
    blob = cast("str | None", shown.get("blob"))
    return Contents(
        text=shown.get("text"),
        blob=None if blob is None else base64.b64decode(blob, validate=True),
        uri=shown["uri"],
        mime_type=shown.get("mimeType"),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker and its Redis are."""

    url: str
    """The endpoint for MCP clients."""
    redis_url: str
    """For publishers and further workers."""


@contextlib.asynccontextmanager
async def running(*workers: Worker, **settings: str) -> AsyncGenerator[Place]:
    """Serve `workers` from a broker with a Redis of its own, both gone at the end.

    Settings of the environment (BROKER_…) do not reach it; those given here do. Clients that do not say so
    otherwise are of the first worker's first tenant.

    Raises:
        Misconfigured: the broker did not start.
    """
    tenant = workers[0].tenants[0] if workers else "default"
    with tempfile.TemporaryDirectory(prefix="workers-test-") as directory:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BROKER_")}
        environment |= {
            "BROKER_STATE_DIR": str(Path(directory) / "state"),
            "BROKER_PORT": "0",
            "BROKER_INTERNAL_PORT": "0",
            "BROKER_AUTH__TENANT": tenant,
        }
        async with local_broker(Path(directory), environment | settings) as url:
            found = embedded.find(Path(directory) / "state")
            redis_url = settings.get("BROKER_REDIS_URL") or found
            if redis_url is None:
                raise Misconfigured("The broker serves, but its Redis is not to be found.")
            async with serving(*workers, url=redis_url):
                yield Place(url, redis_url)
