"""A subscriber as an application would be: it reads what it was cued for, and comes back when it was cut.

It believes only cues. A handshake follower that was cut presents its Last-Event-ID and reads nothing by
itself; a modern one listens again and reads everything, since its era has no resumption; either starts anew
when its session is gone. So if `known` is not the truth once everything is quiet, a cue was lost.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tests.support.mcp import LIST_CHANGED, UPDATED, Handshake, Modern, RpcError, Stream
from tests.support.wait import StillNot

NOT_FOUND = (-32602, -32002)
Texts = dict[str, str | None]
_LOST = (httpx.TransportError, RpcError, StillNot)
"""What a client may meet while replicas and Redis come and go."""


class Follower:
    """One subscriber of some URIs of one tenant, in either era.

    `urls` gives the endpoints to choose from at this moment: each request goes to a random one.
    """

    def __init__(
        self,
        era: type[Handshake] | type[Modern],
        urls: Callable[[], Sequence[str]],
        tenant: str,
        uris: Sequence[str],
        *,
        http: httpx.AsyncClient,
        rng: random.Random,
    ) -> None:
        self.tenant = tenant
        self.uris = list(uris)
        self.known: Texts = {}
        """What it read last, by URI; None is "not found"."""
        self.cues: dict[str, int] = dict.fromkeys(uris, 0)
        self.list_changes = 0
        self.reads = 0
        self.starts = 0
        """How often it had to start anew (modern: listen; handshake: initialize)."""
        self.resumes = 0
        self.repeats = 0
        """Cues whose read showed what it knew already."""
        self.told_at: dict[str, float | None] = {}
        """When the cue came that led to what it knows, by URI; None if it read by itself. (time.monotonic)"""
        self.lessons = dict.fromkeys(uris, 0)
        """How often a read showed something new, by URI."""
        self.stands_since = 0.0
        """When its stream began that is open now."""
        self.strays: list[Any] = []
        """Cues for what it never subscribed to."""
        self.failures: list[str] = []
        """Requests that failed; what ends a stream is none."""
        self.is_subscribed = asyncio.Event()
        self.era = era
        self._urls = urls
        self._http = http
        self._rng = rng
        self._dirty: set[str] = set()
        self._cued_at: dict[str, float] = {}
        self._reading: str | None = None
        self._has_dirt = asyncio.Event()
        self._client: Handshake | Modern | None = None
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._read())]

    def __repr__(self) -> str:
        era = self.era.__name__
        return f"<Follower {era} {self.tenant} {self.known} starts={self.starts} resumes={self.resumes}>"

    @property
    def is_idle(self) -> bool:
        """Whether it has read everything that it was cued for."""
        return not self._dirty and self._reading is None and self.is_subscribed.is_set()

    def check(self) -> None:
        """Fail if a task died, which a wrong byte makes it do, or a stray cue came."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        assert self.strays == [], f"{self!r} was told {self.strays}"

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _url(self) -> str:
        return self._rng.choice(list(self._urls()))

    def _owe(self, *uris: str, cued_at: float | None = None) -> None:
        self._dirty.update(uris)
        if cued_at is not None:
            self._cued_at |= dict.fromkeys(uris, cued_at)
        if self._dirty:
            self._has_dirt.set()

    # -- the stream

    async def _follow(self) -> None:
        while True:
            try:
                if self.era is Modern:
                    await self._listen()
                else:
                    await self._hold_session()
            except _LOST as error:
                await self._failed(error)
            finally:
                self.is_subscribed.clear()

    async def _failed(self, error: Exception) -> None:
        """Note a request that failed, and wait before the next."""
        self.failures.append(repr(error))
        await asyncio.sleep(self._rng.uniform(0.02, 0.2))

    async def _listen(self) -> None:
        client = Modern(self._url(), self.tenant, self._http)
        self._client = client
        listening = await client.listen(self.uris, wants_list=True)
        self.starts += 1
        self._owe(*self.uris)
        await self._consume(listening.stream)
        listening.check()
        await client.close()

    async def _hold_session(self) -> None:
        """Start a session and keep it until it is gone."""
        client = Handshake(self._url(), self.tenant, self._http)
        self._client = client
        await client.initialize()
        self.starts += 1
        for uri in self.uris:
            await self._until_subscribed(client, uri)
        self._owe(*self.uris)
        last: str | None = None
        while True:
            client.url = self._url()
            try:
                stream = await client.get_stream(last)
            except RpcError as error:
                if error.status == 404:
                    return
                await self._failed(error)
            except httpx.TransportError as error:
                await self._failed(error)
            else:
                self.resumes += last is not None
                await self._consume(stream)
                last = stream.last_id or last
                client.streams.remove(stream)

    async def _until_subscribed(self, client: Handshake, uri: str) -> None:
        while True:
            client.url = self._url()
            try:
                await client.subscribe(uri)
            except RpcError as error:
                if error.status == 404:
                    raise
                await self._failed(error)
            except httpx.TransportError as error:
                await self._failed(error)
            else:
                return

    async def _consume(self, stream: Stream) -> None:
        """Take what comes until the stream ends."""
        self.is_subscribed.set()
        self.stands_since = time.monotonic()
        seen = 0
        while True:
            stream.news.clear()
            stream.check()
            for frame in stream.frames[seen:]:
                if frame.method == UPDATED:
                    self._cued(frame.params["uri"])
                elif frame.method == LIST_CHANGED:
                    self.list_changes += 1
            seen = len(stream.frames)
            if stream.ended is not None:
                self.is_subscribed.clear()
                await stream.close()
                return
            await stream.news.wait()

    def _cued(self, uri: str) -> None:
        if uri in self.cues:
            self.cues[uri] += 1
            self._owe(uri, cued_at=time.monotonic())
        else:
            self.strays.append(uri)

    # -- reading

    async def _read(self) -> None:
        """Read whatever is dirty, from any replica, until it is clean."""
        while True:
            await self._has_dirt.wait()
            self._has_dirt.clear()
            while self._dirty:
                uri = self._reading = self._dirty.pop()
                cued_at = self._cued_at.pop(uri, None)
                try:
                    self._learn(uri, await self._text(uri), cued_at)
                except (RpcError, httpx.TransportError) as error:
                    self._owe(uri, cued_at=None if uri in self._cued_at else cued_at)
                    await self._failed(error)
            self._reading = None

    def _learn(self, uri: str, text: str | None, cued_at: float | None) -> None:
        self.reads += 1
        if uri in self.known and self.known[uri] == text:
            self.repeats += cued_at is not None
            return
        self.known[uri] = text
        self.told_at[uri] = cued_at
        self.lessons[uri] += 1

    async def _text(self, uri: str) -> str | None:
        """Read as the era does; a handshake client's read is in its session, and proves what it saw."""
        client = self._client
        if isinstance(client, Handshake) and client.session:
            reader = Handshake(self._url(), self.tenant, self._http)
            reader.session = client.session
        else:
            reader = Modern(self._url(), self.tenant, self._http)
        try:
            return str((await reader.read(uri))[0]["text"])
        except RpcError as error:
            if error.code in NOT_FOUND and error.status != 404:
                return None
            raise


async def close_all(followers: Sequence[Follower]) -> None:
    """Close followers side by side, then check each."""
    await asyncio.gather(*(follower.close() for follower in followers))
    for follower in followers:
        with contextlib.suppress(asyncio.CancelledError):
            follower.check()
