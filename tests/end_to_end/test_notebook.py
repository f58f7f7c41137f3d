"""The notebook of the examples finds the layer that broke, in a run that was really trained."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.end_to_end.real_service import RealService

from runwatch_hooks import attach, sync

torch = pytest.importorskip("torch")
pytest.importorskip("pandas")
pytestmark = pytest.mark.slow

NOTEBOOK: Final = Path(__file__).parents[2] / "examples" / "which_layer_broke.ipynb"
BREAKS_AT: Final = 40


def train(url: str, token: str, spool: Path) -> str:
    """Sixty steps; in one of them an element of one layer's gradient becomes NaN."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, run="breaks", url=url, token=token, spool=spool) as watch:
        for step in range(60):
            inputs = torch.randn(16, 8)
            loss = (model(inputs) - inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if step == BREAKS_AT:
                gradient = model[2].weight.grad
                assert gradient is not None
                gradient[0, 0] = float("nan")
            optimizer.step()
            watch.step(loss)
        return str(watch.run_id)


def carry_out(notebook: Path) -> tuple[dict[str, Any], str]:
    """All its code, cell by cell; the names that are left, and what was printed."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{notebook.name}#{cell['id']}", "exec")
                exec(code, names)  # noqa: S102  (our own notebook)
    return names, printed.getvalue()


def test_the_notebook_finds_the_layer_that_broke(
    service: RealService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start()
    key = service.create_key("ingest")
    run_id = train(service.url, key, tmp_path / "spool")
    monkeypatch.setenv("RUNWATCH_URL", service.url)
    monkeypatch.setenv("RUNWATCH_TOKEN", key)
    # The end of a run waits ten seconds for its numbers to arrive, and no longer.
    assert sync.main([str(tmp_path / "spool")]) == sync.ExitCode.DONE
    monkeypatch.setenv("RUNWATCH_TOKEN", service.create_key("read"))
    monkeypatch.setenv("RUNWATCH_RUN_ID", run_id)

    names, printed = carry_out(NOTEBOOK)

    assert names["first_step"] == BREAKS_AT
    assert names["first_layers"] == ["2.weight"]
    assert names["loss_broke"] == BREAKS_AT + 1
    assert "7 more layers followed, from step 41 on" in printed
    assert len(names["growth"]) == 8
