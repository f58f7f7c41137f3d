"""The judging process: holds evaluators by number and answers questions over a pipe until the
service is gone."""

import signal
import sys
import traceback
from multiprocessing.connection import Connection

from runwatch_server.alerts.judging.messages import (
    Failed,
    GetKnown,
    GetState,
    Observe,
    Observed,
    Open,
    Question,
    Release,
    Request,
    receive,
    send,
)
from runwatch_server.alerts.judging.stream_judge import StreamJudge
from runwatch_server.rules.pack import RuleSet


class Judges:
    """The judges of one process."""

    def __init__(self) -> None:
        self._judges: dict[int, StreamJudge] = {}
        self._rule_sets: dict[str, RuleSet] = {}

    def answer(self, request: Request) -> object:
        for number in request.released:
            self._judges.pop(number, None)
        try:
            return self._answer(request.question)
        except Exception:  # noqa: BLE001 - the service logs it; other judges go on
            return Failed(traceback.format_exc())

    def _answer(self, question: Question) -> object:
        match question:
            case Open():
                return self._open(question)
            case Observe(number, rows):
                judge = self._judges[number]
                return Observed(judge.observe(rows), judge.num_bytes)
            case GetState(number):
                return self._judges[number].state()
            case GetKnown(number):
                return self._judges[number].known_to_next
            case Release():
                return None

    def _open(self, wanted: Open) -> int:
        if wanted.documents is not None:
            self._rule_sets[wanted.rule_set] = RuleSet.of_documents(wanted.documents)
        rule_set = self._rule_sets[wanted.rule_set]
        judge = StreamJudge(wanted.rank, rule_set, wanted.state, wanted.known)
        self._judges[wanted.number] = judge
        return judge.num_bytes


def main() -> None:
    # Ctrl-C and systemd signal all processes of a group. The service still has frames to drain, and
    # closes the pipe when it has no more questions. If it dies, the pipe is closed as well.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)
    judges = Judges()
    with Connection(int(sys.argv[1])) as service:
        try:
            while True:
                send(service, judges.answer(receive(service)))
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    main()
