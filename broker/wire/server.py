"""What this server says of itself: its name, and which capabilities it offers. Depends on settings only.

Neither Redis nor a worker is asked: `server/discover` and `initialize` must answer whatever is down, or
clients fall back to another era or give up (design section 5).
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "mcp-resource-broker"


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from its sources, not installed
        return "0"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The `Implementation` object of an MCP server."""

    name: str = DISTRIBUTION
    version: str = _version()
    title: str | None = None

    def members(self) -> dict[str, object]:
        """Return it as JSON members; a title that is not set is left out."""
        members: dict[str, object] = {"name": self.name, "version": self.version}
        if self.title is not None:
            members["title"] = self.title
        return members


@dataclass(frozen=True, slots=True)
class Offers:
    """What is offered beside resources. What is not offered answers "method not found".

    Empty lists of tools and prompts are on by default: three agent frameworks fail on a server that refuses
    to list tools.
    """

    has_empty_tools: bool = True
    has_empty_prompts: bool = True
    has_logging: bool = True
    """Only the handshake era has `logging/setLevel`."""
    has_completions: bool = True

    def capabilities(self) -> dict[str, object]:
        """The `ServerCapabilities` that both eras share."""
        capabilities: dict[str, object] = {"resources": {"subscribe": True, "listChanged": True}}
        if self.has_completions:
            capabilities["completions"] = {}
        if self.has_empty_tools:
            capabilities["tools"] = {}
        if self.has_empty_prompts:
            capabilities["prompts"] = {}
        return capabilities


BROKER = ServerInfo()
EVERYTHING = Offers()
