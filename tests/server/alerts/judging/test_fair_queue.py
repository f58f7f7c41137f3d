"""Who is next, when runs ask for unequal amounts of work."""

from runwatch.vocabulary import RunId
from runwatch_server.alerts.judging.fair_queue import FairQueue, Payer, SharedQueue

FLOOD, OTHER, QUIET = RunId("flood"), RunId("other"), RunId("quiet")


def take(queue: FairQueue[RunId, str], *, seconds: float) -> str:
    run_id, work = queue.take()
    queue.charge(run_id, seconds)
    return work


def test_equal_runs_take_turns_in_the_order_in_which_they_came() -> None:
    queue: FairQueue[RunId, str] = FairQueue()
    order: list[str] = []
    for run_id in (FLOOD, OTHER):
        queue.put(run_id, run_id)
    for _ in range(4):
        order.append(take(queue, seconds=1.0))
        queue.put(RunId(order[-1]), order[-1])

    assert order == ["flood", "other", "flood", "other"]


def test_a_run_that_used_less_is_next() -> None:
    queue: FairQueue[RunId, str] = FairQueue()
    for run_id in (FLOOD, OTHER, QUIET):
        queue.put(run_id, run_id)
    take(queue, seconds=3.0)
    take(queue, seconds=1.0)
    queue.put(FLOOD, "flood")
    queue.put(OTHER, "other")
    order = [take(queue, seconds=1.0) for _ in range(3)]

    assert order == ["quiet", "other", "flood"]


def test_a_run_that_was_quiet_has_no_claim_to_what_it_did_not_use() -> None:
    queue: FairQueue[RunId, str] = FairQueue()
    for _ in range(100):
        queue.put(FLOOD, "flood")
        take(queue, seconds=1.0)
    order: list[str] = []
    queue.put(FLOOD, "flood")
    queue.put(QUIET, "quiet")
    for _ in range(4):
        order.append(take(queue, seconds=1.0))
        queue.put(RunId(order[-1]), order[-1])

    assert order == ["flood", "quiet", "flood", "quiet"]


def test_runs_whose_use_no_longer_counts_are_forgotten() -> None:
    queue: FairQueue[RunId, str] = FairQueue()
    queue.put(FLOOD, "flood")
    for index in range(1000):
        queue.put(FLOOD, "flood")
        queue.put(RunId(f"run {index}"), "quiet")
        take(queue, seconds=1.0)
        take(queue, seconds=1.0)

    assert queue.num_remembered < 100


def test_a_project_with_many_runs_delays_only_itself() -> None:
    queue: SharedQueue[str] = SharedQueue()
    for index in range(20):
        queue.put(Payer("flood", RunId(f"run {index}")), "flood")
    order: list[str] = []
    queue.put(Payer("quiet", QUIET), "quiet")
    for _ in range(4):
        payer, work = queue.take()
        order.append(work)
        queue.charge(payer, 1.0)
        queue.put(payer, work)

    assert order == ["flood", "quiet", "flood", "quiet"]


def test_runs_of_a_project_share_what_it_gets() -> None:
    queue: SharedQueue[str] = SharedQueue()
    order: list[str] = []
    for run_id in (FLOOD, OTHER):
        queue.put(Payer("project", run_id), run_id)
    while len(queue):
        payer, work = queue.take()
        order.append(work)
        queue.charge(payer, 1.0)
        if len(order) < 3:
            queue.put(payer, work)

    assert order == ["flood", "other", "flood", "other"]
