"""What the client scripts read that only a worker can serve: a template, and completions of its variable."""

from workers import Worker

TENANT = "clients"
worker = Worker("clients", tenant=TENANT)


@worker.resource("test://template/{id}/data", mime_type="application/json")
def data(id: str) -> dict[str, str]:  # noqa: A002 - the template's own name for it
    """Data of one id."""
    return {"id": id, "data": f"Data for ID: {id}"}


@worker.complete("test://template/{id}/data", "id")
def complete_id(typed: str) -> list[str]:
    """Ids that begin as typed."""
    return [known for known in ("123", "124", "456") if known.startswith(typed)]
