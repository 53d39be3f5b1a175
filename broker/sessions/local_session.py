"""What this replica knows of one session that has a GET stream here. State only; ownership.py decides."""

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from broker.core.identity import Principal, SessionId

if TYPE_CHECKING:
    from broker.core.log import SessionEvent
    from broker.core.revision import Revision
    from broker.streams.connection import Connection

W = TypeVar("W")


class LocalSession(Generic[W]):
    """A session that has at least one GET stream on this replica."""

    def __init__(self, principal: Principal, session: SessionId) -> None:
        self.principal = principal
        self.id = session
        self.version = ""
        """The negotiated protocol version, once taken."""
        self.streams: list[Connection[W]] = []
        """Oldest first; the last one is the newest."""
        self.delivering: Connection[W] | None = None
        self.fence = 0
        self.counter = 0
        self.baselines: dict[str, Revision] = {}
        """The subscriptions as we know them: URI (or list) → baseline."""
        self.owner: str | None = None
        """The replica that delivers, as far as the log told; None if it did not."""
        self.waiting: list[SessionEvent] | None = None
        """Events that came while a take is under way (rule 2)."""
        self.is_unsure = False
        """A take was sent and its outcome is not known: Redis may take us for the deliverer, or soon."""
        self.renew_at = 0.0
        self.turn = asyncio.Lock()
        """One take at a time."""

    def __repr__(self) -> str:
        return f"<LocalSession {self.id[:6]}… {len(self.streams)} streams fence={self.fence}>"
