"""What a client may ask, the same for both eras. Values only; how they are written is the dialects'.

URIs are exactly the client's bytes (design section 5, decision 7). Those of `Subscribe`, `Unsubscribe` and
`Listen` passed `core.identity.check_uri`, and so did that of `Read`: what cannot name a resource cannot be
found, and is refused as not found by the dialect.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

from broker.core.revision import Stamp

Listing = Literal["resources", "resourceTemplates", "tools", "prompts"]
"""What can be listed, by the name of the member that holds it in the result."""


@dataclass(frozen=True, slots=True)
class Discover:
    """server/discover: the modern era's versions and capabilities."""


@dataclass(frozen=True, slots=True)
class Initialize:
    """initialize: begin a session. `version` is what the client asked for, known or not."""

    version: str


@dataclass(frozen=True, slots=True)
class Ping:
    """ping: answered with an empty result."""


@dataclass(frozen=True, slots=True)
class SetLevel:
    """logging/setLevel: accepted; nothing is ever logged to clients."""

    level: str


@dataclass(frozen=True, slots=True)
class ListResources:
    """resources/list. `cursor` is what a page of ours named, still unchecked; None is the first page."""

    cursor: str | None


@dataclass(frozen=True, slots=True)
class ListTemplates:
    """resources/templates/list."""

    cursor: str | None


@dataclass(frozen=True, slots=True)
class ListTools:
    """tools/list: always empty."""


@dataclass(frozen=True, slots=True)
class ListPrompts:
    """prompts/list: always empty."""


@dataclass(frozen=True, slots=True)
class Read:
    """resources/read."""

    uri: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """resources/subscribe of a session."""

    uri: str


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """resources/unsubscribe of a session."""

    uri: str


@dataclass(frozen=True, slots=True)
class Listen:
    """subscriptions/listen. `uris` come each once, in the client's order.

    `known` is the catch-up extension: the revisions that the client has seen, by URI (and `LIST` for the
    list); None where it did not say. With it, a URI that is not in it had never been published when the
    client looked (`ABSENT`), and a revision that we cannot read is `UNKNOWN_STAMP`. `covered` is the same in
    another form: the fingerprints of an earlier acknowledgement's token (extension.py).
    """

    uris: tuple[str, ...]
    wants_list: bool
    known: Mapping[str, Stamp] | None = None
    covered: Container[bytes] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the filter can be honoured: acknowledged, then ended (decision 8)."""
        return not self.uris and not self.wants_list


UNKNOWN_STAMP = Stamp("", -1, "")
"""Equals no revision, so its holder is told once: unknown counts as different."""


@dataclass(frozen=True, slots=True)
class Complete:
    """completion/complete. `ref` is a template's URI or a prompt's name, by `ref_type`."""

    ref_type: Literal["ref/resource", "ref/prompt"]
    ref: str
    argument: str
    value: str
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """A notification or a posted response: nothing to do; 202 and no body."""


Operation = (
    Discover
    | Initialize
    | Ping
    | SetLevel
    | ListResources
    | ListTemplates
    | ListTools
    | ListPrompts
    | Read
    | Subscribe
    | Unsubscribe
    | Listen
    | Complete
    | Acknowledge
)
