"""`runwatch open DATA_DIR`: shows what `runwatch run` or `runwatch serve` has kept in a folder."""

from pathlib import Path
from typing import Annotated, Final

import httpx
import msgspec
import typer

from runwatch_server.cli.answers import Id
from runwatch_server.cli.client import new_http
from runwatch_server.cli.local_service import (
    LocalService,
    LocalServiceError,
    local_service,
    stay_until_ctrl_c,
)
from runwatch_server.cli.output import OurConsole, say
from runwatch_server.db.sqlite import DATABASE_FILE

_ALL: Final = "/"


class _Run(msgspec.Struct):
    id: Id


class _Runs(msgspec.Struct):
    runs: list[_Run]


def open_record(
    data_dir: Annotated[
        Path,
        typer.Argument(
            metavar="DATA_DIR",
            envvar="RUNWATCH_DATA_DIR",
            help="Folder of `runwatch run` or `runwatch serve`.",
        ),
    ] = Path("runwatch-data"),
) -> None:
    """Show the runs of a data folder in a browser, until Ctrl-C.

    Starts a service on the folder if none runs, and prints one link, which logs in and opens the
    run or, if there are several, the list of them.
    """
    console = OurConsole(stderr=True)
    try:
        if not (data_dir / DATABASE_FILE).is_file():
            raise LocalServiceError(
                f"found no {DATABASE_FILE} in {data_dir}, wanted the data folder of "
                "`runwatch run` or `runwatch serve`"
            )
        with local_service(data_dir, is_to_read=True) as service:
            link = service.link_to(_page_of(service), data_dir)
            stay_until_ctrl_c(console, f"open until Ctrl-C:  {link}", data_dir)
    except LocalServiceError as error:
        say(console, str(error))
        raise typer.Exit(2) from error


def _page_of(service: LocalService) -> str:
    """That of the run if there is only one, else of all."""
    try:
        with new_http(service.url, service.admin_key) as http:
            answer = http.get("/runs", params={"limit": 2}).raise_for_status()
            runs = msgspec.json.decode(answer.content, type=_Runs).runs
    except (httpx.HTTPError, msgspec.DecodeError):  # the page will say what is wrong
        return _ALL
    return f"/runs/{runs[0].id}" if len(runs) == 1 else _ALL
