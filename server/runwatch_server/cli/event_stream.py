"""Waits for events of a run: server-sent events, read in a thread."""

import threading
from contextlib import suppress
from typing import Final

import httpx

from runwatch_server.cli.client import new_http

_SILENT_S: Final = 45.0
"""The service sends something at least every 15 s; a longer silence means a dead connection."""
_RETRY_S: Final = 3.0


class EventStream:
    """Tells whether there are new events of a run, while used in a `with` statement.

    If no stream gets through (a buffering proxy, a service that is away), `wait` ends after its
    time, so that the caller polls; the thread goes on trying.
    """

    def __init__(self, url: str, token: str, run_id: str) -> None:
        self._http = new_http(url, token)
        self._run_id = run_id
        self._news = threading.Event()
        self._is_over = threading.Event()
        self._last_id: str | None = None
        self.is_open = False
        self._thread = threading.Thread(target=self._work, name="runwatch-tail", daemon=True)

    def __enter__(self) -> "EventStream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The thread ends with its next line or with the process; nothing waits for it."""
        self._is_over.set()

    def wait(self, poll_s: float) -> None:
        """Waits until there are new events, or this time is over."""
        self._news.wait(poll_s)
        self._news.clear()

    def _work(self) -> None:
        while not self._is_over.is_set():
            with suppress(httpx.HTTPError):  # `wait` polls meanwhile
                self._read()
            self.is_open = False
            self._is_over.wait(_RETRY_S)

    def _read(self) -> None:
        headers = {} if self._last_id is None else {"Last-Event-ID": self._last_id}
        asked = {"run_id": self._run_id}
        with self._http.stream(
            "GET", "/stream", params=asked, headers=headers, timeout=_SILENT_S
        ) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                self._note(line)
                if self._is_over.is_set():
                    return

    def _note(self, line: str) -> None:
        self.is_open = True
        field, _, value = line.partition(":")
        if field == "id":
            self._last_id = value.strip()
        elif field == "data":
            self._news.set()
