"""The official clients of both eras and both languages against three replicas (promise 4).

Every request goes to another replica; resources are published, and a template is served by a worker.
"""

from collections.abc import Callable

import pytest

from tests.clients.conftest import COMMANDS, Run
from tests.support.balancer import Address, Asked
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


@pytest.mark.parametrize("crashes", ["few", pytest.param("all", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_official_client_does_not_mind_replicas_that_crash_between_its_steps(
    name: str, crashes: str, run_client: Callable[..., Run], fleet: Fleet, tenant: str
) -> None:
    """Each crash hits another replica, among them once the one that holds the stream; after few or all steps.

    (Once, since Python's clients give a GET stream up for good after the second abnormal end.)
    """
    steps: list[str] = []

    def holder() -> Replica | None:
        served = [each for each in fleet.balancer.served if _is_stream(each.asked, tenant)]
        return next((r for r in fleet.replicas if served and r.address == served[-1].replica), None)

    def between(step: str) -> None:
        if name not in MODERN:
            # The client opens its stream in the background, and does not wait for the answer to a
            # notification, so a step may be over before its last POST is. A crash amid that ends a Python
            # session by the client's own rules ("Connection closed").
            until_sync(holder, "the session's GET stream")
            until_sync(lambda: _told(fleet, tenant), "the notifications/initialized is answered")
        until_sync(lambda: not _is_asking(fleet, tenant), "nothing is under way but streams")
        held = holder()
        others = [replica for replica in fleet.replicas if replica is not held]
        steps.append(step)
        if step == "subscribe" and name not in MODERN:
            assert held is not None
            held.restart()
        elif crashes == "all" or step in {"connect", "update"}:
            others[len(steps) % 2].restart()

    _passed(run_client(name, between))


def _is_of(asked: Asked, tenant: str) -> bool:
    return (b"broker-tenant", tenant.encode()) in asked.headers


def _is_stream(asked: Asked, tenant: str) -> bool:
    return (asked.method == "GET" or asked.rpc == "subscriptions/listen") and _is_of(asked, tenant)


def _told(fleet: Fleet, tenant: str) -> bool:
    """Whether a notifications/initialized has been answered."""
    return any(
        each.is_over and each.asked.rpc == "notifications/initialized" and _is_of(each.asked, tenant)
        for each in list(fleet.balancer.served)
    )


def _is_asking(fleet: Fleet, tenant: str) -> bool:
    """Whether a request that is no stream still waits for the end of its response."""
    return any(
        not each.is_over and _is_of(each.asked, tenant) and not _is_stream(each.asked, tenant)
        for each in list(fleet.balancer.served)
    )
