"""A body that was compressed on its way is refused as that, and not as broken JSON."""

import gzip

import pytest
from tests.server.harness import Api

pytestmark = pytest.mark.anyio


async def test_a_compressed_body_is_refused_by_its_coding(api: Api) -> None:
    refused = await api.call(
        "POST", "/runs", content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
    )

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (415, "unsupported_coding")
    assert problem["detail"] == "Content-Encoding: found 'gzip', wanted none"


async def test_a_body_that_says_it_is_as_it_is_is_read(api: Api) -> None:
    answer = await api.call(
        "POST",
        "/keys",
        json={"name": "reader", "scopes": ["read"]},
        headers={"Content-Encoding": "identity"},
    )

    assert answer.status_code == 201


async def test_no_body_at_all_is_told_so(api: Api) -> None:
    refused = await api.call("POST", "/runs")

    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "body: found nothing, wanted JSON",
    )
