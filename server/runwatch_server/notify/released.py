"""Finds the incident that a released alert belongs to: that of the page which explained it.

A page is not over while another that it explained goes on (`runwatch.rules.inhibition`). So whoever
was woken still has its incident open when the other is released.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import Reason
from runwatch.vocabulary import AlertId
from runwatch_server.alerts import event_queries
from runwatch_server.alerts import queries as alert_queries
from runwatch_server.alerts.records import AlertRecord


async def find_page_of(connection: AsyncConnection, alert: AlertRecord) -> AlertId | None:
    """The open alert that explained this one until it was released; None if there is none."""
    if alert.facts.reason != Reason.RELEASED:
        return None
    events = await event_queries.list_events(connection, alert.run_id, alert.id)
    explained = [
        str(event.detail["inhibited_by"]) for event in events if "inhibited_by" in event.detail
    ]
    of_page = (explained[-1:], alert.attempt, alert.rank)
    for one in await alert_queries.list_open(connection, alert.run_id):
        if ([one.rule], one.attempt, one.rank) == of_page and one.is_notifiable:
            return one.id
    return None
