"""One real service for all jobs of a module, and the jobs ended with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.end_to_end.real_service import RealService
from tests.hooks.adapters.jobs import Job

MakeJob = Callable[[str], Job]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def make_job(service: RealService, tmp_path: Path) -> Iterator[MakeJob]:
    jobs: list[Job] = []

    def make(program: str) -> Job:
        jobs.append(Job(program, tmp_path / program, service, number=_new_number()))
        return jobs[-1]

    yield make
    for job in jobs:
        job.kill()


_numbers = iter(range(1, 10_000))


def _new_number() -> int:
    return next(_numbers)
