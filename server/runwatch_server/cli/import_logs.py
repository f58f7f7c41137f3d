"""`runwatch import`: turns logs of other programs into finished runs of a service."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec
import typer

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.messages import ATTEMPT_TOKEN_HEADER, AttemptClose, AttemptOpened, FrameReply
from runwatch.terminal_text import encodable
from runwatch_server.cli.answers import Facts
from runwatch_server.cli.client import DEFAULT_URL, Client, Token, Url, open_client
from runwatch_server.cli.output import AsJson, OurConsole, print_either
from runwatch_server.cli.progress import new_progress, warn_unreadable
from runwatch_server.importing import LogError, read_run_log
from runwatch_server.importing.parcels import Parcel


class _Run(msgspec.Struct, frozen=True):
    id: str


class _Layout(msgspec.Struct, frozen=True):
    hash: str


def import_logs(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Logs in any known format, or folders of them."),
    ],
    project: Annotated[str, typer.Option(help="Project of the runs.")] = "default",
    name: Annotated[str | None, typer.Option(help="Name of the run; default: the file's.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Import logs into a service as finished runs; importing them again changes nothing.

    Needs a key with the scope ingest. Exits with 1 if a file could not be read; the others are
    still imported.
    """
    console = OurConsole(stderr=True)
    project, name = encodable(project), name and encodable(name)
    num_failed = 0
    with open_client(url, token) as client, new_progress(console) as progress:
        for path in logs:
            try:
                parcel = Parcel(read_run_log(path), project)
            except (LogError, OSError) as error:
                warn_unreadable(console, path, error)
                num_failed += 1
                continue
            task = progress.add_task(path.name[-40:], total=parcel.num_steps)
            advance = partial(progress.advance, task)
            num_new = _send(client, parcel, name or parcel.log.name, advance)
            _print_outcome(path, parcel, num_new, as_json=as_json)
    if num_failed:
        raise typer.Exit(1)


def _send(client: Client, parcel: Parcel, name: str, advance: Callable[[int], None]) -> int:
    """The number of frames that the service did not have yet."""
    run_path = f"/runs/{parcel.run_id}"
    _post(client, _Run, "/runs", parcel.run(name))
    num_new = 0
    for attempt in parcel.attempts:
        wanted = parcel.attempt(attempt)
        proof = {ATTEMPT_TOKEN_HEADER: wanted.token}
        number = _post(client, AttemptOpened, f"{run_path}/attempts", wanted).attempt
        if parcel.layout is not None:
            path = f"{run_path}/layouts/{parcel.layout.hash}"
            body = msgspec.json.encode(parcel.layout.to_document())
            client.request(_Layout, "PUT", path, content=body, headers=proof)
        last_step = 0
        for frame in parcel.frames(attempt, number):
            reply = client.request(
                FrameReply,
                "POST",
                f"{run_path}/frames?late=true",
                content=encode_frame(frame),
                headers={"Content-Type": CONTENT_TYPE} | proof,
            ).facts
            num_new += not reply.duplicate
            last_step = frame.last_step
            advance(frame.num_steps)
        closing = AttemptClose("finished", last_step, "brought in from a log")
        _post(client, _Run, f"{run_path}/attempts/{number}/close", closing, proof)
    return num_new


def _post(
    client: Client,
    kind: type[Facts],
    path: str,
    message: msgspec.Struct,
    proof: Mapping[str, str] = MappingProxyType({}),
) -> Facts:
    body = msgspec.json.encode(message)
    headers = {"Content-Type": "application/json", **proof}
    return client.request(kind, "POST", path, content=body, headers=headers).facts


def _print_outcome(path: Path, parcel: Parcel, num_new: int, *, as_json: bool) -> None:
    what = f"{parcel.log.num_rows} rows" if num_new else "all of it was there already"
    notes = "".join(f"\n  {note}" for note in parcel.log.notes)
    facts = {
        "file": str(path),
        "run_id": parcel.run_id,
        "rows": parcel.log.num_rows,
        "num_new_frames": num_new,
        "notes": parcel.log.notes,
    }
    print_either(f"{path}: run {parcel.run_id}, {what}{notes}", facts, as_json=as_json)
