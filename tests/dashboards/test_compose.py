"""docker-compose.yml against what it names: no container engine is needed to see it lie."""

import re
import shutil
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.dashboards.compose import (
    COMPOSE_FILE,
    ROOT,
    MissingVariableError,
    filled_in,
    load_compose,
    required_variables,
)

from runwatch_server.notify.receivers import load_receivers
from runwatch_server.settings import Settings

SERVICES = ("runwatch", "postgres", "prometheus", "alertmanager", "grafana")


@pytest.fixture
def services() -> Any:
    return filled_in()["services"]


def mounts_from_here(service: Any) -> list[tuple[Path, str]]:
    """Path on this machine and in the container of what is mounted from the checkout."""
    parts = (volume.split(":") for volume in service["volumes"])
    return [(ROOT / here, there) for here, there, *_ in parts if here.startswith(".")]


def own_settings(services: Any) -> dict[str, str]:
    environment = services["runwatch"]["environment"]
    return {name: text for name, text in environment.items() if name.startswith("RUNWATCH_")}


def test_there_is_all_that_on_call_needs(services: Any) -> None:
    assert tuple(services) == SERVICES


@pytest.mark.parametrize("missing", sorted(required_variables()))
def test_without_a_secret_it_does_not_start_and_says_which(missing: str) -> None:
    given = dict.fromkeys(required_variables() - {missing}, "x")

    with pytest.raises(MissingVariableError, match=rf"{missing}: .*\.env\.example"):
        load_compose(given)


def test_the_example_of_an_environment_names_each_secret_and_gives_none() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))

    assert given == dict.fromkeys(required_variables(), "")


def test_no_secret_stands_in_the_file() -> None:
    passwords = re.findall(
        r"(?i)\w*(?:password|secret|token)\w*: *(\S.*)", COMPOSE_FILE.read_text()
    )

    assert passwords
    assert all(text.startswith("${") and ":?" in text for text in passwords)


def test_every_setting_is_one_that_the_service_knows(services: Any) -> None:
    known = {f"RUNWATCH_{field.name.upper()}" for field in fields(Settings)}

    assert set(own_settings(services)) <= known
    assert Settings.from_env(own_settings(services)).trusted_hosts[-2:] == ("runwatch", "localhost")


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_tied_down(services: Any, name: str) -> None:
    service = services[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert str(service["user"]).split(":")[0] not in ("", "root", "0")
    assert service["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_and_every_port_on_loopback(services: Any, name: str) -> None:
    image, tag = services[name]["image"].split(":")

    assert image
    assert re.search(r"\d+\.\d+", tag)
    for port in services[name].get("ports", ()):
        assert port.startswith("127.0.0.1:")


def test_only_what_asks_for_a_key_or_a_password_is_published(services: Any) -> None:
    published = {name for name, service in services.items() if service.get("ports")}

    assert published == {"runwatch", "grafana"}
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"]


def test_what_is_mounted_from_the_checkout_is_there(services: Any) -> None:
    mounted = [mount for service in services.values() for mount in mounts_from_here(service)]

    assert mounted
    for here, _ in mounted:
        assert here.exists(), here


def test_every_volume_is_declared_and_in_use(services: Any) -> None:
    used = {
        volume.split(":")[0]
        for service in services.values()
        for volume in service["volumes"]
        if volume[0] not in "./"
    }

    assert used == set(filled_in()["volumes"])


def test_every_address_in_a_configuration_is_a_service_and_a_port_of_its() -> None:
    ports = {"runwatch": 8321, "postgres": 5432, "prometheus": 9090, "alertmanager": 9093}
    texts = [COMPOSE_FILE, *(ROOT / "dashboards").rglob("*.y*ml")]
    found = {
        (host, int(port))
        for path in texts
        for host, port in re.findall(
            rf"(?://|@|\")({'|'.join(SERVICES)}):(\d+)\b", path.read_text()
        )
    }

    assert {host for host, _ in found} == set(ports)
    assert all(ports[host] == port for host, port in found)


def test_the_key_for_prometheus_is_where_the_service_writes_it(services: Any) -> None:
    written = services["runwatch"]["environment"]["RUNWATCH_SCRAPE_KEY_FILE"]
    prometheus = yaml.safe_load((ROOT / "dashboards/prometheus.yml").read_text())
    read = prometheus["scrape_configs"][0]["authorization"]["credentials_file"]

    assert f"scrape-key:{Path(written).parent}" in services["runwatch"]["volumes"]
    assert f"scrape-key:{Path(read).parent}:ro" in services["prometheus"]["volumes"]
    assert Path(read).name == Path(written).name
    assert services["prometheus"]["group_add"] == [services["runwatch"]["user"].split(":")[1]]


def test_the_example_of_receivers_can_be_used(tmp_path: Path) -> None:
    receivers = load_receivers(tmp_path, ROOT / "dashboards/receivers.yaml")

    assert receivers.alertmanagers is not None
    assert receivers.alertmanagers.urls == ("http://alertmanager:9093",)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose here")
def test_compose_itself_takes_the_file() -> None:
    variables = dict.fromkeys(required_variables(), "x")
    checked = subprocess.run(
        ["docker-compose", "--file", COMPOSE_FILE, "config", "--quiet"],
        env={**variables, "PATH": "/usr/bin:/usr/local/bin"},
        capture_output=True,
        check=False,
        text=True,
    )

    assert checked.returncode == 0, checked.stderr


def test_the_image_is_made_of_what_is_there() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    sources = [name for name in copied if not name.startswith(("--", "/"))]
    ignored = (ROOT / ".dockerignore").read_text()

    assert len(sources) > 5
    for name in sources:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored, name


def test_the_image_installs_others_work_by_its_digest_and_in_the_pinned_versions() -> None:
    """A version could be replaced in a registry; the digest of a file could not."""
    installed = re.findall(r"RUN pip install (.*?)\n[A-Z]", dockerfile := image_file(), re.S)
    by_digest, own = installed
    requirements = re.sub(r"\\\n", "", (ROOT / "requirements-image.txt").read_text())
    lines = [line for line in requirements.splitlines() if line[0] not in "# "]
    versions = dict(line.split()[0].split("==") for line in lines)
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in constraints if "==" in line)

    assert "apt-get" not in dockerfile
    assert by_digest == "--require-hashes --requirement requirements-image.txt"
    assert own.startswith("--no-deps --no-build-isolation '.[")
    assert all("--hash=sha256:" in line for line in lines)
    assert {name: pinned.get(name, version) for name, version in versions.items()} == versions
    assert wanted_by_the_image() - set(versions) == set()


def image_file() -> str:
    return (ROOT / "Dockerfile").read_text()


def wanted_by_the_image() -> set[str]:
    """Names of what the image's extras ask for, and of what builds our wheel."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    (extras,) = re.findall(r"'\.\[([a-z,]+)\]'", image_file())
    wanted = [*project["dependencies"], *document["build-system"]["requires"]]
    for extra in extras.split(","):
        wanted += project["optional-dependencies"][extra]
    return {re.split(r"[\[><=;~ ]", requirement)[0].lower() for requirement in wanted}


def test_the_image_installs_extras_that_there_are_and_no_torch() -> None:
    (wanted,) = re.findall(r"'\.\[([a-z,]+)\]'", (ROOT / "Dockerfile").read_text())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]

    assert set(wanted.split(",")) <= set(extras)
    assert not [d for extra in wanted.split(",") for d in extras[extra] if "torch" in d]
