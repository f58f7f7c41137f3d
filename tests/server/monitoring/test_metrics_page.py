"""docs/metrics.md says what `/metrics` says, and nothing else."""

import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.metrics_core import Metric
from tests.server.harness import Api, frame

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"\| `(?P<name>\w+)` \| (?P<kind>\w+) \| (?P<labels>[^|]*) \| (?P<text>[^|]+) \|")


def documented() -> dict[str, re.Match[str]]:
    rows = [row for line in PAGE.read_text().splitlines() if (row := ROW.fullmatch(line))]
    assert len({row["name"] for row in rows}) == len(rows), "a name stands twice"
    return {row["name"]: row for row in rows}


def shown_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


async def test_every_metric_is_on_the_page_and_the_page_has_no_other(api: Api) -> None:
    exposed = {shown_name(family): family for family in api.services.metrics.registry.collect()}
    page = documented()

    assert set(page) == set(exposed)
    for name, row in page.items():
        assert (row["kind"], row["text"]) == (exposed[name].type, exposed[name].documentation)


async def test_every_label_is_on_the_page(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0], stats=np.ones((1, 2), np.float32)))
    headers = {"Authorization": f"Bearer {api.admin_key}"}
    await api.http.get("/metrics", headers=headers)  # refreshes what the database is asked for
    page = documented()

    for family in api.services.metrics.registry.collect():
        for sample in family.samples:
            named = set(re.findall(r"`(\w+)`", page[shown_name(family)]["labels"]))
            assert set(sample.labels) - {"le"} == named, sample.name
