"""`broker serve`: one replica until a signal comes, with our own Redis if no other is set."""

import argparse
import contextlib
import importlib
import logging
import resource
from collections.abc import Callable

from broker import server
from broker.inspection import refuse_unfit
from broker.settings import Settings, unknown
from broker.store.client import Connect, keys_at
from broker.store.embedded import Embedded

log = logging.getLogger(__name__)

Build = Callable[[Settings], server.Broker]


def run(_arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve with the app of `broker.app`."""
    # Only now, so that a refused setting costs no import of the web framework.
    return serve(settings, lambda final: importlib.import_module("broker.app").build(final))


def serve(settings: Settings, build: Build) -> int:
    """Serve what `build` makes of the settings.

    Raises:
        Misconfigured: with what to do.
    """
    settings.check_exposure()
    raise_descriptors()
    sockets = server.Sockets(settings)
    try:
        warn(settings)
        return server.run(_serve(settings, build, sockets))
    finally:
        sockets.close()


def raise_descriptors() -> None:
    """Let this process open all the descriptors it may: each stream is one; containers begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if hard != soft:
            log.debug("descriptors_raised", extra={"before": soft, "now": hard})


def warn(settings: Settings) -> None:
    """Say what an operator should know before anything else."""
    for sentence in unknown():
        log.warning("setting_unknown", extra={"why": sentence})
    if settings.auth.mode == "open":
        whom = (
            f"anybody who reaches {settings.host}" if settings.is_exposed else "every program on this machine"
        )
        means = f"no credentials are asked for: {whom} may read and publish everything, of every tenant"
        log.warning("open_mode", extra={"means": means})


async def _serve(settings: Settings, build: Build, sockets: server.Sockets) -> int:
    if settings.redis_url is not None:
        await refuse_unfit(
            Connect(
                settings.redis_url,
                keys_at(settings.redis_url, settings.prefix),
                timeout=settings.redis.timeout_seconds,
                connect_timeout=settings.redis.connect_timeout_seconds,
                access=settings.redis.access,
            )
        )
        return await server.serve(build(settings), settings, sockets)
    async with Embedded(
        settings.state_dir, binary=settings.redis_server_bin, is_ephemeral=settings.ephemeral
    ) as url:
        settings = settings.with_redis(url)
        return await server.serve(build(settings), settings, sockets)
