"""Where the training thread passes: what a rank promises about a command, and when."""

from tests.hooks.ranks.agreement.party import LONG

from runwatch.commands import AnyAction, Command, LowerLr, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.ranks.ballots import Proposal, Standing, Verdict, decide
from runwatch_hooks.ranks.coordinator import Gate


def proposal_of(action: AnyAction) -> Proposal:
    return Proposal(Command(CommandId(action.kind), action, attempt=1, expires_at=1e12), 1e12)


def roll_back(gate: Gate, *, after_step: int, to_step: int) -> None:
    """Train up to a step, and learn there that all ranks go back to another."""
    gate.begin(0)
    for step in range(after_step):
        gate.pass_turn(step + 1, lambda _, __: Standing())
    promise = gate.promise(1, proposal_of(Rollback()), within_s=0.0)
    under_way = gate.round
    assert under_way is not None
    gate.decide(under_way, promise.last_turn)

    def stand(_: Command, __: int | None) -> Standing:
        gate.end(under_way, Verdict(is_go=True, to_step=to_step))
        return Standing()

    assert gate.pass_turn(after_step + 1, stand)[0].verdict.to_step == to_step


def test_ranks_count_alike_after_a_rollback_whichever_trains_on_first() -> None:
    """The command that follows a rollback finds one of them still restoring its state."""
    ahead, behind = Gate(LONG), Gate(LONG)
    for gate in (ahead, behind):
        roll_back(gate, after_step=5, to_step=2)
    ahead.pass_turn(4, lambda _, __: Standing())

    lower = proposal_of(LowerLr(scale=0.5))
    promises = [gate.promise(2, lower, within_s=0.0) for gate in (ahead, behind)]

    assert decide(promises).refusal == ""
