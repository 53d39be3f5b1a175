"""The machine: its processes' CPU and memory from /proc, and what it is and runs."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

PROC = Path("/proc")
PACKAGES = ("mcp", "uvicorn", "uvloop", "httptools", "redis", "hiredis", "fastapi")


def tree(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended meanwhile
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found, todo = [pid], [pid]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def cpu_us(pids: Iterable[int]) -> float:
    """Return the CPU time of processes so far, all threads, by the scheduler's counters in ns."""
    total = 0
    for pid in pids:
        for task in (PROC / str(pid) / "task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:  # the thread has ended meanwhile
                continue
    return total / 1000


def memory_kb(pid: int) -> float:
    """Return a process' proportional set size: what it shares with others is divided among them."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1])
    raise AssertionError(f"process {pid} has no Pss")


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def _cpu_model() -> str:
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


def describe(redis: str, typescript: str) -> dict[str, object]:
    """Return the machine and the versions of all that is measured; `redis` is the server's binary."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "server": _first_line(redis, "--version"),
        "nginx": _first_line("nginx", "-v"),
        "nchan": _first_line("dpkg-query", "-W", "-f", "${Version}\n", "libnginx-mod-nchan"),
        "typescript_sdk": typescript,
        **{name: version(name) for name in PACKAGES},
    }
