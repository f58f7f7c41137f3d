"""What is said of a job while it goes on."""

import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.end_to_end.real_service import RealService
from tests.page.sent_run import SentRun
from tests.waiting import until

from runwatch.ulids import ulid
from runwatch_server.cli.client import new_http
from runwatch_server.cli.job import title_of
from runwatch_server.cli.job_service import JobService
from runwatch_server.cli.job_watch import JobWatch
from runwatch_server.cli.output import OurConsole

JOB = ulid(1_800_000_000_000, bytes(10))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service")) as running:
        yield running


@contextmanager
def watched(service: RealService, job: str) -> Generator[io.StringIO]:
    """What is printed within."""
    out = io.StringIO()
    with new_http(service.url, service.admin_key) as http:
        reached = JobService(service.url, service.admin_key, http, str)
        console = OurConsole(file=out)
        with JobWatch(console, reached, job, title="train.py", unattached_s=0.0):
            yield out


@pytest.mark.slow
def test_a_job_that_opens_no_run_is_asked_about_once(service: RealService) -> None:
    with watched(service, JOB) as out:
        until(lambda: out.getvalue().endswith("\n"))

    assert out.getvalue().count("train.py has not called attach() yet: is it watched?") == 1
    assert "without RUNWATCH_DISABLED" in out.getvalue()


@pytest.mark.slow
def test_what_a_resumed_run_has_had_before_is_no_news(service: RealService) -> None:
    run = SentRun(service, "resumed")
    run.send([2.0] * 10 + ["NaN"] * 3)
    run.wait_for_alert("NonFinite")
    with watched(service, run.id) as out:
        pass

    assert out.getvalue() == ""


@pytest.mark.slow
def test_a_trainer_s_key_is_not_refused_again_and_again(service: RealService) -> None:
    answers: list[httpx.Response] = []
    with new_http(service.url, service.create_key("ingest")) as http:
        http.event_hooks = {"response": [answers.append]}
        reached = JobService(service.url, "", http, str)
        with JobWatch(OurConsole(file=io.StringIO()), reached, JOB, title="train.py"):
            pass

    assert [answer.status_code for answer in answers] == [403, 403]


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (["python", "train.py", "--lr", "1"], "train.py"),
        (["torchrun", "--nproc-per-node", "2", "/srv/examples/ddp.py"], "ddp.py"),
        (["python", "-m", "torch.distributed.run", "train.py"], "train.py"),
        (["python", "-m", "mine.train"], "mine.train"),
        (["/usr/bin/srun", "-n", "4", "job"], "srun"),
    ],
)
def test_a_job_is_called_by_its_script(command: list[str], title: str) -> None:
    assert title_of(command) == title
