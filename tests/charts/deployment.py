"""Runs the Deployment that the chart renders in a pod of podman: what `make image-check` does with the image.

    python -m tests.charts.deployment IMAGE

It is run in a network namespace of its own (`unshare --net`), since the pod takes its ports from the host.
podman stands for the kubelet: image, arguments, security context, variables, secrets, volumes and resources
are those of the rendered manifest. What podman cannot do is done here as the manifest says: the three probes,
and the end within the grace period. There is no preStop, no Service and no NetworkPolicy.

    ENGINE     options for every call, as "--storage-driver vfs"
"""

import asyncio
import base64
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.charts.chart import Manifest, Values, one, render
from tests.charts.install import install
from tests.support.mcp import Modern, new_http
from tests.support.redis_server import RedisServer
from tests.support.wait import until_sync

SECRET = f"broker-check-{os.getpid()}"
"""The Secret with the URL: podman keeps all of them in one place."""
TENANT = "acme"
URI = "docs://checked"
PROCESSES = 4096
"""Of one user; half of this process' own hard limit was refused to podman, and we do not know why."""
UNPRIVILEGED = {
    "Uid": "10001",
    "Gid": "10001",
    "CapPrm": "0000000000000000",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
}
"""Of /proc/PID/status: no capability, no way to any, and a filter of system calls."""


def say(line: str) -> None:
    print(f"  {line}", flush=True)  # noqa: T201 - a program's answer


def values(image: str) -> Values:
    """Return the values: the defaults, one replica, and an end that is not waited for long."""
    repository, _, tag = image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "replicaCount": 1,
        "redis": {"existingSecret": SECRET},
        "shutdown": {"drainSeconds": 5, "marginSeconds": 8},
    }


def playable(deployment: Manifest) -> Manifest:
    """Return the Deployment as podman plays it: in the host's network, without what only a kubelet does."""
    played: Manifest = json.loads(json.dumps(deployment))
    pod = played["spec"]["template"]["spec"]
    pod["hostNetwork"] = True
    for container in pod["containers"]:
        for name in ("startupProbe", "livenessProbe", "readinessProbe", "lifecycle", "ports"):
            container.pop(name, None)
    return played


class Podman:
    """podman as one machine's kubelet. Nothing in it outlives the check."""

    def __init__(self, place: Path) -> None:
        # podman's own limits are above what a machine without an engine may have.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits = [f"nofile={files}:{files}", f"nproc={PROCESSES}:{PROCESSES}"]
        # What it remembers of what it ran is not to be what the machine's podman does.
        configuration = place / "containers.conf"
        configuration.write_text(
            f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n[engine]\n"
            f'static_dir = "{place}/libpod"\ntmp_dir = "{place}/tmp"\nvolume_path = "{place}/volumes"\n'
        )
        # The image's own health check would need systemd; the manifest's probes are asked here.
        extra = {"CONTAINERS_CONF": str(configuration), "DISABLE_HC_SYSTEMD": "true"}
        self._environment = {**os.environ, **extra}
        given = shlex.split(os.environ.get("ENGINE", ""))
        self._command = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", *given]

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """Return what podman printed.

        Raises:
            AssertionError: it failed, and `check` was not taken away.
        """
        done = self._run(*arguments)
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if done.returncode else "")

    def log(self, name: str) -> str:
        """Return what a container wrote, on either of its outputs."""
        done = self._run("logs", name)
        return done.stdout + done.stderr

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*self._command, *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)

    @contextmanager
    def playing(self, deployment: Manifest, url: str, place: Path) -> Generator[str]:
        """Play the Deployment, with a Secret that has the URL; gives the broker's container."""
        # What a Secret is for this podman: its data.
        held = place / "secret.json"
        held.write_text(json.dumps({"redis-url": base64.b64encode(url.encode()).decode()}))
        # JSON is YAML.
        file = place / "deployment.yaml"
        file.write_text(json.dumps(deployment))
        try:
            self("secret", "create", SECRET, str(held))
            self("play", "kube", "--log-driver", "k8s-file", str(file))
            names = self("ps", "--all", "--format", "{{.Names}}").split()
            yield next(name for name in names if name.endswith("-broker"))
        finally:
            self("play", "kube", "--down", str(file), check=False)
            self("secret", "rm", SECRET, check=False)


