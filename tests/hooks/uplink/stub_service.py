"""A small real service on a loopback port that speaks the true messages, and fails on demand."""

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from runwatch.codec import decode_frame
from runwatch.commands import Command, Receipt
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.messages import (
    ATTEMPT_TOKEN_HEADER,
    WRONG_ATTEMPT_TOKEN,
    AttemptClose,
    AttemptOpen,
    AttemptOpened,
    CommandsReply,
    FrameReply,
    Heartbeat,
    HeartbeatReply,
    Problem,
    RunOpen,
)

TOKEN: Final = "rw_test-key"


class Fault(Enum):
    HANG_UP = auto()
    """Closes the connection without having done anything."""
    BUSY = auto()
    """503 with Retry-After: 0."""
    LIMITED = auto()
    """429 with Retry-After: 0."""
    DROP_REPLY = auto()
    """Stores, then closes the connection."""
    NONSENSE = auto()
    """200 and a proxy's login page; nothing is stored."""
    MOVED = auto()
    """302 to a page of the service's own: as from http to https."""
    FORBIDDEN = auto()
    STALE = auto()
    BAD_FRAME = auto()
    TOO_FAR = auto()
    """400: final for this frame."""
    FORGET_LAYOUTS = auto()


class StubService:
    """What was told to the service, by kind; and the faults to come."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.runs: dict[str, RunOpen] = {}
        self.attempts: dict[str, AttemptOpen] = {}
        self.layouts: dict[str, Layout] = {}
        self.frames: dict[tuple[int, int, int], Frame] = {}
        """By attempt, rank and sequence number, in the order of their coming."""
        self.num_duplicates = 0
        self.num_late = 0
        self.num_polls = 0
        self.beats: list[Heartbeat] = []
        self.receipts: list[Receipt] = []
        self.closings: list[AttemptClose] = []
        self.commands: list[Command] = []
        """Repeated in every reply until a receipt for them has come."""
        self.frame_faults: deque[Fault | None] = deque()
        """One for each of the next frames."""
        self.receipt_faults: deque[Fault] = deque()
        self.fault: Fault | None = None
        """For every request, until it is taken away."""
        self.max_frame_steps = 10**9
        """413 beyond."""
        self.max_layouts = 10**9
        """422 beyond."""
        self.clock_offset_s = 0.0
        self.secret = b""
        """Given to each attempt that is opened."""
        self.url = ""

    @property
    def steps(self) -> list[int]:
        """Every step stored, in the order of the sequence numbers."""
        ordered = [self.frames[key] for key in sorted(self.frames)]
        return [frame.first_step + i for frame in ordered for i in range(frame.num_steps)]

    def check_proof(self, path: str, token: str | None) -> None:
        """Whatever is about an attempt must prove that it comes from one that was opened."""
        is_opening = path.endswith(("/runs", "/attempts"))
        if not is_opening and token not in self.attempts:
            raise Refusal(403, WRONG_ATTEMPT_TOKEN)

    def answer(  # noqa: C901  one flat table of routes
        self, method: str, path: str, query: dict[str, list[str]], body: bytes
    ) -> object:
        """Does what a request asks, and returns the message of the reply."""
        match [method, *path.removeprefix("/api/v1/").split("/")]:
            case ["POST", "runs"]:
                run = msgspec.json.decode(body, type=RunOpen)
                self.runs[run.run_id] = run
                return run
            case ["POST", "runs", run_id, "attempts"] if run_id in self.runs:
                opened = msgspec.json.decode(body, type=AttemptOpen)
                self.attempts.setdefault(opened.token, opened)
                number = list(self.attempts).index(opened.token) + 1
                return AttemptOpened(number, self.secret)
            case ["POST", "runs", run_id, "attempts", _, "close"] if run_id in self.runs:
                self.closings.append(msgspec.json.decode(body, type=AttemptClose))
                return {}
            case ["PUT", "runs", run_id, "layouts", layout_hash] if run_id in self.runs:
                if len(self.layouts) >= self.max_layouts:
                    raise Refusal(422, "too_many_layouts")
                self.layouts[layout_hash] = Layout.from_document(msgspec.json.decode(body))
                return {}
            case ["POST", "runs", run_id, "frames"] if run_id in self.runs:
                return self._store(decode_frame(body), late="late" in query)
            case ["POST", "runs", run_id, "heartbeat"] if run_id in self.runs:
                self.beats.append(msgspec.json.decode(body, type=Heartbeat))
                return HeartbeatReply(time.time() + self.clock_offset_s, self.pending())
            case ["GET", "runs", run_id, "commands", "next"] if run_id in self.runs:
                return CommandsReply(self._await_commands(float(query["wait_s"][0])))
            case ["POST", "commands", _, "receipt"]:
                self.receipts.append(msgspec.json.decode(body, type=Receipt))
                return {}
            case _:
                raise Refusal(404, "not_found")

    def forget(self) -> None:
        """As if an older database had been put back."""
        self.runs.clear()
        self.attempts.clear()

    def pending(self) -> tuple[Command, ...]:
        answered = {receipt.command_id for receipt in self.receipts}
        return tuple(command for command in self.commands if command.id not in answered)

    def send(self, command: Command) -> None:
        with self.changed:
            self.commands.append(command)
            self.changed.notify_all()

    def _await_commands(self, wait_s: float) -> tuple[Command, ...]:
        with self.changed:
            self.num_polls += 1
            self.changed.wait_for(self.pending, wait_s)
        return self.pending()

    def _store(self, frame: Frame, *, late: bool) -> FrameReply:
        if frame.num_steps > self.max_frame_steps:
            raise Refusal(413, "frame_too_large")
        if frame.layout_hash and frame.layout_hash not in self.layouts:
            raise Refusal(409, "unknown_layout")
        key = (frame.attempt, frame.rank, frame.seq)
        is_known = key in self.frames
        self.num_duplicates += is_known
        self.num_late += late
        self.frames.setdefault(key, frame)
        return FrameReply(frame.seq, frame.seq + 1, is_known, self.pending())


class Refusal(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: StubService

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = urlsplit(self.path)
        fault = self._fault(parts.path)
        if fault is Fault.FORGET_LAYOUTS:
            self.service.layouts.clear()
        refusals = {
            Fault.BUSY: Refusal(503, "busy"),
            Fault.LIMITED: Refusal(429, "rate_limited"),
            Fault.FORBIDDEN: Refusal(403, "foreign_key"),
            Fault.STALE: Refusal(409, "stale_attempt"),
            Fault.BAD_FRAME: Refusal(400, "invalid_frame"),
            Fault.TOO_FAR: Refusal(422, "seq_too_far"),
        }
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "unknown_key")
            if fault in refusals:
                raise refusals[fault]
            if fault is Fault.HANG_UP:
                self._hang_up()
            elif fault in (Fault.MOVED, Fault.NONSENSE):
                status = 302 if fault is Fault.MOVED else 200
                self._reply(status, b"<html>Please log in</html>", "text/html")
            else:
                self.service.check_proof(parts.path, self.headers.get(ATTEMPT_TOKEN_HEADER))
                message = self.service.answer(self.command, parts.path, parse_qs(parts.query), body)
                if fault is Fault.DROP_REPLY:
                    self._hang_up()
                else:
                    self._reply(200, msgspec.json.encode(message))
        except Refusal as refusal:
            problem = Problem(title="", status=refusal.status, code=refusal.code)
            self._reply(refusal.status, msgspec.json.encode(problem))

    def _fault(self, path: str) -> Fault | None:
        service = self.service
        if path.endswith("/frames") and service.frame_faults:
            return service.frame_faults.popleft()
        if path.endswith("/receipt") and service.receipt_faults:
            return service.receipt_faults.popleft()
        return service.fault

    def _hang_up(self) -> None:
        self.close_connection = True

    def _reply(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", "0")
        if status == 302:
            self.send_header("Location", f"{self.service.url}/elsewhere")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(service: StubService, port: int = 0) -> Generator[StubService]:
    """The service on a loopback port, for as long as the block lasts."""

    class Handler(_Handler):
        pass

    Handler.service = service
    server = _Server(("127.0.0.1", port), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no fault here."""
