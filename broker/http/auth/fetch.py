"""One small JSON document from an authorization server, within bounds.

With the standard library in a thread: it is asked for every few minutes, and a client of its own would be one
more thing to keep. Rules: https only (http on this machine), no redirects, a bounded answer, a bounded wait.
"""

import asyncio
import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode

SECONDS = 5.0
MAX_BYTES = 512 * 1024


class FetchError(Exception):
    """There is no usable answer; the message says why, without the request's secrets."""


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener without the handlers of redirects, files, FTP and data URLs."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


async def get(url: str) -> dict[str, Any]:
    """Return the JSON object at `url`.

    Raises:
        FetchError: there is none.
    """
    return await _ask(urllib.request.Request(url, headers={"accept": "application/json"}))  # noqa: S310 # checked by the settings


async def post(url: str, form: Mapping[str, str], user: str, password: str) -> dict[str, Any]:
    """Return the JSON object that a form posted to `url` brings; with HTTP Basic (RFC 6749, 2.3.1).

    Raises:
        FetchError: there is none.
    """
    pair = "&".join(urlencode({"": part})[1:] for part in (user, password)).replace("&", ":")
    basic = base64.b64encode(pair.encode()).decode()
    headers = {"accept": "application/json", "authorization": f"Basic {basic}"}
    return await _ask(urllib.request.Request(url, urlencode(form).encode(), headers))  # noqa: S310 # checked by the settings


async def _ask(request: urllib.request.Request) -> dict[str, Any]:
    return await asyncio.to_thread(_blocking, request)


def _blocking(request: urllib.request.Request) -> dict[str, Any]:
    try:
        with _opener().open(request, timeout=SECONDS) as response:
            body = response.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise FetchError(f"{request.host} answered {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"{request.host} does not answer ({type(error).__name__})") from None
    if len(body) > MAX_BYTES:
        raise FetchError(f"{request.host} answered more than {MAX_BYTES} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FetchError(f"{request.host} answered no JSON object")
    return cast("dict[str, Any]", found)
