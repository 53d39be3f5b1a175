"""No test waits for time to pass where it means a condition (tests/support/wait.py is for those).

A sleep in a test is a schedule, a delay that is part of what is tested, or a function that a worker serves;
each file that has one is named here with its reason.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
REASONS = {
    "bench": "a benchmark offers load on a schedule",
    "chaos": "faults, publishes and clients follow a seeded schedule",
    "clients/steps.py": "polls, under a ceiling, in the environment of the client",
    "http/test_get_stream.py": "changes come while streams are moved, at a pace",
    "http/test_sessions.py": "publishes again and again until one is told",
    "operations/test_proxies.py": "a reader's pace, beside a rolling restart",
    "replicas/test_baseline.py": "a function that is slow, which is what the test is about",
    "replicas/test_leaving.py": "requests and publishes at a pace, beside a drain",
    "replicas/test_takeover.py": "publishes again and again until an id proves something",
    "soak": "load comes at a pace, and is sampled at one",
    "store/test_sentinel.py": "publishes and reads again and again while a primary moves",
    "support/fault_proxy.py": "the delay of a slow network is what it makes",
    "support/follower.py": "a client waits before it opens its stream again",
    "support/wait.py": "polls, under a ceiling",
    "workers": "a function that is slow, which is what the test is about",
}


def _sleeps(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_yield = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if name == "sleep" and not is_yield:
            yield node.lineno


def test_every_sleep_has_a_reason() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in ROOT.rglob("*.py")
        if "node_modules" not in path.parts
        for line in _sleeps(path)
    }
    assert found, "the search finds nothing any more"
    assert sorted(each for each in found if not each.startswith(tuple(REASONS))) == []
