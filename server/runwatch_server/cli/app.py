"""All commands put together."""

import typer

from runwatch_server.cli import (
    acting,
    alerts,
    backtest,
    database,
    demo,
    doctor,
    import_logs,
    keys,
    replay,
    rules,
    run,
    runs,
    serve,
    sync,
    tail,
)

app = typer.Typer(
    name="runwatch",
    help="A watchdog for deep-learning training runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("demo")(demo.demo)
app.command(
    "run",
    context_settings={"allow_interspersed_args": False},  # what follows the command is the job's
)(run.run)
app.command("doctor")(doctor.doctor)
app.command("runs")(runs.runs)
app.command("tail")(tail.tail)
app.command("alerts")(alerts.alerts)
app.command("signal")(alerts.signal)
app.command("policy")(acting.policy)
app.command("approve")(acting.approve)
app.command("cancel")(acting.cancel)
app.command("backtest")(backtest.backtest)
app.command("import")(import_logs.import_logs)
app.command(
    "sync",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,  # the other program says what it takes
)(sync.sync)
app.command(
    "replay",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)(replay.replay)
app.add_typer(keys.app, name="keys")
app.add_typer(rules.app, name="rules")
app.add_typer(database.app, name="db")
