"""Values that cannot work are refused with a sentence, before anything reaches a cluster."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.charts.chart import CHART, MINIMAL, ChartError, Values, render
from tests.charts.matrix import merged

ROOT = Path(__file__).parents[2]


def test_schema_table_and_dashboard_are_those_of_their_sources() -> None:
    for script in ("chart.py", "dashboard.py", "metrics.py"):
        subprocess.run([sys.executable, str(ROOT / "scripts" / script), "--check"], check=True)


def test_every_value_is_described_and_no_other_is_taken() -> None:
    def check(schema: Values, values: Values, path: str) -> None:
        assert schema["additionalProperties"] is False, path
        assert schema["properties"].keys() - {"global"} == values.keys(), path
        for name, below in schema["properties"].items():
            if "properties" in below:
                check(below, values[name], f"{path}.{name}")
            elif name != "global":
                assert below["description"], f"{path}.{name}"

    schema = json.loads((CHART / "values.schema.json").read_text())
    check(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "values")


REFUSED: dict[str, tuple[Values, str]] = {
    "no Redis": ({"redis": {"existingSecret": ""}}, "Say where Redis is"),
    "two Redises": ({"redis": {"trial": {"enabled": True}}}, "leave out redis.url and redis.existingSecret"),
    "two addresses": ({"redis": {"url": "redis://r:6379"}}, "either redis.url or redis.existingSecret"),
    "no URL": ({"redis": {"existingSecret": "", "url": "redis:6379"}}, "url"),
    "two passwords": (
        {"redis": {"existingSecret": "", "url": "redis://:p@r", "auth": {"existingSecret": "p"}}},
        "leave it out of the URL",
    ),
    "certificates without TLS": (
        {"redis": {"existingSecret": "", "url": "redis://r", "tls": {"caSecret": "ca"}}},
        "begins with rediss",
    ),
    "sentinels' password without sentinels": (
        {"redis": {"existingSecret": "", "url": "redis://r", "sentinel": {"existingSecret": "s"}}},
        "redis\\+sentinel://",
    ),
    "a trial with a password": (
        {"redis": {"existingSecret": "", "trial": {"enabled": True}, "auth": {"existingSecret": "p"}}},
        "asks for no password",
    ),
    "two users": (
        {"redis": {"auth": {"existingSecret": "p", "usernameKey": "u", "username": "broker"}}},
        "instead of redis.auth.username",
    ),
    "a user's key in no Secret": ({"redis": {"auth": {"usernameKey": "u"}}}, "redis.auth.existingSecret"),
    "a port behind the policy": (
        {"redis": {"existingSecret": "", "url": "redis+cluster://u:p@n1:6379,n2:7001"}},
        "leads to port 7001",
    ),
    "sentinels behind the policy": (
        {"redis": {"existingSecret": "", "url": "redis+sentinel://s1,s2/mymaster"}},
        "leads to port 26379",
    ),
    "a shape there is not": ({"redis": {"existingSecret": "", "url": "redis+ring://a"}}, "url"),
    "a password file by hand": (
        {"config": {"BROKER_REDIS__PASSWORD_FILE": "/x"}},
        "BROKER_REDIS__PASSWORD_FILE has a value of its own",
    ),
    "open unawares": ({"auth": {"mode": "open"}}, "auth.acceptOpen=true"),
    "a mode there is not": ({"auth": {"mode": "none"}}, "mode"),
    "OAuth by nobody": ({"auth": {"mode": "oauth"}}, "auth.oauth.resource"),
    "a short grace": (
        {"shutdown": {"terminationGracePeriodSeconds": 49}},
        "terminationGracePeriodSeconds is 49, but preStop \\+ drain \\+ margin are 50",
    ),
    "no margin": ({"shutdown": {"marginSeconds": 0}}, "marginSeconds"),
    "two scalers": (
        {"autoscaling": {"enabled": True}, "keda": {"enabled": True, "triggers": [{"type": "cpu"}]}},
        "would fight",
    ),
    "KEDA by nothing": ({"keda": {"enabled": True}}, "keda.triggers"),
    "fewest above most": ({"autoscaling": {"enabled": True, "minReplicas": 11}}, "is more than"),
    "a nameless ingress": ({"ingress": {"enabled": True}}, "ingress.hosts"),
    "a route from nowhere": ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs"),
    "a misspelt value": ({"replicas": 3}, "replicas"),
    "a misspelt value inside": ({"image": {"repo": "x"}}, "repo"),
    "no replica": ({"replicaCount": 0}, "replicaCount"),
    "a word for a number": ({"replicaCount": "three"}, "replicaCount"),
    "a setting that is none": ({"config": {"SESSION_IDLE": "1"}}, "SESSION_IDLE"),
    "a setting with a value": ({"config": {"BROKER_PORT": "1"}}, "BROKER_PORT has a value of its own"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "digest"),
    "a service of no kind": ({"service": {"type": "ExternalName"}}, "type"),
    "a prefix with braces": ({"redis": {"prefix": "a{b}"}}, "prefix"),
    "a worker's misspelling": ({"workers": {"jobs": {"replica": 1}}}, "replica"),
    "a worker with no name": ({"workers": {"Jobs!": {}}}, "Jobs!"),
}


@pytest.mark.usefixtures("helm_binary")
@pytest.mark.parametrize("name", REFUSED)
def test_values_that_cannot_work_are_refused_by_name(name: str) -> None:
    values, sentence = REFUSED[name]
    with pytest.raises(ChartError) as refusal:
        render(merged(MINIMAL, values))
    assert re.search(sentence, str(refusal.value)), refusal.value
