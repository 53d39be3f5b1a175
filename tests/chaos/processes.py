"""Faults of the broker's replicas, of workers and of clients' connections. See fault.py for the rules."""

import asyncio
import random

from tests.chaos.fault import CLIENTS, ERROR, Fault
from tests.chaos.storm import FOLLOWERS, Storm


async def publish(storm: Storm, rng: random.Random) -> None:
    """No fault at all: changes, some of them of what the worker answers."""
    await storm.burst(rng)
    await storm.touch()


async def follow(storm: Storm, rng: random.Random) -> None:
    """Let somebody new subscribe while something changes."""
    if len(storm.followers) < 2 * FOLLOWERS:
        storm.add_follower(rng)
    await storm.burst(rng)


async def leave(storm: Storm, rng: random.Random) -> None:
    """Let a client go; never the first two, which watch what the worker serves."""
    if len(storm.followers) > FOLLOWERS // 2:
        await storm.followers.pop(rng.randrange(2, len(storm.followers))).close()


async def cut_clients(storm: Storm, rng: random.Random) -> None:
    """Close or reset all that clients have open to one replica."""
    proxy = rng.choice(storm.to_replicas)
    publishing = asyncio.create_task(storm.burst(rng))
    await asyncio.sleep(rng.uniform(0, 0.01))
    await asyncio.to_thread(rng.choice((proxy.cut, proxy.reset)))
    await publishing


async def kill_replica(storm: Storm, rng: random.Random) -> None:
    replica = rng.choice(storm.fleet.replicas)
    publishing = asyncio.create_task(storm.burst(rng))
    await asyncio.sleep(rng.uniform(0, 0.01))
    await asyncio.to_thread(replica.restart)
    await publishing


async def stop_replica(storm: Storm, rng: random.Random) -> None:
    """Stop a replica's clock for longer than its sockets to Redis live, or shorter."""
    replica = rng.choice(storm.fleet.replicas)
    replica.process.pause()
    try:
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0.2, 3))
    finally:
        replica.process.resume()


async def kill_worker(storm: Storm, rng: random.Random) -> None:
    """Kill one of the workers while clients read what it answers, and start it again."""
    process = rng.choice(storm.workers)
    touching = asyncio.create_task(storm.touch())
    await asyncio.sleep(rng.uniform(0, 0.02))
    process.kill()
    await touching
    process.start()


FAULTS = [
    Fault("publish", publish, ERROR, weight=4),
    Fault("newcomer", follow, ERROR, weight=3),
    Fault("leaver", leave, ERROR),
    Fault("client-cut", cut_clients, CLIENTS, weight=3),
    Fault("replica-kill", kill_replica, CLIENTS, weight=2),
    Fault("replica-stop", stop_replica, CLIENTS),
    Fault("worker-kill", kill_worker, CLIENTS),
]
