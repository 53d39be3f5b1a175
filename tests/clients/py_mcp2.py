"""Drives the official Python SDK 2.x. Mode auto: discover and listen; legacy: initialize and subscribe."""

import contextlib
from typing import Any

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference
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

    async def on_message(message: Any) -> None:
        inbox.append(
            (getattr(message, "method", ""), str(getattr(getattr(message, "params", None), "uri", "")))
        )

    mode: Any = options.mode
    async with create_mcp_http_client(headers=options.headers) as http:
        transport = streamable_http_client(options.url, http_client=http)
        async with Client(
            transport, mode=mode, message_handler=on_message, read_timeout_seconds=30, cache=None
        ) as client:
            is_modern = client.protocol_version == "2026-07-28"
            async with steps.step("connect"):
                assert is_modern == (mode == "auto"), client.protocol_version
                assert client.server_capabilities.resources, client.server_capabilities
            await _ask(client, steps, is_modern=is_modern)
            if is_modern:
                await _listen(client, steps)
            else:
                session: Any = client  # its methods of the handshake era are marked as deprecated
                await watch(
                    steps,
                    inbox,
                    text=lambda: _text(client, WATCHED),
                    subscribe=lambda: session.subscribe_resource(WATCHED),
                    unsubscribe=lambda: session.unsubscribe_resource(WATCHED),
                )
    async with steps.step("close"):
        pass


async def _text(client: Client, uri: str) -> str:
    contents: Any = (await client.read_resource(uri)).contents[0]
    return str(contents.text)


async def _ask(client: Client, steps: Steps, *, is_modern: bool) -> None:
    async with steps.step("list"):
        listed = await client.list_resources()
        assert {TEXT, BINARY, WATCHED} <= {str(each.uri) for each in listed.resources}, listed
    async with steps.step("templates"):
        templates = await client.list_resource_templates()
        assert TEMPLATE in [each.uri_template for each in templates.resource_templates], templates
    async with steps.step("read-text"):
        contents: Any = (await client.read_resource(TEXT)).contents[0]
        assert contents.text, contents
        assert contents.mime_type == "text/plain", contents
        assert str(contents.uri) == TEXT, contents
    async with steps.step("read-binary"):
        binary: Any = (await client.read_resource(BINARY)).contents[0]
        assert binary.blob, binary
        assert binary.mime_type == "image/png", binary
    async with steps.step("read-template"):
        assert "123" in await _text(client, INSTANCE)
    async with steps.step("complete"):
        reference = ResourceTemplateReference(type="ref/resource", uri=TEMPLATE)
        completed = await client.complete(reference, {"name": "id", "value": "1"})
        assert "123" in completed.completion.values, completed
    async with steps.step("not-found"):
        try:
            await client.read_resource(MISSING)
        except MCPError as error:
            assert error.code == (-32602 if is_modern else -32002), error.code  # noqa: PT017 - no pytest here
        else:
            raise AssertionError("a missing resource was read")


async def _listen(client: Client, steps: Steps) -> None:
    before = await _text(client, WATCHED)
    async with contextlib.AsyncExitStack() as stack:
        async with steps.step("subscribe"):
            listening = await stack.enter_async_context(
                client.listen(resource_subscriptions=[WATCHED], resources_list_changed=True)
            )
            assert listening.honored.resource_subscriptions == [WATCHED], listening.honored
        async with steps.step("update"):
            await steps.change()
            event = await anext(listening)
            assert getattr(event, "uri", None) == WATCHED, event
        async with steps.step("reread"):
            assert await _text(client, WATCHED) != before
        async with steps.step("list-changed"):
            await steps.relist()
            while type(event).__name__ != "ResourcesListChanged":
                event = await anext(listening)
    async with steps.step("unsubscribe"):
        # Leaving `listen` closed its stream; the broker must not mind.
        await steps.change()
        await _text(client, WATCHED)


run(main)