def probe(container: Manifest, kind: str) -> tuple[int, str]:
    """Ask as the kubelet does; returns the status and the page, status 0 without an answer."""
    asked = container[f"{kind}Probe"]["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    url = f"http://127.0.0.1:{ports[asked['port']]}{asked['path']}"
    try:
        with urllib.request.urlopen(url, timeout=container[f"{kind}Probe"]["timeoutSeconds"]) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def confined(podman: Podman, name: str) -> None:
    """Fail unless the process has no rights and may write its /tmp and nothing else."""
    lines = podman("exec", name, "cat", "/proc/1/status").splitlines()
    status = {
        key: rest.split()[0] for key, _, rest in (line.partition(":") for line in lines) if rest.split()
    }
    found = {key: status.get(key) for key in UNPRIVILEGED}
    assert found == UNPRIVILEGED, found
    for path in ("/opt/broker/x", "/x", "/etc/x", "/usr/local/x"):
        told = podman("exec", "--user", "0", name, "touch", path, check=False)
        assert "Read-only file system" in told, f"{path} may be written even by root: {told!r}"
    podman("exec", name, "touch", "/tmp/x")
    say("10001, no capability, no new privileges, seccomp; the root cannot be written, /tmp can")


async def served(podman: Podman, name: str, grace: int) -> None:
    """Publish, hear the cue, then end the pod with a stream open: it ends cleanly, and in time."""
    podman("exec", name, "broker", "tenant", "create", TENANT)
    scopes = ["--scope", "resources:read", "--scope", "resources:publish"]
    key = podman("exec", name, "broker", "key", "create", TENANT, "ci-publisher", *scopes).strip()
    base = "http://127.0.0.1:8000"
    say(
        podman("exec", "--env", f"BROKER_KEY={key}", name, "broker", "doctor", "--url", base).splitlines()[-1]
    )
    async with new_http() as http:
        http.headers["authorization"] = f"Bearer {key}"
        async with Modern(f"{base}/mcp", TENANT, http) as client, await client.listen([URI]) as listening:
            await _put(http, base)
            await listening.cue(URI)
            assert (await client.read(URI))[0]["text"] == "checked"
            say("published over HTTP, cued, read")
            begun = time.monotonic()
            # The kubelet's end: SIGTERM, and SIGKILL when the grace period is over.
            await asyncio.to_thread(podman, "stop", "--time", str(grace), name)
            took = time.monotonic() - begun
            assert await listening.end() == "clean"
            assert listening.result is not None, "the stream's own end came"
    code = podman("inspect", "--format", "{{.State.ExitCode}}", name).strip()
    assert code == "0", f"it ended with {code}: {podman.log(name)}"
    assert took < grace - 2, f"it took {took:.1f} s of {grace}"
    say(f"SIGTERM: its stream ended cleanly, exit code 0 after {took:.1f} s of {grace} s")


async def _put(http: httpx.AsyncClient, base: str) -> None:
    answer = await http.put(
        f"{base}/v1/resources", params={"uri": URI}, content="checked", headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 200, answer.text


def run(image: str) -> None:
    install()
    deployment = one(render(values(image)), "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    with tempfile.TemporaryDirectory() as directory, RedisServer() as server:
        podman = Podman(Path(directory))
        with podman.playing(playable(deployment), server.url, Path(directory)) as name:
            for kind in ("startup", "liveness", "readiness"):
                until_sync(
                    lambda kind=kind: probe(container, kind)[0] == 200,
                    lambda kind=kind: f"{kind}: {probe(container, kind)} {podman.log(name)}",
                    60,
                )
            say("the startup, liveness and readiness probes of the manifest are answered")
            confined(podman, name)
            pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            asyncio.run(served(podman, name, pod["terminationGracePeriodSeconds"] - pause))
            log = podman.log(name)
            assert '"event": "serving"' in log, log
            assert '"event": "ended"' in log, log


if __name__ == "__main__":
    run(sys.argv[1])
