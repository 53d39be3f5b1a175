"""What the chart makes of its values: valid on three Kubernetes versions, restricted, and as it should be."""

import functools
import json
import re
from typing import Any

import kubernetes_validate  # pyright: ignore[reportMissingTypeStubs] - it ships none
import pytest

from broker import settings
from broker.store.address import Shape, parse
from tests.charts.chart import EXAMPLES, MINIMAL, Manifest, example, helm, one, pods, render, variables
from tests.charts.matrix import MATRIX, WHOLE, merged

pytestmark = pytest.mark.usefixtures("helm_binary")

SECRET = {
    "BROKER_REDIS_URL": "redis://redis:6379/0",
    "BROKER_REDIS__USERNAME": "broker",
    "BROKER_ADMIN__TOKEN": "x" * 64,
    "BROKER_OAUTH__ISSUERS": '[{"issuer": "https://id.example.org", "tenant": "acme",'
    ' "jwks_url": "https://id.example.org/jwks"}]',
}
"""What Secrets would hold."""

KUBERNETES = ("1.25", "1.31", "1.37")
FOREIGN = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute"}
"""Kinds of operators, of which Kubernetes has no schema."""


@pytest.mark.parametrize(
    ("name", "version"),
    # Whole on the newest; on the older ones what holds every field, since each rendering is a run of helm.
    [(name, KUBERNETES[-1]) for name in MATRIX] + [(name, v) for v in KUBERNETES[:-1] for name in WHOLE],
)
def test_every_object_is_one_that_this_kubernetes_knows_to_the_last_field(name: str, version: str) -> None:
    for manifest in render(MATRIX[name], version):
        assert manifest["metadata"].get("namespace", "mcp") == "mcp"
        if manifest["kind"] not in FOREIGN:
            _check(json.dumps(manifest, sort_keys=True), version)


@functools.cache
def _check(manifest: str, version: str) -> None:
    """Validate one object; most features leave most objects as they were."""
    kubernetes_validate.validate(json.loads(manifest), version, strict=True)


@pytest.mark.parametrize("name", ["trial", "production"])
def test_the_linter_has_nothing_to_say(name: str) -> None:
    helm("lint", "--strict", str(EXAMPLES.parent), "--values", str(EXAMPLES / f"{name}.yaml"))


@pytest.mark.parametrize("name", MATRIX)
def test_no_two_objects_are_one(name: str) -> None:
    names = [(m["apiVersion"], m["kind"], m["metadata"]["name"]) for m in render(MATRIX[name])]
    assert len(names) == len(set(names))


# -- policies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MATRIX)
def test_every_pod_keeps_to_the_restricted_standard(name: str) -> None:
    """Pod Security Standards, "Restricted", and a root that cannot be written."""
    for pod_name, pod in pods(render(MATRIX[name])):
        assert pod["automountServiceAccountToken"] is False, pod_name
        assert pod["enableServiceLinks"] is False, "BROKER_SERVICE_HOST would look like a setting"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"]["drop"] == ["ALL"]
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", MATRIX)
def test_whatever_selects_a_broker_selects_brokers_only(name: str) -> None:
    manifests = render(MATRIX[name])
    labels = {
        m["metadata"]["name"]: m["spec"]["template"]["metadata"]["labels"]
        for m in manifests
        if m["kind"] in {"Deployment", "StatefulSet"}
    } | {m["metadata"]["name"]: m["metadata"]["labels"] for m in manifests if m["kind"] == "Pod"}
    for manifest in manifests:
        if manifest["kind"] not in {"Service", "PodDisruptionBudget", "Deployment"}:
            continue
        selector = manifest["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        chosen = [name for name, own in labels.items() if selector.items() <= own.items()]
        assert len(chosen) == 1, (manifest["kind"], manifest["metadata"]["name"], chosen)


def test_nothing_reaches_the_internal_port_or_leaves_unless_it_was_said() -> None:
    policy = one(render(MINIMAL), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]] == [["http"]]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [[53, 53], [6379]]
    rules = one(render(MATRIX["policy"]), "NetworkPolicy")["spec"]["ingress"]
    assert all(rule["from"] for rule in rules)


