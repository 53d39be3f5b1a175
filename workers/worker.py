"""`Worker`: resources as functions, which run in this process when a client somewhere reads them.

    worker = Worker("bookshop")

    @worker.resource("users://{user_id}/profile")
    def get_user_profile(user_id: str) -> str:
        return f"User {user_id}: 12 orders since 2021."

This module knows neither Redis nor brokers: serving.py carries calls here and results back, testing.py calls
directly, and `follow` leaves everything to a publisher. Rules:

1. Declaring checks everything and raises there; `call` never raises, whatever the function does.
2. What a client may learn of a failure is its id. The traceback goes to the log, under that id.
3. A function says "unknown" with NotFound and "your request is wrong" with BadRequest; only that very class,
   since its subclasses come from libraries used inside, and their sentences are not for clients.
4. Declarations may change at any time, from any thread; whoever asked with `on_change` hears of it.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from broker.core.declaration import CallRequest, CallResult, Declaration, Failure, Values
from broker.core.errors import BadRequest, InvalidDeclaration, NotFound
from broker.core.identity import TenantId, check_tenant
from broker.core.publication import MAX_CONTENT_BYTES, CacheScope
from broker.core.uri_template import UriTemplate, find
from broker.store.registry import check_group
from workers.context import Context
from workers.execution import Execution
from workers.following import Change, Relist
from workers.publisher import Publisher
from workers.resources import About, Callback, Resource, Terms, completion
from workers.settings import Settings
from workers.signature import Function

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Function)

_FAR = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""The deadline of what nobody waits for."""

THREADS = 32
"""How many sync functions run at a time, by default."""


