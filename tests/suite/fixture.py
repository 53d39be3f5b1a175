"""What the suite expects a server to have, as any worker would serve it."""

import base64

from workers import Worker

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

worker = Worker("suite", tenant="default")


@worker.resource("test://static-text", name="static-text")
def text() -> str:
    """Text that never changes."""
    return "This is the content of the static text resource."


@worker.resource("test://static-binary", name="static-binary", mime_type="image/png")
def binary() -> bytes:
    """One red pixel."""
    return PIXEL


@worker.resource("test://template/{id}/data", mime_type="application/json")
def data(id: str) -> dict[str, object]:  # noqa: A002 - the suite's own name for it
    """Data of one id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@worker.complete("test://template/{id}/data", "id")
def complete_id(typed: str) -> list[str]:
    """Ids that begin as typed."""
    return [known for known in ("123", "124", "456") if known.startswith(typed)]