@pytest.mark.parametrize("name", ["policy", "production"])
def test_helm_test_is_let_in_where_clients_are_named(name: str) -> None:
    """Its pod is in the release's own namespace, and was shut out by the production example."""
    manifests = render(MATRIX[name])
    [http, *_] = one(manifests, "NetworkPolicy")["spec"]["ingress"]
    labels = one(manifests, "Pod")["metadata"]["labels"]
    selectors = [
        peer["podSelector"]["matchLabels"] for peer in http["from"] if peer.keys() == {"podSelector"}
    ]
    assert any(selector.items() <= labels.items() for selector in selectors), http["from"]


def test_the_trial_s_redis_is_reached_by_this_release_only_and_reaches_nobody() -> None:
    policy = one(render(example("trial")), "NetworkPolicy", "trial-redis")["spec"]
    assert policy["egress"] == []
    assert policy["ingress"][0]["from"] == [
        {"podSelector": {"matchLabels": {"app.kubernetes.io/instance": "b"}}}
    ]


# -- life and death -----------------------------------------------------------------------------------------


def broker(values: dict[str, Any], version: str = "1.37") -> tuple[Manifest, Manifest]:
    """Return the broker's Deployment and its pod."""
    deployments = [
        m
        for m in render(values, version)
        if m["kind"] == "Deployment" and m["metadata"]["labels"]["app.kubernetes.io/component"] == "broker"
    ]
    assert len(deployments) == 1
    return deployments[0], deployments[0]["spec"]["template"]["spec"]


def test_the_grace_period_covers_prestop_drain_and_a_margin() -> None:
    _, pod = broker(MINIMAL)
    assert pod["terminationGracePeriodSeconds"] == 5 + 30 + 15
    values = merged(MINIMAL, {"shutdown": {"preStopSeconds": 10, "drainSeconds": 100, "marginSeconds": 20}})
    _, pod = broker(values)
    assert pod["terminationGracePeriodSeconds"] == 130
    assert variables(pod["containers"][0])["BROKER_DRAIN_SECONDS"] == "100"
    _, pod = broker(MATRIX["long grace"])
    assert pod["terminationGracePeriodSeconds"] == 600


def test_the_pause_before_sigterm_is_kubernetes_own_where_it_has_one() -> None:
    _, pod = broker(MINIMAL)
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    _, pod = broker(MINIMAL, "1.25")
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    _, pod = broker(MATRIX["no preStop"])
    assert "lifecycle" not in pod["containers"][0]


def test_a_rollout_never_has_fewer_replicas_than_wanted() -> None:
    deployment, _ = broker(MINIMAL)
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] == 0
    assert rolling["maxSurge"] == "25%"
    assert deployment["spec"]["minReadySeconds"] == 10
    assert one(render(MINIMAL), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_probes_ask_the_internal_port_and_life_never_depends_on_redis() -> None:
    _, pod = broker(MINIMAL)
    container = pod["containers"][0]
    asked = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in asked.values()} == {"internal"}
    assert asked["startup"]["path"] == asked["liveness"]["path"] == "/livez"
    assert asked["readiness"]["path"] == "/readyz"
    _, pod = broker(MATRIX["strict readiness"])
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz?strict"


@pytest.mark.parametrize("name", ["scaled", "keda", "production"])
def test_who_scales_decides_alone_how_many_there_are(name: str) -> None:
    deployment, _ = broker(MATRIX[name])
    assert "replicas" not in deployment["spec"]


def test_fewer_replicas_come_slowly() -> None:
    down = one(render(MATRIX["scaled"]), "HorizontalPodAutoscaler")["spec"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] == 600
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]


