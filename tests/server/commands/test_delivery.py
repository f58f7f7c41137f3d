"""What a service takes up of commands as it starts: those that trainers are to be told of."""

import pytest
from tests.server.harness import Storage, both_engines, serve

from runwatch.commands import CommandState
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.commands.mailbox import Mailbox
from runwatch_server.commands.records import CommandMark

RUN = RunId("01J00000000000000000000000")


@pytest.mark.anyio
@both_engines
async def test_a_command_is_told_after_a_restart(storage: Storage) -> None:
    async with serve(storage) as api:
        run_id, key = await api.new_run(), api.admin_key
        body = {"action": {"kind": "checkpoint"}}
        ordered = await api.json("POST", f"/runs/{run_id}/commands", json=body)
    async with serve(storage, admin_key=key) as api:
        params = {"attempt": 1, "rank": 0, "wait_s": 0}
        reply = await api.json("GET", f"/runs/{run_id}/commands/next", params=params)

    assert [told["id"] for told in reply["commands"]] == [ordered["id"]]


@pytest.mark.parametrize(
    ("state", "changed"), [(CommandState.PROPOSED, []), (CommandState.QUEUED, [RUN])]
)
def test_a_proposal_is_not_looked_up_to_be_told_to_trainers(
    state: CommandState, changed: list[RunId]
) -> None:
    """Ten thousand were open, and each kept a start for a millisecond."""
    mark = CommandMark(RUN, CommandId("1"), 1, state, 0.0)

    assert Mailbox().changed_runs([mark]) == changed
