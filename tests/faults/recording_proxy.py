"""A line between trainers and a service that writes down which frames pass, and can be cut: then
nothing is refused and nothing is answered, as where packets vanish."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3
from tests.faults.history import Acked, History, Sent, checksum
from tests.faults.recording import stream_name
from tests.waiting import LONGEST_S

from runwatch.codec import CONTENT_TYPE, split_frame


class RecordingProxy(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: str, history: History) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.upstream = upstream
        self.history = history
        self.http = urllib3.PoolManager(retries=False, timeout=LONGEST_S)
        self.num_cut = 0
        """Requests that were never answered."""
        self._is_whole = threading.Event()
        self._is_whole.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def cut(self) -> None:
        self._is_whole.clear()

    def mend(self) -> None:
        self._is_whole.set()

    def lets_pass(self) -> bool:
        """Whether a request passes; one that does not is kept waiting until the line is mended,
        and its connection is gone then."""
        if self._is_whole.is_set():
            return True
        self.num_cut += 1
        self._is_whole.wait(LONGEST_S)
        return False


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        proxy = self.server
        assert isinstance(proxy, RecordingProxy), "made by it"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not proxy.lets_pass():
            self.close_connection = True
            return
        frame = self._frame(body)
        if frame is not None:
            proxy.history.note(Sent(*frame, checksum(body)))
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        url = f"{proxy.upstream}{self.path}"
        reply = proxy.http.request(self.command, url, body=body, headers=headers)
        if not proxy.lets_pass():
            self.close_connection = True
            return
        if frame is not None and reply.status == 200:
            proxy.history.note(Acked(*frame))
        self.send_response(reply.status)
        for name in ("Content-Type", "Retry-After"):
            if name in reply.headers:
                self.send_header(name, reply.headers[name])
        self.send_header("Content-Length", str(len(reply.data)))
        self.end_headers()
        self.wfile.write(reply.data)

    do_GET = do_POST = do_PUT = do_PATCH = _pass_on

    def _frame(self, body: bytes) -> tuple[str, int] | None:
        """Its stream and number."""
        if self.headers.get("Content-Type") != CONTENT_TYPE:
            return None
        header, _ = split_frame(body)
        run_id = self.path.split("/runs/")[1].split("/")[0]
        return stream_name(run_id, header.attempt, header.rank), header.seq

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the history says what passed."""


@contextmanager
def recording_proxy(upstream: str, history: History) -> Generator[RecordingProxy]:
    with RecordingProxy(upstream, history) as proxy:
        serving = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        try:
            yield proxy
        finally:
            proxy.mend()
            proxy.shutdown()
            serving.join(60)