# -- what the broker is told --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MATRIX if name not in {"extras", "everything"}])
def test_every_variable_is_a_setting_of_the_broker(name: str) -> None:
    known = {variable for variable, _, _ in settings.variables()}
    _, pod = broker(MATRIX[name])
    assert set(variables(pod["containers"][0])) <= known


@pytest.mark.parametrize("name", MATRIX)
def test_what_the_pod_is_told_is_what_settings_take(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pod = broker(MATRIX[name])
    container = pod["containers"][0]
    for variable, value in variables(container).items():
        monkeypatch.setenv(variable, value if value is not None else SECRET[variable])
    loaded = settings.load()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (loaded.port, loaded.internal_port) == (ports["http"], ports["internal"])
    assert loaded.drain_seconds + 15 <= pod["terminationGracePeriodSeconds"]
    assert loaded.linger_seconds <= loaded.drain_seconds
    loaded.check_exposure()


def test_the_url_of_redis_is_nowhere_but_in_a_secret() -> None:
    manifests = render(MATRIX["url in values"])
    holders = [m["kind"] for m in manifests if "u:p@redis.example.org" in str(m)]
    assert holders == ["Secret"]
    assert not [m for m in render(MINIMAL) if m["kind"] == "Secret"]


@pytest.mark.parametrize("name", ["production", "sentinel", "cluster", "redis user", "everything"])
def test_every_file_that_a_pod_is_told_of_is_in_a_secret_that_is_mounted_whole(name: str) -> None:
    """A mount by subPath would never see a password that was rotated."""
    manifests = render(merged(MATRIX[name], {"workers": {"again": {}}}))
    told = 0
    for pod_name, pod in pods(manifests):
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", ())}
            for variable, value in variables(container).items():
                if not variable.startswith("BROKER_REDIS__") or not variable.endswith("_FILE"):
                    continue
                folder, file = (value or "").rsplit("/", 1)
                mount = mounts[folder]
                assert "subPath" not in mount, pod_name
                assert mount["readOnly"] is True
                secret = volumes[mount["name"]]["secret"]
                assert secret["defaultMode"] == 0o440, "the pod's group reads it, and nobody writes"
                assert {item["path"] for item in secret.get("items", ({"path": file},))} == {file}
                told += 1
    assert (told == 0) == (name == "cluster")


def test_a_rotated_password_is_no_new_pod_and_another_url_is() -> None:
    def marked(redis: dict[str, Any]) -> str:
        deployment, _ = broker({"redis": redis})
        return deployment["spec"]["template"]["metadata"]["annotations"]["checksum/redis"]

    one_url = {"url": "redis://r", "auth": {"existingSecret": "p"}}
    assert marked(one_url) == marked({**one_url, "auth": {"existingSecret": "p", "passwordKey": "next"}})
    assert marked(one_url) != marked({**one_url, "url": "redis://other"})


def test_every_shape_of_redis_is_an_address_that_the_broker_reads() -> None:
    for name, shape in (
        ("url in values", Shape.STANDALONE),
        ("sentinel", Shape.SENTINEL),
        ("cluster", Shape.CLUSTER),
    ):
        secret = one(render(MATRIX[name]), "Secret")
        assert parse(secret["stringData"]["redis-url"]).shape is shape


def test_workers_are_told_the_same_redis_and_prefix_as_brokers() -> None:
    for name in ("workers", "production", "url in values", "sentinel", "cluster"):
        manifests = render(merged(MATRIX[name], {"workers": {"again": {}}}))
        told = {
            str([each for each in pod["containers"][0]["env"] if _is_of_redis(each["name"])])
            for _, pod in pods(manifests)
            if pod["containers"][0]["name"] in {"broker", "worker"}
        }
        assert len(told) == 1


def _is_of_redis(variable: str) -> bool:
    return variable == "BROKER_PREFIX" or variable.startswith("BROKER_REDIS")


def test_the_names_that_lead_here_are_names_the_broker_answers_to() -> None:
    for name, host in (
        ("ingress", "mcp.example.org"),
        ("route", "mcp.example.org"),
        ("hosts", "mcp.internal"),
    ):
        _, pod = broker(MATRIX[name])
        hosts = (variables(pod["containers"][0])["BROKER_HTTP__ALLOWED_HOSTS"] or "").split(",")
        assert host in hosts
        assert "b-mcp-resource-broker" in hosts, "helm test asks the Service"


def test_publishing_is_open_to_the_world_only_where_it_was_said() -> None:
    def paths(name: str) -> set[str]:
        rules = one(render(MATRIX[name]), "Ingress")["spec"]["rules"]
        return {path["path"] for rule in rules for path in rule["http"]["paths"]}

    assert "/v1" in paths("ingress")
    assert paths("production") == {"/mcp", "/t", "/.well-known/oauth-protected-resource"}
    matches = one(render(MATRIX["route"]), "HTTPRoute")["spec"]["rules"][0]["matches"]
    assert {match["path"]["value"] for match in matches} == paths("production")


def test_a_gateway_sets_no_limit_to_the_life_of_a_stream() -> None:
    assert one(render(MATRIX["route"]), "HTTPRoute")["spec"]["rules"][0]["timeouts"] == {"request": "0s"}


def test_a_proxy_waits_longer_than_the_pause_between_two_keep_alives() -> None:
    annotations = one(render(MATRIX["ingress"]), "Ingress")["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io"
    assert annotations[f"{prefix}/proxy-buffering"] == "off"
    assert float(annotations[f"{prefix}/proxy-read-timeout"]) > 2 * settings.Settings().http.keepalive_seconds


def test_the_test_runs_a_command_that_there_is() -> None:
    pod = one(render(MATRIX["test key"]), "Pod")["spec"]
    command = pod["containers"][0]["args"]
    assert command[:2] == ["doctor", "--url"]
    assert re.fullmatch(r"http://b-mcp-resource-broker:80", command[2])


def test_the_notes_give_the_next_three_commands_and_say_what_is_not_for_production() -> None:
    arguments = ["install", "b", str(EXAMPLES.parent), "--dry-run=client"]
    notes = helm(*arguments, "--values", str(EXAMPLES / "trial.yaml")).split("NOTES:")[1]
    for command in ("kubectl -n default rollout status", "helm -n default test b", "port-forward"):
        assert command in notes
    assert "TRIAL ONLY" in notes
    assert "OPEN" in notes
    notes = helm(*arguments, "--values", str(EXAMPLES / "production.yaml")).split("NOTES:")[1]
    assert "TRIAL" not in notes
    assert "https://mcp.example.org/mcp" in notes
    assert "test.existingSecret" not in notes, "the example has it"


@pytest.mark.parametrize("name", ["trial", "production", "names"])
def test_the_notes_commands_are_about_objects_that_the_chart_makes(name: str) -> None:
    values = json.dumps(MATRIX[name])
    arguments = [
        "install",
        "b",
        str(EXAMPLES.parent),
        "--namespace",
        "mcp",
        "--dry-run=client",
        "--values",
        "-",
    ]
    notes = helm(*arguments, stdin=values).split("NOTES:")[1]
    deployment, service = re.findall(r"kubectl -n mcp .*(?:deployment|service)/(\S+)", notes)
    port = re.search(r"port-forward service/\S+ 8000:(\d+)", notes)
    manifests = render(MATRIX[name])
    assert one(manifests, "Deployment", deployment)["metadata"]["name"] == deployment
    made = next(m for m in manifests if m["kind"] == "Service" and m["metadata"]["name"] == service)
    assert port is not None
    assert int(port[1]) in [each["port"] for each in made["spec"]["ports"]]
    assert "helm -n mcp test b" in notes
    assert one(manifests, "Pod")["metadata"]["annotations"]["helm.sh/hook"] == "test"
