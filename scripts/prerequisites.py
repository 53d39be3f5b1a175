# ruff: noqa: INP001 # scripts are run by their paths
"""Says what `make test-full` needs beyond pip, before anything runs: a skipped test would hide it."""

import shutil
import sys
from pathlib import Path

PROGRAMS = {
    "redis-server": "redis-server",
    "curl": "curl",
    "haproxy": "haproxy",
    "nginx": "nginx-light",
}
"""Program → the Debian package that brings it."""

SERVERS = {"usr/lib/postgresql/*/bin/initdb": "postgresql"}
"""As above, for programs that Debian keeps out of the PATH."""


def main() -> int:
    """Return 1, and say the command that helps, if something is missing."""
    lacking = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    lacking |= {package for place, package in SERVERS.items() if not any(Path("/").glob(place))}
    missing = sorted(lacking)
    if not missing:
        return 0
    print(  # noqa: T201 # a script
        f"make test-full needs {', '.join(missing)}: apt-get update && apt-get install {' '.join(missing)}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
