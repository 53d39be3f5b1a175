"""The first words on every connection: who is it, may we work with it, and does its log go on.

Rules:

1. INFO and adopt.lua come before anything else: a server that started again, or is another one, begins a new
   epoch before anything else is sent on that connection (design section 3, "Run id first").
2. A connection to a read-only replica ends here, so none writes later, when the replica is promoted.
3. `greeting` decides and sends nothing: async and sync connections drive the same generator.
"""

import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from broker.core.errors import BrokerError, StoreUnavailable, WrongStore
from broker.store.address import FORMS, Shape
from broker.store.keys import SHARDS, Keys
from broker.store.scripts import SCHEMA, script

Command = tuple[Any, ...]

OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
"""Product → its oldest release that will do."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself. `primary` is whom a replica follows, "" for others.

    `replication_id` is another one after each promotion.
    """

    run_id: str
    product: str
    version: tuple[int, ...]
    mode: str
    role: str
    primary: str
    replication_id: str = ""

    @property
    def name(self) -> str:
        """Product and release, for people."""
        return f"{self.product} {'.'.join(map(str, self.version))}"


def read(*sections: bytes) -> Server:
    """Read the answers to INFO server and INFO replication."""
    facts: dict[str, str] = {}
    for section in sections:
        for line in section.decode(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                facts[name] = value
    valkey = facts.get("valkey_version")
    host = facts.get("master_host", "")
    return Server(
        run_id=facts.get("run_id", ""),
        product="Valkey" if valkey else "Redis",
        version=version(valkey or facts.get("redis_version", "")),
        # Valkey says server_mode, and redis_mode for those who ask as they did.
        mode=facts.get("redis_mode") or facts.get("server_mode") or "standalone",
        role=facts.get("role", "master"),
        primary=f"{host}:{facts.get('master_port', '')}" if host else "",
        replication_id=facts.get("master_replid", ""),
    )


def version(text: str) -> tuple[int, ...]:
    """Read a release's number."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def refusal(server: Server, shape: Shape) -> BrokerError | None:
    """Return why we cannot work with `server`, None if we can."""
    if server.mode == "sentinel":
        return WrongStore(
            "This address is a sentinel's and no Redis: write the URL as in "
            f"{FORMS['redis+sentinel']}, with what the sentinels call the primary."
        )
    if not server.run_id:
        return WrongStore(
            "This server does not tell its run id (INFO server); use Redis or Valkey themselves."
        )
    if server.version < OLDEST[server.product]:
        oldest = ".".join(map(str, OLDEST[server.product]))
        return WrongStore(f"{server.name} is too old: use {server.product} {oldest} or newer.")
    if server.mode == "cluster" and shape is not Shape.CLUSTER:
        return WrongStore(f"This Redis is a node of a cluster: write the URL as in {FORMS['redis+cluster']}.")
    if server.mode != "cluster" and shape is Shape.CLUSTER:
        return WrongStore(f"This Redis is no node of a cluster: write the URL as in {FORMS['redis']}.")
    if server.role != "master" and shape is not Shape.CLUSTER:
        return StoreUnavailable(
            f"This Redis is a read-only replica of {server.primary}, and we must write there: give "
            "the primary's address, or the sentinels'; if a failover is under way, this passes."
        )
    return None


def adopt_command(keys: Keys, number: int, run_id: str, log_length: int | None) -> Command:
    """Return the EVAL that lets the head of one log know which server it is on."""
    length = log_length if log_length is not None else ""
    return (
        "EVAL", script("adopt").source, 2, keys.log(number), keys.head(number),
        SCHEMA, secrets.token_hex(4), secrets.token_hex(4), run_id, SHARDS, length,
    )  # fmt: skip


def greeting(
    keys: Keys, shape: Shape, log_length: int | None
) -> Generator[Sequence[Command], Sequence[Any], None]:
    """Yield the commands to be sent, a round at a time; each round's replies are sent back in.

    Raises:
        WrongStore, StoreUnavailable: we cannot work with this server.
    """
    # One section each: Redis 6.2 knows no more than one.
    server = read(*(yield (("INFO", "server"), ("INFO", "replication"))))
    why = refusal(server, shape)
    if why is not None:
        raise why
    yield [adopt_command(keys, number, server.run_id, log_length) for number in range(keys.logs)]
