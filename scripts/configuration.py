# ruff: noqa: INP001 # scripts are run by their paths
"""Writes docs/configuration.md from the settings; `--check` only says whether it is current."""

import sys
from pathlib import Path

from broker import settings

PATH = Path(__file__).parents[1] / "docs" / "configuration.md"

HEAD = """# Configuration

Made from `broker/settings.py` by `make docs`; edit there. Every setting is a variable of the environment, and
a flag of `broker serve` that overrules it: `BROKER_HTTP__RETRY_MS` is `--http-retry-ms`. Lists are written
with commas. A value that will not do ends the broker with a sentence that names it.

| variable | default | unit | what it is |
|---|---|---|---|
"""


def table() -> str:
    """Return the whole page."""
    rows: list[str] = []
    for variable, _, field in settings.variables():
        default, unit = _code(settings.shown_default(field)), settings.unit(field)
        rows.append(f"| `{variable}` | {default} | {unit} | {field.description} |\n")
    return HEAD + "".join(rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PATH.write_text(table())
        return 0
    if PATH.exists() and PATH.read_text() == table():
        return 0
    print(f"{PATH.name} is not what broker/settings.py says: run make docs.", file=sys.stderr)  # noqa: T201 # a script
    return 1


if __name__ == "__main__":
    sys.exit(main())
