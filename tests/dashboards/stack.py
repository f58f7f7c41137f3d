"""The processes of docker-compose.yml started by hand, with its own configuration files.

Only addresses and paths are replaced, and the intervals at which Prometheus and Alertmanager
look: a test does not wait a quarter of a minute for each scrape. SQLite takes the place of
PostgreSQL.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import urllib3
from tests.dashboards.compose import ROOT, filled_in
from tests.ports import reserved_port
from tests.waiting import until

from runwatch_server.secret_files import admin_key_in

PROGRAMS: Final = ("prometheus", "prometheus-alertmanager", "promtool", "amtool")

on_this_machine = pytest.mark.skipif(
    any(shutil.which(program) is None for program in PROGRAMS),
    reason=f"{', '.join(PROGRAMS)}: not all are on this machine",
)


class Stack:
    """Runwatch, Alertmanager and Prometheus on free ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._http = urllib3.PoolManager(retries=False, timeout=60.0)
        self._processes: list[subprocess.Popen[bytes]] = []
        names = ("runwatch:8321", "alertmanager:9093", "localhost:9090")
        self._addresses = {name: f"127.0.0.1:{reserved_port()}" for name in names}
        self.urls = {name.split(":")[0]: f"http://{at}" for name, at in self._addresses.items()}
        self.urls["prometheus"] = self.urls.pop("localhost")
        self._admin_key = ""

    def start(self) -> None:
        """In the order of the compose file, each ready before the next."""
        self._start_runwatch()
        am = self._addresses["alertmanager:9093"]
        self._run(
            "alertmanager",
            "prometheus-alertmanager",
            f"--config.file={self._rewritten('alertmanager.yml')}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={am}",
            "--cluster.listen-address=",
        )
        self._run(
            "prometheus",
            "prometheus",
            f"--config.file={self._rewritten('prometheus.yml')}",
            f"--storage.tsdb.path={self._folder / 'prometheus'}",
            f"--web.listen-address={self._addresses['localhost:9090']}",
        )
        for name in ("alertmanager", "prometheus"):
            self.until(partial(self._answers, f"{self.urls[name]}/-/ready"), name)

    def stop(self) -> None:
        self._http.clear()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self, method: str, path: str, *, base: str = "/api/v1", **arguments: Any) -> Any:
        """The service's JSON, for the admin key; the path is below `base`."""
        headers = {"Authorization": f"Bearer {self._admin_key}", **arguments.pop("headers", {})}
        url = f"{self.urls['runwatch']}{base}{path}"
        reply = self._http.request(method, url, headers=headers, **arguments)
        assert reply.status < 300, (path, reply.data)
        return json.loads(reply.data)

    def knock(self) -> None:
        """A request that is refused, so that there is one to be seen."""
        url = f"{self.urls['runwatch']}/api/v1/runs"
        assert self._http.request("GET", url, headers={"Authorization": "Bearer x"}).status == 401

    def get(self, name: str, path: str, **fields: str) -> Any:
        """Another program's JSON."""
        reply = self._http.request("GET", f"{self.urls[name]}{path}", fields=fields)
        assert reply.status == 200, (path, fields, reply.data)
        return json.loads(reply.data)

    def expire(self, silence: str) -> None:
        """End a silence of Alertmanager's."""
        url = f"{self.urls['alertmanager']}/api/v2/silence/{silence}"
        assert self._http.request("DELETE", url).status == 200

    def query(self, expression: str) -> list[Any]:
        """What Prometheus answers to an expression now."""
        result: list[Any] = self.get("prometheus", "/api/v1/query", query=expression)["data"][
            "result"
        ]
        return result

    def has(self, expression: str) -> bool:
        return bool(self.query(expression))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        def are_well_and_it_holds() -> bool:
            assert all(process.poll() is None for process in self._processes), self._logs()
            return holds()

        until(are_well_and_it_holds, said=lambda: f"{what}\n{self._logs()}")

    def health_check(self, name: str) -> list[str]:
        """The command of the compose file, with the address of this stack's process."""
        command: list[str] = filled_in()["services"][name]["healthcheck"]["test"][1:]
        port = next(place for place in self._addresses if place.startswith(name)).split(":")[1]
        at = self.urls[name].removeprefix("http://")
        return [word.replace(f"127.0.0.1:{port}", at) for word in command]

    def _start_runwatch(self) -> None:
        environment = filled_in()["services"]["runwatch"]["environment"]
        settings = {name: text for name, text in environment.items() if name != "PGPASSWORD"}
        del settings["RUNWATCH_DATABASE_URL"]
        settings |= {
            "RUNWATCH_PORT": self._addresses["runwatch:8321"].split(":")[1],
            "RUNWATCH_DATA_DIR": str(self._folder / "data"),
            "RUNWATCH_RECEIVERS": str(self._rewritten("receivers.yaml")),
            "RUNWATCH_SCRAPE_KEY_FILE": str(self._folder / "key"),
        }
        command = (sys.executable, "-m", "runwatch_server.cli", "serve")
        self._run("runwatch", *command, environment=settings)
        log_file = self._folder / "runwatch.log"
        self.until(lambda: "listens on" in log_file.read_text(), "runwatch")
        self._admin_key = admin_key_in(self._folder / "data") or ""

    def _rewritten(self, name: str) -> Path:
        text = (ROOT / "dashboards" / name).read_text()
        for place, address in self._addresses.items():
            text = text.replace(place, address)
        text = text.replace("/etc/prometheus/scrape-key/key", str(self._folder / "key"))
        text = text.replace("/etc/prometheus/prometheus-rules.yml", str(RULES))
        text = text.replace("_interval: 15s", "_interval: 500ms")
        text = re.sub(r"\bgroup_interval: \w+", "group_interval: 1s", text)
        written = self._folder / name
        written.write_text(text)
        return written

    def _run(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> None:
        with (self._folder / f"{name}.log").open("ab") as log_file:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **(environment or {})},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=subprocess.STDOUT,
                )
            )

    def _answers(self, url: str) -> bool:
        try:
            return self._http.request("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self._folder.glob("*.log"))


RULES: Final = ROOT / "dashboards" / "prometheus-rules.yml"
