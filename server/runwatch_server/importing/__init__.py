"""Reads logs of other programs as runs: CSV, JSON lines, Hugging Face, TensorBoard, W&B."""

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.reading import read_run_log
from runwatch_server.importing.run_log import RunLog

__all__ = ["LogError", "RunLog", "read_run_log"]
