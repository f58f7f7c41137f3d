# The service, without torch: what `runwatch serve` needs and no more. docker-compose.yml builds it.

FROM python:3.11.13-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/runwatch
ENV PATH=/opt/runwatch/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# First what others have made, each file by its digest; then our own wheel, for which nothing is fetched.
COPY requirements-image.txt ./
RUN pip install --require-hashes --requirement requirements-image.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY docs/runbooks docs/runbooks
COPY watchdog watchdog
COPY hooks hooks
COPY server server
COPY migrations migrations
RUN pip install --no-deps --no-build-isolation '.[server,postgres,objects,oncall,arrow]' \
    && pip check

FROM python:3.11.13-slim-bookworm
RUN groupadd --system --gid 10001 runwatch \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/runwatch runwatch \
    && install --directory --owner=10001 --group=10001 --mode=0750 \
        /var/lib/runwatch /var/lib/runwatch-scrape-key
COPY --from=build /opt/runwatch /opt/runwatch
ENV PATH=/opt/runwatch/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RUNWATCH_DATA_DIR=/var/lib/runwatch
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/runwatch
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8321/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["runwatch"]
CMD ["serve"]
