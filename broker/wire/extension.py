"""Our `_meta` extension: revisions on the wire, which every client may ignore (design section 5).

    org.resource-broker/revision    in a read's result: the revision of what was read
    org.resource-broker/revisions   in an acknowledgement: the revision of each subscribed URI, by URI
    org.resource-broker/known       in a listen's request: such a map, of what the client has seen

A client that listens again with the map of its last acknowledgement, brought up to date by its reads, is told
what changed in between; the modern era has no other catch-up. A revision is the opaque text "epoch.n.mark",
and "@list" stands for the list. What was never published has no revision and is left out.
"""

from collections.abc import Mapping
from typing import Any

from broker.core.revision import ABSENT, Stamp
from broker.wire import params
from broker.wire.operations import UNKNOWN_STAMP

REVISION = "org.resource-broker/revision"
REVISIONS = "org.resource-broker/revisions"
KNOWN = "org.resource-broker/known"


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
