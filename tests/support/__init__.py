"""What tests stand on: real servers, real replicas, a balancer, a faulty network, and clients that check.

Rules:

1. Nothing is faked: Redis is a server of its own, a replica is a process of its own.
2. What was started is ended by its own process id, at the latest when the test's process dies.
3. Nobody sleeps to synchronise: `until` waits for a condition under a ceiling and says what it waited for.
4. Proxy and balancer run in a thread with a loop of their own, so a test that blocks does not stop them.
"""
