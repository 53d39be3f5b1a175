"""How the publishing API answers: one shape for what was done, one for what was refused.

Done: {"uri", "status", "revision"}, the revision also as ETag. Refused: {"error": {"reason", "message"}}
with the status of this table; reasons are those of core/errors.py and do not change, messages may.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from broker.core.errors import (
    SHOWN,
    BadRequest,
    BrokerError,
    Conflict,
    Forbidden,
    KeyReused,
    LimitReached,
    Misconfigured,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from broker.core.publication import encode_json
from broker.core.revision import Stamp
from broker.store.publishing import Outcome
from broker.telemetry import request

log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 1

_STATUS: tuple[tuple[type[BrokerError], int], ...] = (
    (TooLarge, 413),
    (BadRequest, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (KeyReused, 409),
    (Conflict, 412),
    (LimitReached, 429),
    (Unavailable, 503),
)
"""The first class that fits decides; anything else is 500."""


class Misdirected(BrokerError):
    """The request was meant for another server (RFC 9110, 15.5.20)."""

    reason = "misdirected"


class TooSlow(BrokerError):
    """The body did not come in time (RFC 9110, 15.5.9)."""

    reason = "too_slow"


def status_of(error: BrokerError) -> int:
    """Return the HTTP status of a refusal."""
    if isinstance(error, Misdirected):
        return 421
    if isinstance(error, TooSlow):
        return 408
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: BrokerError) -> dict[str, str]:
    """Return the object under "error" in an answer."""
    if isinstance(error, Misconfigured):
        # An operator's business, with key names in it; it is in our log.
        log.error("store_misconfigured", extra={"why": str(error)})
    return {"reason": error.reason, "message": error.public}


def refused(error: BrokerError, challenge: bytes | None = None) -> Response:
    """Return the answer to a request that was refused as a whole; `challenge` is its WWW-Authenticate."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if challenge is not None:
        headers["www-authenticate"] = challenge.decode("ascii")
    if status in (429, 503):
        seconds = error.retry_after if isinstance(error, LimitReached) else None
        headers["retry-after"] = str(RETRY_AFTER_SECONDS if seconds is None else math.ceil(seconds))
    if isinstance(error, TooLarge | TooSlow):
        # The rest of the body is still on its way and nobody will read it.
        headers["connection"] = "close"
    return answer({"error": problem(error)}, status, headers)


def failed(_http: Request | None, _error: Exception) -> Response:
    """Return the answer to a request that failed by a bug of ours; whoever catches it logs it."""
    message = f"The broker failed; its log says why, under the request's id {request.current()}."
    return answer({"error": {"reason": BrokerError.reason, "message": message}}, 500)


def nothing_here(http: Request, error: Exception) -> Response:
    """Return the answer to a path or a method that the public port does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    where = f"{http.method} {http.url.path[:SHOWN]}"
    message = f"There is no {where} here: MCP is on /mcp, publishing on /v1, and /openapi.json describes it."
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return answer({"error": {"reason": "no_such_route", "message": message}}, status, headers)


def done(uri: str, outcome: Outcome) -> dict[str, Any]:
    """Return what is said of one outcome."""
    said: dict[str, Any] = {"uri": uri, "status": outcome.status}
    if outcome.stamp is not None:
        said["revision"] = str(outcome.stamp)
    if outcome.replicas is not None:
        said["replicas"] = outcome.replicas
    return said


def etag(stamp: Stamp | None) -> dict[str, str]:
    """Return the ETag header of a revision, if there is one."""
    return {} if stamp is None else {"etag": f'"{stamp}"'}


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer that nobody keeps."""
    return raw(encode_json(content), status, headers)


def raw(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer whose JSON is encoded already."""
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, "application/json")
