# nanobot with the helper of its WhatsApp channel. State lies in /data; nothing listens on a port unless
# a channel with a webhook is configured.
#
#     docker build -t nanobot .
#     docker run -d --name nanobot -v nanobot:/data nanobot
#     docker exec -it nanobot nanobot agent

FROM debian:trixie-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv nodejs npm
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY nanobot nanobot
COPY channels channels
COPY workspace workspace
RUN python3 -m venv /opt/nanobot && /opt/nanobot/bin/pip install --no-cache-dir .
RUN cd /opt/nanobot/lib/python3*/site-packages/nanobot_whatsapp/bridge \
    && npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
    && npm run build

FROM debian:trixie-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        bubblewrap ca-certificates git nodejs python3 tini tzdata \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/nanobot /opt/nanobot
RUN useradd --create-home --uid 1000 nanobot && install -d -o nanobot -m 700 /data
USER nanobot
ENV PATH=/opt/nanobot/bin:$PATH NANOBOT_HOME=/data
VOLUME /data
ENTRYPOINT ["tini", "--"]
CMD ["nanobot", "gateway"]
