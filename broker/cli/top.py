"""`broker top`: what a fleet does now, from the metrics of its replicas, once every few seconds.

Every address behind --host is asked, so the name of a headless Service shows all replicas. Rates are those of
the time between two looks. Tenants are shown where BROKER_METRICS__TENANTS names them.
"""

import argparse
import http.client
import re
import shutil
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from broker.cli import flag
from broker.core.errors import Unavailable
from broker.settings import Settings

FLAGS = frozenset({"BROKER_INTERNAL_PORT"})
_LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_CLEAR = "\x1b[2J\x1b[H"
LOUDEST = 10
HEADS = ("replica", "ready", "streams", "watched", "cues/s", "changes/s", "refused/s", "lag", "p99 cue", "MB")

Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""A replica's metrics: (name, sorted labels) → value."""


def add(commands: Any) -> None:
    """Add the command to the parser's `commands`."""
    parser = commands.add_parser("top", help="show replicas, streams, rates, lag and the loudest tenants")
    parser.add_argument(
        "--host", default="127.0.0.1", help="the name whose every address is asked (default: this machine)"
    )
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="how often (default: 2)")
    parser.add_argument("--times", type=int, default=0, help="how many times; 0 is until interrupted")
    flag.add(parser, only=FLAGS)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show until interrupted, or as many times as asked.

    Raises:
        Unavailable: no replica answers.
    """
    before: dict[str, Page] = {}
    shown = 0
    looked = time.monotonic()
    while True:
        pages = fetch(arguments.host, settings.internal_port)
        now = time.monotonic()
        text = "\n".join(table(pages, before, max(now - looked, 0.001)))
        is_screen = sys.stdout.isatty()
        print(f"{_CLEAR if is_screen else ''}{text}", flush=True)  # noqa: T201 # the command's answer
        shown += 1
        if shown == arguments.times:
            return 0
        before, looked = pages, now
        time.sleep(arguments.every)


def fetch(host: str, port: int) -> dict[str, Page]:
    """Return the metrics of every replica behind `host`, by its address.

    Raises:
        Unavailable: none answers.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unavailable(f"{host} has no address ({error.strerror}); say where with --host.") from None
    pages: dict[str, Page] = {}
    for address in sorted({str(each[4][0]) for each in found}):
        connection = http.client.HTTPConnection(address, port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            pages[address] = parse(connection.getresponse().read().decode())
        except (OSError, http.client.HTTPException):
            # One that is just leaving; the others are worth showing.
            continue
        finally:
            connection.close()
    if not pages:
        raise Unavailable(f"No broker answers on the internal port {port} of {host}.")
    return pages


def parse(page: str) -> Page:
    """Return a page of metrics in the text format by name and labels."""
    found: Page = {}
    for line in page.splitlines():
        match = _LINE.match(line)
        if match is not None:
            labels = tuple(sorted(_LABEL.findall(match[2] or "")))
            found[match[1], labels] = float(match[3])
    return found


def table(pages: Mapping[str, Page], before: Mapping[str, Page], seconds: float) -> Iterator[str]:
    """Yield the lines to show: the fleet, each replica, the loudest tenants."""
    rows: list[tuple[str, ...]] = [HEADS]
    for address, page in pages.items():
        old = before.get(address, {})
        rows.append(
            (
                address,
                "yes" if _sum(page, "broker_ready") else "no",
                f"{_sum(page, 'broker_streams_open'):.0f}",
                f"{_sum(page, 'broker_resources_watched'):.0f}",
                _rate(page, old, "broker_cues_written_total", seconds),
                _rate(page, old, "broker_entries_applied_total", seconds),
                _rate(page, old, "broker_requests_refused_total", seconds),
                f"{_sum(page, 'broker_log_lag_entries'):.0f}",
                _p99(page, old),
                f"{_sum(page, 'process_resident_memory_bytes') / 1e6:.0f}",
            )
        )
    yield from _aligned(rows)
    tenants = _tenants(pages, before, seconds)
    if tenants:
        yield ""
        yield from _aligned([("tenant", "streams", "cues/s", "changes/s"), *tenants])


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    columns = shutil.get_terminal_size((120, 40)).columns
    for row in rows:
        line = "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield line[:columns].rstrip()


def _sum(page: Page, name: str) -> float:
    return sum(value for (found, _), value in page.items() if found == name)


def _rate(page: Page, old: Page, name: str, seconds: float) -> str:
    if not old:
        return "-"
    return f"{max(0.0, _sum(page, name) - _sum(old, name)) / seconds:.0f}"


def _p99(page: Page, old: Page) -> str:
    """Return the bound under which 99 of 100 batches of cues were told since the last look."""
    name = "broker_publish_to_cue_seconds_bucket"
    counts = sorted(
        (float(dict(labels)["le"]), value - old.get((found, labels), 0.0))
        for (found, labels), value in page.items()
        if found == name
    )
    if not counts or not counts[-1][1]:
        return "-"
    bound = next(le for le, count in counts if count >= 0.99 * counts[-1][1])
    return f"<{bound * 1000:g}ms"


def _tenants(pages: Mapping[str, Page], before: Mapping[str, Page], seconds: float) -> list[tuple[str, ...]]:
    streams = _by_tenant(pages.values(), "broker_tenant_streams_open")
    cues = _grown(pages, before, "broker_tenant_cues_total", seconds)
    # Every replica takes in every change: one replica's count is the fleet's.
    changes = _grown(pages, before, "broker_tenant_changes_total", seconds * len(pages))
    loudest = sorted(streams.keys() | cues.keys(), key=lambda t: (-cues.get(t, 0), -streams.get(t, 0), t))
    columns = (streams, cues, changes)
    return [(tenant, *(f"{each.get(tenant, 0):.0f}" for each in columns)) for tenant in loudest[:LOUDEST]]


def _grown(
    pages: Mapping[str, Page], before: Mapping[str, Page], name: str, seconds: float
) -> dict[str, float]:
    old = _by_tenant((before[address] for address in pages if address in before), name)
    if not before:
        return {}
    now = _by_tenant(pages.values(), name)
    return {tenant: max(0.0, value - old.get(tenant, 0.0)) / seconds for tenant, value in now.items()}


def _by_tenant(pages: Iterable[Page], name: str) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for page in pages:
        for (metric, labels), value in page.items():
            if metric == name:
                found[dict(labels)["tenant"]] += value
    return found
