"""Sends spools to the service afterwards: `python -m runwatch_hooks.sync DIR...`.

If a run trained without a service, or the service was away when it ended, its data is in folders
below the spool directory. Each is sent in order, and removed once everything is stored. This can be
repeated or interrupted, and the service may fail in between: nothing is stored twice.

The service's address and key are taken from RUNWATCH_URL and RUNWATCH_TOKEN.

Exit status:
    0  everything is stored, or there was nothing to store
    1  something is left (no answer, a key refused, a trainer still running): run it again
    2  wrong use: no address, no such folder
    3  everything is stored except what was damaged on disk or refused; that is kept in the spool's
       folder, as *.seg.bad and *.bad, and the folder stays as long as it holds such a file
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, TextIO

import msgspec

from runwatch.errors import InvalidInputError
from runwatch.number_texts import counted
from runwatch.terminal_text import readable, readable_json, readable_line
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.settings.environment import Environment, read_environment
from runwatch_hooks.uplink.backlog import Patience, Tally, bring_in
from runwatch_hooks.uplink.client import Client, UplinkError, UplinkSettings
from runwatch_hooks.uplink.spool import SpoolFolder, find_spools

log = OwnLog(__name__)

_PATIENCE_S: Final = 60.0
_TOLD_EVERY_S: Final = 1.0


class ExitCode(IntEnum):
    DONE = 0
    LEFT = 1
    USAGE = 2
    DAMAGED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        settings = _settings(read_environment(), options.url)
    except InvalidInputError as error:
        return _usage_error(str(error))
    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        return _usage_error(f"no such folder: {', '.join(map(str, missing))}")
    found = (spool.resolve() for folder in options.folders for spool in find_spools(folder))
    spools = list(dict.fromkeys(found))
    if not spools:
        sys.stderr.write("nothing is left to bring in: no spool (a meta.json) lies there\n")
        return ExitCode.DONE
    worst = ExitCode.DONE
    for index, spool in enumerate(spools, start=1):  # a failure does not affect the others
        progress = Progress(f"[{index}/{len(spools)}] {spool}", sys.stderr)
        code = _sync_one(spool, settings, Patience(options.patience), progress)
        if options.json:
            facts = {"spool": str(spool), "result": code.name.lower(), "said": progress.last}
            sys.stdout.write(readable_json(msgspec.json.encode(facts).decode()) + "\n")
        worst = _worse(worst, code)
    return worst


def _sync_one(
    spool: Path, settings: UplinkSettings, patience: Patience, progress: "Progress"
) -> ExitCode:
    client = Client.of(settings)
    assert client is not None
    folder = SpoolFolder(spool)
    try:
        folder.lock()
        tally = bring_in(
            folder,
            client,
            patience=patience,
            on_progress=progress.tell,
        )
    except BlockingIOError:
        return progress.end(ExitCode.LEFT, "left: its trainer is still running")
    except UplinkError as error:
        return progress.end(ExitCode.LEFT, f"left: {error}")
    except OSError as error:
        return progress.end(ExitCode.LEFT, f"left: {error}")
    except (msgspec.DecodeError, InvalidInputError) as error:
        return progress.end(ExitCode.DAMAGED, f"not readable: {error}")
    finally:
        folder.close()
        client.close()
    return progress.end(ExitCode.DONE if tally.is_whole else ExitCode.DAMAGED, _summary(tally))


class Progress:
    """One line per spool: rewritten in place on a terminal, and once a second elsewhere."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._told_at = 0.0
        self.last = ""
        """The last line, which says how it ended."""

    def tell(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._told_at < _TOLD_EVERY_S:
            return
        self._told_at = now
        left = f"{tally.num_bytes_left / 2**20:.1f} MiB left"
        self._write(f"{self._title}: {counted(tally.num_steps, 'step')}, {left}", is_last=False)

    def end(self, code: ExitCode, text: str) -> ExitCode:
        self.last = text
        self._write(f"{self._title}: {text}", is_last=True)
        return code

    def _write(self, line: str, *, is_last: bool) -> None:
        line = readable_line(line)
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{line}" + ("\n" if is_last else ""))
        else:
            self._stream.write(line + "\n")
        self._stream.flush()


def _summary(tally: Tally) -> str:
    text = f"{counted(tally.num_steps, 'step')} in {counted(tally.num_frames, 'frame')} stored"
    if tally.num_refused:
        text += f", {counted(tally.num_refused, 'frame')} refused (kept as *.bad)"
    if tally.num_damaged_bytes:
        text += f", {counted(tally.num_damaged_bytes, 'byte')} damaged"
    if tally.num_damaged_files:
        text += f", {counted(tally.num_damaged_files, 'damaged file')} kept (*.seg.bad)"
    return text


def _worse(left: ExitCode, right: ExitCode) -> ExitCode:
    """The worse exit code. LEFT is worse than DAMAGED, because running it again can help."""
    if ExitCode.LEFT in (left, right):
        return ExitCode.LEFT
    return max(left, right)


def _settings(environment: Environment, url: str | None) -> UplinkSettings:
    address = url or environment.url
    if address is None:
        raise InvalidInputError("url: found none, wanted --url or RUNWATCH_URL")
    return UplinkSettings(url=address, token=environment.token, spool_dir=environment.spool_dir)


def _usage_error(message: str) -> ExitCode:
    sys.stderr.write(readable(f"runwatch sync: {message}\n"))
    return ExitCode.USAGE


def _parser() -> argparse.ArgumentParser:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="runwatch sync",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="where spools lie")
    parser.add_argument("--url", help="address of the service (default: RUNWATCH_URL)")
    parser.add_argument(
        "--patience",
        type=float,
        default=_PATIENCE_S,
        metavar="SECONDS",
        help="how long to go on asking a service that does not answer (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each spool, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
