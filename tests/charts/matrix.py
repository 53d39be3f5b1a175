"""Values that the chart is rendered with: as small as can be, the examples, and each feature on or off."""

from typing import cast

from tests.charts.chart import MINIMAL, Values, example


def merged(*parts: Values) -> Values:
    """Return values laid over each other, map by map."""
    whole: Values = {}
    for part in parts:
        for name, value in part.items():
            below = whole.get(name)
            both = isinstance(value, dict) and isinstance(below, dict)
            whole[name] = merged(cast("Values", below), cast("Values", value)) if both else value
    return whole


_WORKER: Values = {
    "image": "registry.example.org/jobs:3",
    "command": ["python", "-m", "jobs"],
    "env": [{"name": "LEVEL", "value": "1"}],
    "envFrom": [{"secretRef": {"name": "jobs"}}],
    "tenant": "acme",
    "autoscaling": {"minReplicas": 2, "maxReplicas": 5, "targetCPUUtilizationPercentage": 50},
}

FEATURES: dict[str, Values] = {
    "url in values": {"redis": {"existingSecret": "", "url": "rediss://u:p@redis.example.org:6379/0"}},
    "redis CA": {"redis": {"tls": {"caSecret": "redis-ca"}}},
    "redis user": {"redis": {"auth": {"username": "broker", "existingSecret": "redis-password"}}},
    "sentinel": {
        "redis": {
            "existingSecret": "",
            "url": "rediss+sentinel://a.example.org,b.example.org:26380/mymaster/1",
            "auth": {"existingSecret": "redis-password", "usernameKey": "user", "passwordKey": "pass"},
            "sentinel": {"username": "watcher", "existingSecret": "sentinel-password"},
            "tls": {"caSecret": "redis-ca", "caKey": "root.pem", "certSecret": "redis-client"},
        },
        "networkPolicy": {"redisPorts": [6379, 26379, 26380]},
    },
    "cluster": {
        "redis": {"existingSecret": "", "url": "redis+cluster://n1:7000,n2:7001"},
        "networkPolicy": {"redisPorts": [7000, 7001, 7002]},
    },
    "trial redis that keeps": {"redis": {"existingSecret": "", "trial": {"enabled": True, "storage": "1Gi"}}},
    "open": {"auth": {"mode": "open", "acceptOpen": True}},
    "oauth": {
        "auth": {
            "mode": "oauth",
            "oauth": {"resource": "https://mcp.example.org/mcp", "existingSecret": "issuers"},
            "admin": {"existingSecret": "admin"},
        }
    },
    "names": {
        "nameOverride": "mrb",
        "fullnameOverride": "the-broker",
        "commonLabels": {"team": "docs"},
        "podLabels": {"zone": "a"},
        "podAnnotations": {"note": "x"},
    },
    "digest": {"image": {"digest": f"sha256:{'0' * 64}"}, "imagePullSecrets": [{"name": "registry"}]},
    "hosts": {"http": {"allowedHosts": ["mcp.internal"], "allowedOrigins": ["https://app.example.org"]}},
    "config": {"config": {"BROKER_SESSION__IDLE_SECONDS": 7200, "BROKER_LOG__FORMAT": "text"}},
    "extras": {
        "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "broker"}],
        "extraEnvFrom": [{"configMapRef": {"name": "more"}}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "{{ .Release.Name }}-extra"},
                "data": {"a": "b"},
            },
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-text\n",
        ],
    },
    "no preStop": {"shutdown": {"preStopSeconds": 0}},
    "long grace": {"shutdown": {"terminationGracePeriodSeconds": 600}},
    "strict readiness": {"probes": {"strictReadiness": True}},
    "surge of one": {"rollout": {"maxSurge": 1}},
    "no account": {"serviceAccount": {"create": False}},
    "placed": {
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                }
            }
        },
        "priorityClassName": "high",
        "topologySpreadConstraints": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "broker"}},
            }
        ],
    },
    "no budget": {"podDisruptionBudget": {"enabled": False}},
    "budget in percent": {"podDisruptionBudget": {"maxUnavailable": "34%"}},
    "scaled": {"autoscaling": {"enabled": True, "targetStreamsPerReplica": 5000}},
    "keda": {"keda": {"enabled": True, "triggers": [{"type": "cpu", "metadata": {"value": "60"}}]}},
    "load balancer": {"service": {"type": "LoadBalancer", "port": 8080, "annotations": {"lb": "internal"}}},
    "ingress": {"ingress": {"enabled": True, "hosts": ["mcp.example.org"], "exposePublishing": True}},
    "ingress of another kind": {
        "ingress": {
            "enabled": True,
            "className": "haproxy",
            "hosts": ["a.example.org", "b.example.org"],
            "nginxAnnotations": False,
            "annotations": {"haproxy.org/timeout-server": "1h"},
            "tls": [{"secretName": "tls", "hosts": ["a.example.org"]}],
        }
    },
    "route": {
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gate"}], "hostnames": ["mcp.example.org"]}
    },
    "no policy": {"networkPolicy": {"enabled": False}},
    "policy": {
        "networkPolicy": {
            "clients": [{"podSelector": {"matchLabels": {"app": "gate"}}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "redisTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "redisPorts": [6379, 26379],
            "extraEgress": [{"ports": [{"port": 4317, "protocol": "TCP"}]}],
        }
    },
    "watched": {
        "metrics": {
            "tenants": 20,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "runbookUrl": "https://example.org/runbooks"},
            "dashboard": {"enabled": True},
        }
    },
    "workers": {"workers": {"jobs": _WORKER, "folder": {"args": ["folder", "/docs"], "replicas": 0}}},
    "test key": {"test": {"existingSecret": "broker-test"}},
}

MATRIX: dict[str, Values] = {
    "minimal": MINIMAL,
    "trial": example("trial"),
    "production": example("production"),
    **{name: merged(MINIMAL, values) for name, values in FEATURES.items()},
}

_APART = {
    "url in values",
    "sentinel",
    "cluster",
    "trial redis that keeps",
    "open",
    "keda",
    "no account",
    "no budget",
    "no policy",
}
"""Features that switch others off."""

MATRIX["everything"] = merged(
    MINIMAL, *(values for name, values in FEATURES.items() if name not in _APART), FEATURES["placed"]
)

WHOLE = ("minimal", "trial", "production", "everything", "sentinel", "trial redis that keeps")
"""Those that hold every field between them."""
