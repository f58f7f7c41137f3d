"""A run whose numbers a test sends itself, as any language could: JSON over HTTP."""

import itertools
import time
from collections.abc import Sequence
from typing import Any, Final

from tests.end_to_end.real_service import RealService
from tests.proofs import token_of
from tests.waiting import until

from runwatch.layouts import Layer, Layout
from runwatch.ulids import ulid

_NUMBERS: Final = itertools.count(1000)


class SentRun:
    """Opened at once, with one attempt; `layers` are those of its one stat, `grad_norm`."""

    def __init__(
        self,
        service: RealService,
        name: str,
        *,
        project: str = "default",
        layers: Sequence[str] = (),
        allow: Sequence[str] = (),
    ) -> None:
        self._service = service
        self._layout = Layout(tuple(Layer(layer, (4,)) for layer in layers), ("grad_norm",))
        self._num_frames = 0
        self.num_steps = 0
        self.id = ulid(int(time.time() * 1000), next(_NUMBERS).to_bytes(10, "big"))
        service.ask("POST", "/runs", {"run_id": self.id, "name": name, "project": project})
        facts = {"token": token_of(self.id), "started_at": time.time(), "allow": list(allow)}
        self._attempt = service.ask("POST", f"/runs/{self.id}/attempts", facts)["attempt"]
        if layers:
            document = self._layout.to_document()
            service.ask("PUT", f"/runs/{self.id}/layouts/{self._layout.hash}", document)

    def send(self, losses: Sequence[float | str], norms: Sequence[float | str] = ()) -> None:
        """Steps that follow; `norms` are the layers' gradient norms, the same at each step."""
        self._num_frames += 1
        frame: dict[str, Any] = {
            "attempt": self._attempt,
            "seq": self._num_frames,
            "first_step": self.num_steps,
            "metrics": {"loss": list(losses)},
        }
        if norms:
            frame["layout"] = self._layout.hash
            frame["stats"] = {"grad_norm": [list(norms)] * len(losses)}
        self._service.ask("POST", f"/runs/{self.id}/frames", frame)
        self.num_steps += len(losses)

    def wait_for_alert(self, rule: str) -> str:
        """The id of the run's newest alert by a rule."""
        path = f"/alerts?run_id={self.id}&rule={rule}"
        newest, *_ = until(lambda: self._service.ask("GET", path)["alerts"])
        alert_id: str = newest["id"]
        return alert_id
