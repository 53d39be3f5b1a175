"""SSE event ids of the handshake era: (session tag, epoch, low-water n), design section 3.

An id proves that everything at or below n was written on a stream of this session. Without this session's
tag it proves nothing: it may be another session's, another server's or made up. So reading one never fails;
it answers "no proof", and the stream opens all the same (design section 5, decision 6).
"""

import hashlib
import re

from broker.core.identity import SessionId

MAX_LENGTH = 128
"""Characters of an id that we look at."""

_ID = re.compile(r"([A-Za-z0-9_\-]{16})\.([A-Za-z0-9_\-]{1,64})\.(0|[1-9][0-9]{0,18})")


def tag(session: SessionId) -> str:
    """The session's mark in its event ids: 64 bits of a hash, the same on every replica.

    It cannot be turned back into the session id, which is as good as a credential and must not show in
    streams, logs or clients' files.
    """
    return hashlib.blake2b(session.encode(), digest_size=8, person=b"event id").hexdigest()


def format(tag: str, epoch: str, n: int) -> str:  # noqa: A001 - eventid.format is what it does
    """Write an event id. `epoch` and `n` are those of the log."""
    return f"{tag}.{epoch}.{n}"


def parse(text: str, tag: str) -> tuple[str, int] | None:
    """Return (epoch, n) of an id that this session was given, or None for anything else."""
    if len(text) > MAX_LENGTH:
        return None
    found = _ID.fullmatch(text)
    if found is None or found[1] != tag:
        return None
    return found[2], int(found[3])
