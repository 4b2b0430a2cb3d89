# nanobot with the helper of its WhatsApp channel. Everything of yours lies in /data; no port is
# opened unless a channel with a webhook, or `health`, is configured. docs/docker.md says more.
#
#     docker build -t nanobot .
#     docker run -d --name nanobot --stop-timeout 35 -v nanobot:/data nanobot
#     docker exec -it nanobot nanobot agent
#
# --build-arg WITH_WHATSAPP=0           without Node.js and the helper, which are a third of the image
# --build-arg PACKAGES="git curl jq"    more Debian packages, for the commands that the agent runs
# --build-arg DEBIAN=debian:trixie-slim       the base of today; docs/docker.md says how to renew it

ARG DEBIAN=debian:trixie-slim@sha256:3a39a0592364683e6bab97937b72cad5a8fa6dcbbee90edb3bb48c7f8e94f258


# What nanobot is made of, in the versions of deploy/requirements.txt: made anew when these change.
FROM ${DEBIAN} AS packages
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-hatchling python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY deploy/requirements.txt /src/deploy/requirements.txt
RUN python3 -m venv --without-pip /opt/nanobot \
    && pip --python /opt/nanobot/bin/python install \
        --no-compile --no-deps --only-binary=:all: --require-hashes -r /src/deploy/requirements.txt \
    && cd /opt/nanobot/lib/python3*/site-packages \
    && echo /opt/nanobot/app > nanobot-app.pth \
    && python3 -m compileall -q --invalidation-mode unchecked-hash .


# nanobot itself, in a folder of its own: a change of the sources makes one small layer anew.
FROM packages AS nanobot
WORKDIR /src
COPY pyproject.toml README.md LICENSE config.example.yaml ./
COPY nanobot nanobot
COPY channels channels
COPY workspace workspace
RUN python3 -m hatchling build -t wheel -d /wheel \
    && pip --python /opt/nanobot/bin/python install \
        --no-compile --no-deps --no-index --target /app /wheel/*.whl \
    && rm -rf /app/nanobot_whatsapp/bridge \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /app -p /opt/nanobot/app /app \
    && PYTHONPATH=/app pip --python /opt/nanobot/bin/python check


# The WhatsApp helper, built where nanobot looks for it first: beside its sources.
FROM ${DEBIAN} AS bridge
ARG WITH_WHATSAPP=1
RUN if [ "$WITH_WHATSAPP" != 0 ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends nodejs npm \
        && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /bridge
COPY channels/nanobot_whatsapp/bridge/package.json \
    channels/nanobot_whatsapp/bridge/package-lock.json \
    channels/nanobot_whatsapp/bridge/.npmrc ./
RUN [ "$WITH_WHATSAPP" = 0 ] || npm ci --omit=dev --ignore-scripts --no-audit --no-fund
COPY channels/nanobot_whatsapp/bridge ./
RUN [ "$WITH_WHATSAPP" = 0 ] \
    || { npm run build --ignore-scripts && rm -rf node_modules/typescript node_modules/.bin; }


# What runs: no compiler, no pip, no npm.
FROM ${DEBIAN}
ARG WITH_WHATSAPP=1
ARG PACKAGES=""
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        bubblewrap ca-certificates python3 tini tzdata \
        $([ "$WITH_WHATSAPP" = 0 ] || echo nodejs) $PACKAGES \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
    && useradd --uid 1000 --no-log-init --home-dir /data --shell /usr/sbin/nologin nanobot \
    && install -d -o nanobot -g nanobot -m 700 /data /shared
COPY --from=packages /opt/nanobot /opt/nanobot
COPY --from=bridge /bridge /opt/nanobot/app/nanobot_whatsapp/bridge
COPY --from=nanobot /app /opt/nanobot/app

ENV PATH=/opt/nanobot/app/bin:/opt/nanobot/bin:$PATH \
    LANG=C.UTF-8 \
    NANOBOT_HOME=/data \
    PYTHONDONTWRITEBYTECODE=1
USER nanobot
WORKDIR /data
VOLUME /data
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=2 \
    CMD ["nanobot", "status", "--check"]
ENTRYPOINT ["tini", "--", "nanobot"]
CMD ["gateway"]

ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="nanobot" \
    org.opencontainers.image.description="A personal chat agent that never loses a message." \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION"
