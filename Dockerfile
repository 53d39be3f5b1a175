# One image for brokers and workers: `broker serve` by default, `workers …` or a program of yours in its place.
# It runs as a user without rights, writes nothing but /tmp, and holds no compiler and no pip.
#
#   docker build --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) -t mcp-resource-broker .

# A release pins the digest as well: --build-arg BASE=python:3.13-slim-trixie@sha256:…
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/broker && /opt/broker/bin/python -m pip install --quiet pip==26.3
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY broker broker
COPY workers workers
# The same versions as everywhere else, and then without what installs: nothing can be added at run time.
RUN /opt/broker/bin/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt \
        '.[server,folder,otel,postgres]' \
    && /opt/broker/bin/python -m pip uninstall --quiet --yes pip

FROM ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="MCP resource broker" \
      org.opencontainers.image.description="Backend jobs publish, many tenants' MCP clients subscribe, on any replica." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 broker \
    && useradd --uid 10001 --gid broker --no-create-home --home-dir /tmp --shell /usr/sbin/nologin broker
COPY --from=build /opt/broker /opt/broker
ENV PATH=/opt/broker/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    BROKER_INTERNAL_HOST=0.0.0.0 \
    BROKER_LOG__FORMAT=json
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000 8001
# Leaving gracefully begins with it (docs/operations/upgrade.md).
STOPSIGNAL SIGTERM
# For engines without probes of their own; Kubernetes does not look at it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8001/livez', timeout=2)"]
ENTRYPOINT ["broker"]
CMD ["serve"]
