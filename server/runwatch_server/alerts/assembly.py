"""Judging and acting, put together from what the service has already opened."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass

from runwatch_server.alerts.board import NewsBoard
from runwatch_server.alerts.evaluators import Evaluators
from runwatch_server.alerts.findings import Detective
from runwatch_server.alerts.recording import Tell, tell_nobody
from runwatch_server.alerts.service import Alerts
from runwatch_server.alerts.ticker import Ticker
from runwatch_server.alerts.workshop import Workshop
from runwatch_server.clock import Clock
from runwatch_server.commands.ids import OrderedIds
from runwatch_server.commands.service import Commands
from runwatch_server.db import Database
from runwatch_server.rules.service import Rules
from runwatch_server.runs.liveness import Liveness
from runwatch_server.settings import Settings
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerting:
    """What judges and acts; `start_alerting` makes it."""

    rules: Rules
    commands: Commands
    alerts: Alerts
    evaluators: Evaluators
    ticker: Ticker
    board: NewsBoard
    detective: Detective


async def start_alerting(
    stack: AsyncExitStack,
    settings: Settings,
    clock: Clock,
    database: Database,
    liveness: Liveness,
    events: EventLog,
    tell: Tell = tell_nobody,
) -> Alerting:
    """Start it; the stack stops it, which must happen before the database closes. The ticker is
    only ready: its `run` belongs into a background task."""
    board = NewsBoard()
    detective = Detective(database, Reader(database, Layouts(database, clock)))
    rules = Rules(database, clock)
    ids = OrderedIds(clock)
    commands = Commands(database, clock, ids, on_change=board.wake)
    thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="evaluator"))
    workshop = Workshop(
        database=database,
        clock=clock,
        ids=ids,
        rules=rules,
        commands=commands,
        liveness=liveness,
        events=events,
        default_policy=settings.policy,
        limits=settings.policy_limits,
        thread=thread,
        on_news=board.post,
        tell=tell,
    )
    evaluators = Evaluators(workshop)
    ticker = Ticker(workshop, evaluators, lost_s=settings.lost_s)
    await commands.start()
    stack.push_async_callback(commands.stop)
    await evaluators.start()
    stack.push_async_callback(evaluators.stop)
    await ticker.recall()
    return Alerting(
        rules=rules,
        commands=commands,
        alerts=Alerts(database, clock, board, detective),
        detective=detective,
        evaluators=evaluators,
        ticker=ticker,
        board=board,
    )
