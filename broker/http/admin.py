"""The administrators' API: tenants, their limits and their keys, on the internal port, for machines.

    GET    /admin/v1/tenants                      GET    /admin/v1/audit
    PUT    /admin/v1/tenants/{t}                  {"limits": {…}}; makes it, 409 if it is there
    GET    /admin/v1/tenants/{t}                  PATCH  /admin/v1/tenants/{t}/limits  {"reads": 5}
    POST   /admin/v1/tenants/{t}/suspend          POST   /admin/v1/tenants/{t}/resume
    DELETE /admin/v1/tenants/{t}                  202; goes on in the background, and again if asked again
    GET    /admin/v1/tenants/{t}/keys             POST   /admin/v1/tenants/{t}/keys    a name, scopes
    POST   /admin/v1/tenants/{t}/keys/{k}/rotate  {"overlap": seconds}
    DELETE /admin/v1/tenants/{t}/keys/{k}

Rules:

1. Two credentials: the operator's (BROKER_ADMIN__TOKEN) may do all of it; an API key with the scope admin may
   do what is about the keys of its own tenant, and nothing of another's exists for it.
2. Without a token set the API is not there at all.
3. A new key's text is in the answer that made it and nowhere else; every act is in the audit log.
"""

import dataclasses
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, cast
from urllib.parse import unquote

from broker.core import apikey
from broker.core.access import ADMIN
from broker.core.errors import BadRequest, BrokerError, Conflict, Forbidden, TenantNotFound, Unauthenticated
from broker.core.identity import TenantId, check_tenant
from broker.core.publication import encode_json
from broker.core.tenancy import KeyRecord, Limits, Tenant
from broker.http import answers, intake
from broker.http.address import raw_path
from broker.http.auth.gate import Authenticator, bearer
from broker.http.exchange import joined
from broker.store.control import Control
from broker.store.erasure import erase

_log = logging.getLogger(__name__)

ROOT = "/admin/v1/"
MAX_BODY = 64 * 1024
OPERATOR = "operator"

_Answer = tuple[int, Any]


