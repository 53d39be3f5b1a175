"""Drives the official Python SDK 1.x: ClientSession over streamable HTTP, 2025-11-25."""

# pyright: basic, reportAttributeAccessIssue=false, reportArgumentType=false, reportAssignmentType=false
# It runs where mcp 1.x is installed; the checker sees 2.x, whose names are others.

from typing import Any

import httpx
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl
from steps import (
    BINARY,
    INSTANCE,
    MISSING,
    TEMPLATE,
    TEXT,
    WATCHED,
    Options,
    Steps,
    run,
    watch,
)


async def main(options: Options, steps: Steps) -> None:
    inbox: list[tuple[str, str]] = []

    async def on_message(message: object) -> None:
        if isinstance(message, types.ServerNotification):
            inbox.append((message.root.method, str(getattr(message.root.params, "uri", ""))))

    timeout = httpx.Timeout(30, read=300)
    async with (
        httpx.AsyncClient(headers=options.headers, timeout=timeout, follow_redirects=True) as http,
        streamable_http_client(options.url, http_client=http) as (reader, writer, _),
        ClientSession(reader, writer, message_handler=on_message) as client,
    ):
        await _ask(client, steps)
        await watch(
            steps,
            inbox,
            text=lambda: _text(client, WATCHED),
            subscribe=lambda: client.subscribe_resource(AnyUrl(WATCHED)),
            unsubscribe=lambda: client.unsubscribe_resource(AnyUrl(WATCHED)),
        )
    async with steps.step("close"):
        pass


async def _text(client: Any, uri: str) -> str:
    return (await client.read_resource(AnyUrl(uri))).contents[0].text


async def _ask(client: Any, steps: Steps) -> None:
    async with steps.step("connect"):
        initialized = await client.initialize()
        assert initialized.protocolVersion == "2025-11-25", initialized
        assert initialized.capabilities.resources, initialized
    async with steps.step("list"):
        listed = await client.list_resources()
        assert {TEXT, BINARY, WATCHED} <= {str(each.uri) for each in listed.resources}, listed
    async with steps.step("templates"):
        templates = await client.list_resource_templates()
        assert TEMPLATE in [each.uriTemplate for each in templates.resourceTemplates], templates
    async with steps.step("read-text"):
        contents = (await client.read_resource(AnyUrl(TEXT))).contents[0]
        assert contents.text, contents
        assert contents.mimeType, contents
    async with steps.step("read-binary"):
        assert (await client.read_resource(AnyUrl(BINARY))).contents[0].blob
    async with steps.step("read-template"):
        assert "123" in await _text(client, INSTANCE)
    async with steps.step("complete"):
        reference = types.ResourceTemplateReference(type="ref/resource", uri=TEMPLATE)
        completed = await client.complete(reference, {"name": "id", "value": "1"})
        assert "123" in completed.completion.values, completed
    async with steps.step("not-found"):
        try:
            await client.read_resource(AnyUrl(MISSING))
        except McpError as error:
            assert error.error.code == -32002, error.error  # noqa: PT017 - no pytest here
        else:
            raise AssertionError("a missing resource was read")
    async with steps.step("ping"):
        await client.send_ping()


run(main)
