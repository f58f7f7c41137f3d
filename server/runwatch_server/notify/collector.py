"""Prometheus metrics about notifications. Addresses are shown without user and password."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from runwatch_server.notify.assembly import Notifying


class NotifyCollector(Collector):
    """Reads the figures of the sending loops at each scrape."""

    def __init__(self, notifying: Notifying) -> None:
        self._notifying = notifying

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        yield from self._of_alertmanagers()
        yield from self._of_receivers()

    def _of_alertmanagers(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        label = ("url",)
        success = GaugeMetricFamily(
            "runwatch_alertmanager_last_success_timestamp_seconds",
            "Unix time at which the Alertmanager last accepted alerts; 0 before the first time.",
            labels=label,
        )
        sent = CounterMetricFamily(
            "runwatch_alertmanager_sent", "Alerts accepted by the Alertmanager.", labels=label
        )
        failed = CounterMetricFamily(
            "runwatch_alertmanager_failed", "Failed requests to the Alertmanager.", labels=label
        )
        rejected = CounterMetricFamily(
            "runwatch_alertmanager_rejected",
            "Alerts that the Alertmanager rejected as invalid.",
            labels=label,
        )
        for replica in self._notifying.replicas:
            figures = replica.figures
            success.add_metric((figures.shown_url,), figures.last_success_at)
            sent.add_metric((figures.shown_url,), figures.num_sent)
            failed.add_metric((figures.shown_url,), figures.num_failed)
            rejected.add_metric((figures.shown_url,), figures.num_rejected)
        yield from (success, sent, failed, rejected)

    def _of_receivers(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        success = GaugeMetricFamily(
            "runwatch_receiver_last_success_timestamp_seconds",
            "Unix time at which the receiver last accepted a message; 0 before the first time.",
            labels=("receiver",),
        )
        failed = CounterMetricFamily(
            "runwatch_receiver_failed",
            "Failed attempts to send the receiver a message.",
            labels=("receiver",),
        )
        given_up = CounterMetricFamily(
            "runwatch_receiver_given_up",
            "Messages given up after trying for a day.",
            labels=("receiver",),
        )
        counts = GaugeMetricFamily(
            "runwatch_deliveries",
            "Deliveries in each state; `dead` ones were given up.",
            labels=("receiver", "state"),
        )
        for dispatcher in self._notifying.dispatchers:
            figures = dispatcher.figures
            success.add_metric((figures.receiver,), figures.last_success_at)
            failed.add_metric((figures.receiver,), figures.num_failed)
            given_up.add_metric((figures.receiver,), figures.num_given_up)
            for state, count in figures.counts.items():
                counts.add_metric((figures.receiver, state), count)
        yield from (success, failed, given_up, counts)