class Worker:
    """A group of processes that serve the same resources; `name` is the group's.

    `tenant` (or several `tenants`) is by default BROKER_TENANT, else "default". `safe=False` switches path
    safety off for all its templates.
    """

    def __init__(
        self,
        name: str,
        *,
        tenant: str | None = None,
        tenants: Iterable[str] | None = None,
        safe: bool = True,
        threads: int = THREADS,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        if tenant is not None and tenants is not None:
            raise InvalidDeclaration("A worker serves one tenant or several tenants; give one of the two.")
        self.name = check_group(name)
        several = [tenant or Settings().tenant] if tenants is None else tenants
        self.tenants: tuple[TenantId, ...] = tuple(dict.fromkeys(check_tenant(each) for each in several))
        if not self.tenants:
            raise InvalidDeclaration(
                "A worker serves at least one tenant; leave tenants out for the default."
            )
        self._safe = safe
        self._max_content_bytes = max_content_bytes
        self._resources: dict[str, Resource] = {}
        self._execution = Execution(threads, name)
        self._renewals: Counter[str] = Counter()
        self._callbacks: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        return f"<Worker {self.name!a} {len(self._resources)} resources>"

    # --- Declaring

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = "text/plain",
        annotations: Any = None,
        icons: Any = None,
        size: int | None = None,
        ttl: timedelta | float | None = None,
        cache_scope: CacheScope | None = None,
        scopes: Iterable[str] = (),
        subjects: Iterable[str] | None = None,
        personal: bool | None = None,
        list: Function | None = None,  # noqa: A002 # what the SDKs' users call it
        safe: bool | None = None,
        exempt: Collection[str] = (),
        replace: bool = False,
    ) -> Callable[[F], F]:
        """Serve the decorated function as `uri`, which is a template if it has a {placeholder}.

        `mime_type` is never guessed; with None, JSON is application/json and all else has no type. `ttl` (a
        timedelta or seconds) is for how long a result may be shared and cached. `scopes` are required of the
        caller; with `subjects` it must be one of them (an empty list is nobody). A function that takes a
        `Context` is `personal`: its results are not shared between callers.
        `list` returns the template's instances. `exempt` names the variables that may hold anything, not
        only safe relative paths. `replace` allows `uri` to be declared already.

        Raises:
            BadRequest: something of it cannot be; the sentence says what to change.
        """
        about = About(
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            annotations=annotations,
            icons=icons,
            size=size,
        )
        is_safe = self._safe if safe is None else safe
        terms = Terms(ttl, cache_scope, scopes, subjects, personal, is_safe, frozenset(exempt))

        def declare(function: F) -> F:
            if uri in self._resources and not replace:
                raise InvalidDeclaration(
                    f"{uri!a} is declared already; remove it first, or declare it with replace=True."
                )
            self._resources[uri] = Resource.of(uri, function, about, terms, list)
            self._renewals[uri] += 1
            self._changed()
            return function

        return declare

    def complete(self, template: str, variable: str) -> Callable[[F], F]:
        """Let the decorated function complete `variable` of `template`.

        It is called with what was typed and, if it takes a second parameter, a mapping of the other
        variables' values; it returns texts, or a `Completion`.

        Raises:
            InvalidDeclaration: there is no such template or variable, or the function takes something else.
        """
        resource = self._declared(template)
        if resource.template is None or variable not in {v.name for v in resource.template.variables}:
            raise InvalidDeclaration(f"{template!a} has no variable {variable!a} to complete.")

        def declare(function: F) -> F:
            what = "the typed text and the other variables' values"
            resource.completers[variable] = Callback.of(function, what, 2, 1)
            try:
                resource.settle()
            except InvalidDeclaration:
                del resource.completers[variable]
                raise
            self._changed()
            return function

        return declare

    def on_watched(self, uri: str) -> Callable[[F], F]:
        """Call the decorated function with a URI when its first watcher anywhere has come.

        `uri` is a declared resource or template. In the whole group one process is called. It is called at
        least once, and `on_unwatched` some time after the last watcher has left.

        Raises:
            InvalidDeclaration: `uri` is not declared, or the function takes something else.
        """
        return self._demand(uri, is_watched=True)

    def on_unwatched(self, uri: str) -> Callable[[F], F]:
        """Call the decorated function with a URI some time after its last watcher has left.

        Raises:
            InvalidDeclaration: as `on_watched`.
        """
        return self._demand(uri, is_watched=False)

    def _demand(self, uri: str, *, is_watched: bool) -> Callable[[F], F]:
        resource = self._declared(uri)

        def declare(function: F) -> F:
            resource.watchers[is_watched] = Callback.of(function, "a URI", 1)
            resource.settle()
            self._changed()
            return function

        return declare

    # --- Changing

    def enable(self, uri: str) -> None:
        """Serve and list `uri` again, also where another process of the group has disabled or removed it.

        Raises:
            InvalidDeclaration: it is not declared.
        """
        self._switch(uri, is_enabled=True)

    def disable(self, uri: str) -> None:
        """Neither serve nor list `uri` until it is enabled, in the whole group.

        A process of the group that starts later and declares it brings it back.

        Raises:
            InvalidDeclaration: it is not declared.
        """
        self._switch(uri, is_enabled=False)

    def _switch(self, uri: str, *, is_enabled: bool) -> None:
        resource = self._declared(uri)
        if is_enabled:
            self._renewals[uri] += 1
        elif not resource.is_enabled:
            return
        resource.is_enabled = is_enabled
        self._changed()

    def remove(self, uri: str) -> None:
        """Forget `uri` and its callbacks; for the group it is withdrawn as by `disable`.

        Raises:
            InvalidDeclaration: it is not declared.
        """
        self._declared(uri)
        del self._resources[uri]
        self._changed()

    def renewals(self, uri: str) -> int:
        """Return how often `uri` was declared or enabled: each time it is meant, whatever was before."""
        return self._renewals[uri]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever `declarations` may have changed, in the thread that changed it.

        Returns a function that ends this.
        """
        self._callbacks[callback] = None
        return lambda: self._callbacks.pop(callback, None)

    def _changed(self) -> None:
        for callback in [*self._callbacks]:
            callback()

    def _declared(self, uri: str) -> Resource:
        resource = self._resources.get(uri)
        if resource is None:
            raise InvalidDeclaration(f"This worker declares nothing as {uri!a}; declare the resource first.")
        return resource

    # --- Answering

    def declarations(self) -> list[Declaration]:
        """Return what is served now, in the order of declaring."""
        return [each.declaration for each in [*self._resources.values()] if each.is_enabled]

    def route(self, uri: str) -> str | None:
        """Return which declaration of this worker answers a read of `uri`, by the brokers' own rule."""
        enabled = {each.uri: each.template for each in [*self._resources.values()] if each.is_enabled}
        if enabled.get(uri, UriTemplate) is None:
            return uri
        templates = sorted((each for each in enabled.values() if each), key=lambda each: each.specificity)
        found = find(templates, uri)
        return None if found is None else found.text

    def is_crowded(self, request: CallRequest) -> bool:
        """Whether the function that answers would have to wait for a thread."""
        resource = self._resources.get(request.declared)
        if resource is None:
            return False
        if request.kind == "read":
            return self._execution.is_crowded(resource.function)
        asked = resource.lister if request.kind == "list" else resource.completers.get(request.argument)
        return asked is not None and self._execution.is_crowded(asked.function)

    async def call(self, request: CallRequest) -> CallResult:
        """Return what the declared function answers; every failure is a `Failure`, nothing is raised.

        Cancelling the task that awaits this cancels the function.
        """
        call_id = request.id or secrets.token_hex(6)
        context = Context(request, call_id, log)
        seconds = request.deadline - time.time()
        try:
            if seconds <= 0:
                return Failure("internal", "The call reached its worker after its deadline.", call_id)
            async with asyncio.timeout(seconds):
                try:
                    return await self._answer(request, context)
                except TimeoutError as error:
                    # The function's own, unless the limit has passed: then the block raises it once more.
                    return self._failed(error, request, call_id)
        except TimeoutError:
            log.warning("call_out_of_time", extra=_fields(request, call_id))
            return Failure("internal", f"The worker did not answer in time (call {call_id}).", call_id)
        except Exception as error:
            if type(error) is BadRequest:
                return Failure("invalid", _said(error), call_id)
            if isinstance(error, NotFound):
                return Failure("not_found", _said(error), call_id)
            return self._failed(error, request, call_id)
        finally:
            context.cancel()

    async def _answer(self, request: CallRequest, context: Context) -> CallResult:
        resource = self._resources.get(request.declared)
        if resource is None or not resource.is_enabled:
            raise NotFound(f"This worker does not serve {request.declared!a}.")
        run = self._execution.run
        if request.kind == "read":
            given = resource.binding.signature.given(resource.arguments(request.uri), context)
            limit = self._max_content_bytes
            return await run(
                resource.function, given, lambda result: resource.contents(request.uri, result, limit)
            )
        if request.kind == "list":
            if resource.lister is None:
                raise NotFound(f"{request.declared!a} has no list of instances.")
            return await run(resource.lister.function, resource.lister.given((), context), resource.instances)
        completer = resource.completers.get(request.argument)
        if completer is None:
            return Values(())
        given = completer.given((request.value, dict(request.arguments)), context)
        return await run(completer.function, given, completion)

    def _failed(self, error: BaseException, request: CallRequest, call_id: str) -> Failure:
        log.error("call_failed", exc_info=error, extra=_fields(request, call_id))
        return Failure("internal", f"The worker failed; its log says why under {call_id}.", call_id)

    async def watched(self, declared: str, uri: str, tenant: str) -> None:
        """Tell the functions of `on_watched` that `uri` has a watcher; never raises."""
        await self._tell(declared, uri, tenant, is_watched=True)

    async def unwatched(self, declared: str, uri: str, tenant: str) -> None:
        """Tell the functions of `on_unwatched` that `uri` has no watcher any more; never raises."""
        await self._tell(declared, uri, tenant, is_watched=False)

    async def _tell(self, declared: str, uri: str, tenant: str, *, is_watched: bool) -> None:
        resource = self._resources.get(declared)
        callback = resource.watchers.get(is_watched) if resource else None
        if callback is None:
            return
        request = CallRequest("read", declared, uri, tenant, "", None, _FAR)
        call_id = secrets.token_hex(6)
        context = Context(request, call_id, log)
        try:
            await self._execution.run(callback.function, callback.given((uri,), context), lambda _: None)
        except Exception:
            log.exception("demand_callback_failed", extra=_fields(request, call_id))
        finally:
            # A sync function that polls in its thread learns only from this that it may end.
            context.cancel()

    # --- Following

    async def follow(
        self,
        group: str | None = None,
        *,
        tenant: str | None = None,
        url: str | None = None,
        prefix: str | None = None,
        contents: bool = True,
    ) -> AsyncGenerator[Change | Relist]:
        """Yield the changes of this worker's tenant for ever, as `Publisher.changes` does.

        `group` is by default the worker's name; `tenant` is needed of a worker of several.

        Raises:
            InvalidDeclaration: the worker does not serve that tenant, or has several and none was given.
            Misconfigured: there is no Redis, or a group that cannot be one.
        """
        has_several = len(self.tenants) > 1
        if tenant is None and has_several:
            raise InvalidDeclaration(f"{self!r} serves several tenants; say which to follow with tenant=….")
        followed = self.tenants[0] if tenant is None else tenant
        if followed not in self.tenants:
            raise InvalidDeclaration(f"{self!r} does not serve the tenant {followed!a}.")
        async with Publisher(url, tenant=followed, prefix=prefix) as publisher:
            changes = publisher.changes(group or self.name, contents=contents)
            async with contextlib.aclosing(changes):
                async for change in changes:
                    yield change

    def close(self) -> None:
        """Let the threads of sync functions end, each when its function has returned."""
        self._execution.close()


def _fields(request: CallRequest, call_id: str) -> dict[str, Any]:
    return {"call": call_id, "kind": request.kind, "uri": request.uri, "tenant": request.tenant}


def _said(error: Exception) -> str:
    """Return the error's own sentence; an author's subclass may fail to have one."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        log.exception("error_without_a_sentence")
        return ""
