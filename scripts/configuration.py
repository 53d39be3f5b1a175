# ruff: noqa: INP001 # scripts are run by their paths
"""Writes docs/configuration.md, and the README's excerpt, from the settings; `--check` only compares."""

import sys
from pathlib import Path

from broker import settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
README = ROOT / "README.md"

BEGIN = "<!-- configuration -->"
END = "<!-- /configuration -->"

FIRST = frozenset(
    {
        "BROKER_REDIS_URL",
        "BROKER_PREFIX",
        "BROKER_HOST",
        "BROKER_PORT",
        "BROKER_INTERNAL_PORT",
        "BROKER_AUTH__TENANT",
        "BROKER_HTTP__ALLOWED_HOSTS",
        "BROKER_HTTP__ALLOWED_ORIGINS",
        "BROKER_DRAIN_SECONDS",
        "BROKER_LOG__FORMAT",
    }
)
"""What the README shows."""

HEAD = """# Configuration

Made from `broker/settings/` by `make docs`; edit there. Every setting is a variable of the environment, and
a flag of `broker serve` that overrules it: `BROKER_HTTP__RETRY_MS` is `--http-retry-ms`. Lists are written
with commas. BROKER_ADMIN__TOKEN and BROKER_OAUTH__ISSUERS hold secrets and have no flag. A value that will
not do ends the broker with a sentence that names it.

"""

TABLE = """| variable | default | unit | what it is |
|---|---|---|---|
"""


def rows(only: frozenset[str] | None = None) -> str:
    """Return the table's lines, of all settings or of some."""
    lines: list[str] = []
    for variable, _, field in settings.variables():
        if only is None or variable in only:
            default, unit = _code(settings.shown_default(field)), settings.unit(field)
            lines.append(f"| `{variable}` | {default} | {unit} | {field.description} |\n")
    return "".join(lines)


def pages() -> dict[Path, str]:
    """Return what each generated file holds."""
    readme = README.read_text()
    before, rest = readme.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return {
        PAGE: HEAD + TABLE + rows(),
        README: f"{before}{BEGIN}\n\n{TABLE}{rows(FIRST)}\n{END}{after}",
    }


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main() -> int:
    """Write the pages, or compare them."""
    is_check = "--check" in sys.argv[1:]
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if is_check:
            print(f"{path.name} is not what broker/settings/ says: run make docs.", file=sys.stderr)  # noqa: T201 # a script
        else:
            path.write_text(pages()[path])
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
