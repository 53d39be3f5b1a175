"""Our `_meta` extension: revisions on the wire, which every client may ignore (design section 5).

    org.resource-broker/revision    in a read's result: the revision of what was read
    org.resource-broker/revisions   in an acknowledgement: the revision of each subscribed URI, by URI
    org.resource-broker/token       in an acknowledgement: all of these revisions in one opaque text
    org.resource-broker/known       in a listen's request: such a map, of what the client has seen
    org.resource-broker/token       in a listen's request: the token of an earlier acknowledgement

A client that listens again with the map of its last acknowledgement, brought up to date by its reads, is told
what changed in between; the modern era has no other catch-up. The token is for clients that keep no map: they
are told what changed since that acknowledgement, and of what it did not cover. Of both, the map counts.

A revision is the opaque text "epoch.n.mark", and "@list" stands for the list. What was never published has no
revision and is left out of a map. A token is a set of fingerprints, one for each URI at its revision, so it
covers any part of its filter, on every replica and whatever became of the log. It is neither signed nor
secret: who changes it deceives only himself (docs/adr/0002-catch-up-token.md).
"""

import base64
import binascii
import hashlib
from collections.abc import Container, Mapping
from typing import Any

from broker.core.identity import TenantId
from broker.core.revision import ABSENT, Stamp
from broker.wire import params
from broker.wire.operations import UNKNOWN_STAMP

REVISION = "org.resource-broker/revision"
REVISIONS = "org.resource-broker/revisions"
KNOWN = "org.resource-broker/known"
TOKEN = "org.resource-broker/token"  # noqa: S105 - the name of a member

FINGERPRINT_BYTES = 8
"""Of one URI at one revision: 64 bits, and a revision has no more than its n and 32 random ones itself."""


def revisions(stamps: Mapping[str, Stamp]) -> dict[str, str]:
    """Return the map of an acknowledgement, by URI."""
    return {uri: str(stamp) for uri, stamp in stamps.items() if stamp.revision != ABSENT}


def known(meta: Mapping[str, Any]) -> dict[str, Stamp] | None:
    """Read the map of a listen; None where it has none.

    A revision that we cannot read is unknown and not refused: during a rolling update it may come from a
    newer release, and its holder must only be told once too often.

    Raises:
        UnfitParams: the map is no object.
    """
    if KNOWN not in meta:
        return None
    return {uri: _stamp(text) for uri, text in params.members(meta, KNOWN).items()}


def _stamp(text: object) -> Stamp:
    try:
        return Stamp.parse(text) if isinstance(text, str) else UNKNOWN_STAMP
    except ValueError:
        return UNKNOWN_STAMP


def token(tenant: TenantId, stamps: Mapping[str, Stamp]) -> str:
    """Return the token of an acknowledgement, in the URL-safe Base64 alphabet without padding."""
    prints = sorted(fingerprint(tenant, uri, stamp) for uri, stamp in stamps.items())
    return base64.urlsafe_b64encode(b"".join(prints)).rstrip(b"=").decode("ascii")


def covered(meta: Mapping[str, Any]) -> Container[bytes] | None:
    """Read the token of a listen into its fingerprints; None where it has none.

    What is no token covers nothing, and is not refused, for the reason that `known` gives.
    """
    if TOKEN not in meta:
        return None
    text = meta[TOKEN]
    if not isinstance(text, str) or not text.isascii():
        return ()
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return ()
    return {raw[start : start + FINGERPRINT_BYTES] for start in range(0, len(raw), FINGERPRINT_BYTES)}


def fingerprint(tenant: TenantId, uri: str, stamp: Stamp) -> bytes:
    """Return what stands in a token for this URI (or list) at this revision. The epoch is no part of it.

    Revisions are compared as a whole and without their epoch (core/revision.py): one that survived an outage
    of Redis has not changed.
    """
    said = "\0".join((tenant, uri, str(stamp.revision)))
    return hashlib.blake2b(said.encode(), digest_size=FINGERPRINT_BYTES, person=b"catch-up").digest()
