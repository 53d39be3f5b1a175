"""The servers of the two SDK pages about resources, written with our API."""

import base64
from pathlib import Path

from workers import Contents, Instance, Worker, safe_file

worker = Worker("workspace")

GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR4nGNgAAIAAAUAAXpeqz8AAAAASUVORK5CYII="

ROOTS: list[Path] = []
"""The folder of docs:// is put here."""
STATUS = ["idle"]


@worker.resource("config://app", title="Application Config", description="Application configuration data")
async def config() -> str:
    return "log_level=info\nregion=eu-west-1"


@worker.resource("readme://shop", mime_type="text/markdown")
def readme() -> str:
    """How to use this shop."""
    return "# Bookshop"


@worker.resource("stats://catalog", mime_type="application/json")
def catalog_stats() -> dict[str, int]:
    """Counts of the catalogue, as they are now."""
    return {"books": 1204, "authors": 391}


@worker.resource("covers://placeholder", mime_type="image/gif")
def placeholder_cover() -> bytes:
    """What is shown for a book without a cover."""
    return base64.b64decode(GIF)


@worker.resource("report://latest", title="Latest usage report", mime_type="text/markdown")
async def report() -> list[Contents]:
    return [
        Contents(text="Installs grew by 12 % this week.", mime_type="text/markdown"),
        Contents(blob=base64.b64decode(PNG), mime_type="image/png"),
    ]


@worker.resource("users://{user_id}/profile", title="User Profile", mime_type="application/json")
async def user_profile(user_id: str) -> dict[str, str]:
    """Profile data for one user."""
    return {"userId": user_id, "plan": "pro"}


async def teams() -> list[Instance]:
    return [
        Instance("teams://core/roster", name="Core team roster"),
        Instance("teams://growth/roster", name="Growth team roster"),
    ]


@worker.resource("teams://{team_id}/roster", list=teams)
def team_roster(team_id: str) -> str:
    """Members of one team."""
    return f"Members of team {team_id}"


@worker.resource("docs://{+file}", mime_type="text/markdown")
def doc(file: str) -> str:
    """A page of the documentation."""
    return safe_file(ROOTS[0], file).read_text()


@worker.resource("deploys://status")
async def deploy_status() -> str:
    """What the deployment is doing."""
    return STATUS[0]
