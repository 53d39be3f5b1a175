"""The official clients of both eras and both languages against three replicas (promise 4).

Every request goes to another replica; resources are published, and a template is served by a worker.
"""

from collections.abc import Callable

import pytest

from tests.clients.conftest import COMMANDS, Run
from tests.support.balancer import Address
from tests.support.replica import Fleet, Replica
from tests.support.wait import until_sync

MODERN = {"py2-auto", "ts2-auto"}
STEPS = {
    "connect", "list", "templates", "read-text", "read-binary", "read-template", "complete", "not-found",
    "subscribe", "update", "reread", "list-changed", "unsubscribe", "close",
}  # fmt: skip


def _passed(run: Run) -> None:
    assert run.failed == {}
    assert set(run.states) >= STEPS


def _session(fleet: Fleet, tenant: str) -> str:
    """Return the one session that this tenant's client had, or "" in the modern era."""
    of_tenant = [
        each.asked.session
        for each in fleet.balancer.served
        if (b"broker-tenant", tenant.encode()) in each.asked.headers and each.asked.session
    ]
    assert len(set(of_tenant)) <= 1
    return of_tenant[0] if of_tenant else ""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_official_client_works_with_every_request_on_another_replica(
    name: str, run_client: Callable[..., Run], fleet: Fleet, tenant: str
) -> None:
    fleet.balancer.choose = _subscribe_elsewhere(fleet)
    _passed(run_client(name))
    session = _session(fleet, tenant)
    assert bool(session) == (name not in MODERN)
    if session:
        subscribed = fleet.balancer.who_served(session, rpc="resources/subscribe")
        streams = fleet.balancer.who_served(session, method="GET")
        assert set(subscribed).isdisjoint(streams[:1]), "the subscribe met the replica of the GET stream"


def _subscribe_elsewhere(fleet: Fleet) -> Callable[..., list[Address]]:
    """Spread round-robin, but let a subscribe never meet the replica that holds its session's GET stream."""
    turn = 0

    def choose(asked: object, replicas: list[Address]) -> list[Address]:
        nonlocal turn
        turn += 1
        order = replicas[turn % len(replicas) :] + replicas[: turn % len(replicas)]
        if getattr(asked, "rpc", "") == "resources/subscribe":
            holders = fleet.balancer.who_served(getattr(asked, "session", ""), method="GET")
            order.sort(key=lambda address: address in holders[-1:])
        return order

    return choose


@pytest.mark.parametrize("name", COMMANDS)
def test_an_official_client_does_not_mind_replicas_that_crash_between_its_steps(
    name: str, run_client: Callable[..., Run], fleet: Fleet, tenant: str
) -> None:
    """Each crash hits another replica, among them once the one that holds the stream.

    (Once, since Python's clients give a GET stream up for good after the second abnormal end.)
    """

    def holder() -> Replica | None:
        served = [each for each in fleet.balancer.served if _is_stream(each.asked, tenant)]
        return next((r for r in fleet.replicas if served and r.address == served[-1].replica), None)

    def between(step: str) -> None:
        if name not in MODERN:
            # The client opens its stream in the background; a crash amid its first POSTs would end the 1.x
            # session by the client's own rules.
            until_sync(holder, "the session's GET stream")
        held = holder()
        others = [replica for replica in fleet.replicas if replica is not held]
        if step == "connect":
            others[0].restart()
        elif step == "subscribe" and name not in MODERN:
            assert held is not None
            held.restart()
        elif step == "update":
            others[1].restart()

    _passed(run_client(name, between))


def _is_stream(asked: object, tenant: str) -> bool:
    method, rpc = getattr(asked, "method", ""), getattr(asked, "rpc", "")
    headers = getattr(asked, "headers", ())
    return (method == "GET" or rpc == "subscriptions/listen") and (
        b"broker-tenant",
        tenant.encode(),
    ) in headers
