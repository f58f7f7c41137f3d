"""What the service is made of, built once in `app.py` and handed to every route."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from runwatch_server.auth.service import Keys
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One instance of each; no module holds one of its own."""

    settings: Settings
    clock: Clock
    database: Database
    keys: Keys


def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services), "the lifespan sets them before the first request"
    return services


CurrentServices = Annotated[Services, Depends(services_of)]
