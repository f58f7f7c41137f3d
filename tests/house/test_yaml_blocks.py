"""The YAML that the documents show is taken by the program that reads such a file.

Files of rules' tests are run with the blocks of their pages.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.house import documents
from tests.house.documents import Block
from typer.testing import CliRunner

from runwatch_server.cli.app import app
from runwatch_server.notify.receivers import load_receivers


def blocks_with(*keys: str) -> list[Any]:
    """Those that have one of these at the top, each under its place."""
    return [
        pytest.param(block, id=block.place)
        for block in documents.blocks("yaml")
        if not set(keys).isdisjoint(yaml.safe_load(block.text))
    ]


def check_rules(text: str, folder: Path) -> None:
    (folder / "rules.yaml").write_text(text, encoding="utf-8")
    checked = CliRunner().invoke(app, ["rules", "check", str(folder / "rules.yaml")])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("block", blocks_with("groups"))
def test_rules_are_good(block: Block, tmp_path: Path) -> None:
    check_rules(block.text, tmp_path)


@pytest.mark.parametrize("block", blocks_with("diagnosis"))
def test_a_part_of_a_rule_fits_one(block: Block, tmp_path: Path) -> None:
    rule = {"alert": "Any", "when": "loss > 1", **yaml.safe_load(block.text)}

    check_rules(
        yaml.safe_dump({"version": 1, "groups": [{"name": "any", "rules": [rule]}]}), tmp_path
    )


@pytest.mark.parametrize("block", blocks_with("receivers", "alertmanager"))
def test_receivers_can_be_told(block: Block, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pagerduty://key@api\n", encoding="utf-8")
    file = tmp_path / "receivers.yaml"
    file.write_text(block.text.replace("/run/secrets/pagerduty", str(secret)), encoding="utf-8")

    load_receivers(tmp_path, file)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
@pytest.mark.parametrize("block", blocks_with("scrape_configs"))
def test_prometheus_takes_its_configuration(block: Block, tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(block.text, encoding="utf-8")
    checked = subprocess.run(
        ["promtool", "check", "config", "--syntax-only", "prometheus.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_is_no_other_yaml() -> None:
    known = {"groups", "diagnosis", "receivers", "alertmanager", "scrape_configs", "tests"}
    for block in documents.blocks("yaml"):
        assert not known.isdisjoint(yaml.safe_load(block.text)), block.place