class Admin:
    """The ASGI app of the API."""

    def __init__(
        self,
        control: Control,
        keys: Authenticator,
        token: str | None,
        *,
        erased: Callable[[TenantId], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._control = control
        self._keys = keys
        self._token = token
        self._erased = erased
        self._spawn = spawn

    def is_at(self, scope: Mapping[str, Any]) -> bool:
        """Whether an ASGI scope is for this API, and it is switched on."""
        return self._token is not None and scope["path"].startswith(ROOT)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers = joined(scope["headers"])
        extra: list[tuple[bytes, bytes]] = []
        try:
            actor, own = await self._actor(headers)
            segments = [unquote(part) for part in raw_path(scope).removeprefix(ROOT).split("/")]
            body = await _body(receive)
            status, answer = await self._act(actor, own, scope["method"], segments, body)
        except BrokerError as error:
            status, answer = answers.status_of(error), {"error": answers.problem(error)}
            if isinstance(error, Conflict):
                status = 409
            if isinstance(error, Unauthenticated):
                extra.append((b"www-authenticate", b"Bearer"))
        content = encode_json(answer)
        answer_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (b"cache-control", b"no-store"),
            *extra,
        ]
        await send({"type": "http.response.start", "status": status, "headers": answer_headers})
        await send({"type": "http.response.body", "body": content})

    async def _actor(self, headers: Mapping[str, str]) -> tuple[str, TenantId | None]:
        """Return who acts, and the only tenant it may act for (None: any)."""
        token = bearer(headers)
        if self._token is not None and hmac.compare_digest(token.encode(), self._token.encode()):
            return OPERATOR, None
        if not token.startswith(apikey.PREFIX):
            raise Unauthenticated("This is not the administrators' token.")
        who = await self._keys.authenticate(token)
        if ADMIN not in (who.scopes or ()):
            raise Forbidden(f'Administration needs a key with the scope "{ADMIN}".', ADMIN)
        record = await self._control.tenant(who.tenant)
        if record is None or not record.is_served:
            raise Forbidden("This tenant is suspended; ask whoever operates this broker.")
        return who.subject, who.tenant

    async def _act(
        self, actor: str, own: TenantId | None, method: str, path: list[str], body: dict[str, Any]
    ) -> _Answer:
        match method, path:
            case "GET", ["tenants"] if own is None:
                return 200, {"tenants": [shown(one) for one in await self._control.tenants()]}
            case "GET", ["audit"] if own is None:
                return 200, {"acts": [dataclasses.asdict(act) for act in await self._control.audit()]}
            case _, ["tenants", name, *rest]:
                tenant = check_tenant(name)
                if own is not None and (tenant != own or rest[:1] != ["keys"]):
                    raise _nothing()
                if rest[:1] == ["keys"]:
                    return await self._key(actor, tenant, method, rest[1:], body)
                return await self._tenant(actor, tenant, method, rest, body)
            case _:
                raise _nothing()

    async def _tenant(
        self, actor: str, tenant: TenantId, method: str, rest: list[str], body: dict[str, Any]
    ) -> _Answer:
        control = self._control
        match method, rest:
            case "GET", []:
                record = await control.tenant(tenant)
                if record is None:
                    raise TenantNotFound(f"There is no tenant {tenant!a}.")
                return 200, shown(record)
            case "PUT", []:
                limits = Limits.read(_object(body.get("limits", {})))
                return 201, shown(await control.create(actor, tenant, limits))
            case "PATCH", ["limits"]:
                return 200, shown(await control.limit(actor, tenant, body))
            case "POST", ["suspend"]:
                await control.suspend(actor, tenant)
            case "POST", ["resume"]:
                await control.resume(actor, tenant)
            case "DELETE", []:
                await control.condemn(actor, tenant)
                self._spawn(self._erased_by(actor, tenant))
                return 202, {"tenant": tenant, "state": "deleting"}
            case _:
                raise _nothing()
        return 200, {"tenant": tenant}

    async def _erased_by(self, actor: str, tenant: TenantId) -> None:
        await self._erased(tenant)
        await self._control.bury(actor, tenant)

    async def _key(
        self, actor: str, tenant: TenantId, method: str, rest: list[str], body: dict[str, Any]
    ) -> _Answer:
        control = self._control
        match method, rest:
            case "GET", []:
                return 200, {"keys": [key.shown() for key in (await control.keys(tenant)).values()]}
            case "POST", []:
                name, scopes, life = body.get("name", ""), body.get("scopes"), body.get("expiresIn")
                if not isinstance(name, str) or not isinstance(scopes, list):
                    raise BadRequest('A key has a "name" and a list of "scopes".')
                end = None if life is None else int((time.time() + _seconds(life)) * 1000)
                wanted = cast("list[str]", scopes)
                return 201, _made(*await control.new_key(actor, tenant, name, wanted, end))
            case "POST", [name, "rotate"]:
                return 201, _made(
                    *await control.rotate(actor, tenant, name, _seconds(body.get("overlap", 0)))
                )
            case "DELETE", [name]:
                ended = await control.revoke(actor, tenant, name)
                return 200, {"revoked": [key.id for key in ended]}
            case _:
                raise _nothing()


def eraser(redis: Any, keys: Any) -> Callable[[TenantId], Awaitable[None]]:
    """Return a function that removes everything of a tenant, and logs how it goes."""

    async def erased(tenant: TenantId) -> None:
        progress = None
        async for progress in erase(redis, keys, tenant):
            if progress.steps % 1000 == 0:
                _log.info("tenant_erasing", extra={"removed": progress.removed, "steps": progress.steps})
        _log.info("tenant_erased", extra={"removed": progress.removed if progress else 0})

    return erased


def shown(tenant: Tenant) -> dict[str, Any]:
    """Return a tenant as its operator is shown it."""
    limits = tenant.limits.given()
    return {
        "tenant": tenant.id,
        "state": tenant.state,
        "created_ms": tenant.created_ms,
        "limits": limits,
    }


def _made(key: apikey.ApiKey, record: KeyRecord) -> dict[str, Any]:
    return {**record.shown(), "key": key.text}


def _nothing() -> TenantNotFound:
    return TenantNotFound("There is nothing at this address for this credential.")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest("Limits are an object: a name and a whole number each.")
    return cast("dict[str, Any]", value)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest("A time is a number of seconds.")
    return float(value)


async def _body(receive: Any) -> dict[str, Any]:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise BadRequest(f"The body has more than {MAX_BODY} bytes.")
        if not message.get("more_body"):
            return intake.document(bytes(body)) if body else {}
