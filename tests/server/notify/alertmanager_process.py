"""A real Alertmanager in a process of its own, which can be killed and started again."""

import subprocess
from pathlib import Path
from typing import Final

import urllib3
import yaml
from tests.waiting import LONGEST_S, until

PROGRAM: Final = "prometheus-alertmanager"


class AlertmanagerProcess:
    """Over one folder and one port, however often it is started; tells one webhook."""

    def __init__(self, folder: Path, port: int, webhook: str) -> None:
        self._folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "route": {
                "receiver": "webhook",
                "group_by": ["alertname", "run_id"],
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [{"name": "webhook", "webhook_configs": [{"url": webhook}]}],
        }
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))

    def start(self) -> None:
        """Until it is ready."""
        with (self._folder / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAM,
                    f"--config.file={self._folder / 'alertmanager.yml'}",
                    f"--storage.path={self._folder / 'alertmanager'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                    "--cluster.listen-address=",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(self._is_ready)

    def stop(self) -> None:
        """In order: it remembers whom it told of what, but no alert."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(LONGEST_S)
            self._process = None

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "Alertmanager has ended"
        try:
            with urllib3.PoolManager(retries=False, timeout=2.0) as http:
                return http.request("GET", f"{self.url}/-/ready").status == 200
        except urllib3.exceptions.HTTPError:
            return False
