"""Opens, changes and ends runs and their attempts."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import InvalidInputError
from runwatch.frames import END_OF_TIME
from runwatch.messages import (
    ATTEMPT_TOKEN_HEADER,
    MAX_CONFIG_BYTES,
    MAX_HOST_BYTES,
    WRONG_ATTEMPT_TOKEN,
    AttemptClose,
    AttemptOpen,
    Heartbeat,
    RunOpen,
)
from runwatch.ulids import is_ulid
from runwatch.vocabulary import PolicyMode, RunId, RunState
from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.auth.keys import Principal, hash_secret
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ConflictError, ForbiddenError
from runwatch_server.runs import queries
from runwatch_server.runs.checks import (
    check_current,
    check_document,
    check_name,
    check_rank,
    check_text,
    existing_run,
    run_not_found,
    unknown_attempt,
)
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.purge import has_remains, purge_run
from runwatch_server.runs.queries import Attempt, ListedRun, Run
from runwatch_server.runs.removals import Removals

log = logging.getLogger(__name__)

_MAX_CACHED: Final = 10_000


class Runs:
    """Every operation on runs; tells `liveness` of signs of life and `removals` of removed runs."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        liveness: Liveness,
        removals: Removals,
        *,
        check_room: Callable[[str], None] = lambda project: None,
    ) -> None:
        """`check_room` raises if a project may have no more runs."""
        self._check_room = check_room
        self._database = database
        self._clock = clock
        self._liveness = liveness
        self._removals = removals
        self._projects: dict[RunId, str] = {}
        self._proven: dict[RunId, dict[str, int]] = {}
        """Attempts by the hash of their token, which never changes."""
        removals.on(self._forget, liveness.forget)

    async def listen(self) -> None:
        """Begins to listen to the runs that had not ended when the service stopped."""
        async with self._database.read() as connection:
            for run in await queries.list_open_runs(connection):
                self._liveness.open_attempt(
                    run.id, run.current_attempt, now=self._clock.monotonic()
                )

    async def open(self, wanted: RunOpen, principal: Principal) -> tuple[Run, bool]:
        """The run and whether it is new; the same id gives the same run."""
        check_text("run_id", wanted.run_id, is_ulid(wanted.run_id), "a ULID (26 letters)")
        for place, text in (("name", wanted.name), ("project", wanted.project)):
            check_name(place, text)
        if wanted.group:
            check_name("group", wanted.group)
        check_document("config", wanted.config, most=MAX_CONFIG_BYTES)
        principal.check_project(wanted.project)
        run = Run(
            id=wanted.run_id,
            project=wanted.project,
            name=wanted.name,
            state=RunState.STARTING,
            policy=None,
            config=wanted.config,
            created_at=self._clock.wall(),
            group=wanted.group or None,
        )

        found, is_new = await self._find_or_insert(run)
        principal.check_project(found.project)
        if found.project != wanted.project:
            raise ConflictError("run_exists", f"The run is in the project {found.project!r}.")
        return found, is_new

    async def _find_or_insert(self, run: Run) -> tuple[Run, bool]:
        async def work(connection: AsyncConnection) -> tuple[Run, bool] | None:
            known = await queries.find_run(connection, run.id)
            if known is not None:
                return known, False
            if await has_remains(connection, run.id):
                return None
            self._check_room(run.project)
            await queries.insert_run(connection, run)
            return run, True

        while (found := await self._database.write(work, of=run.id)) is None:
            await purge_run(self._database, run.id)  # the remains of one removed a moment ago
        if found[1]:
            self._removals.forget(run.id)
        return found

    async def check_access(self, run_id: RunId, principal: Principal) -> str:
        """The run's project. Raises NotFoundError, or ForbiddenError if the key is bound to another
        project."""
        project = self._projects.get(run_id)
        if project is None:
            return (await self.find(run_id, principal)).project
        principal.check_project(project)
        return project

    async def proven_attempt(self, run_id: RunId, token: str) -> int:
        """The number of the attempt that was opened with a token. Raises ForbiddenError."""
        token_hash = hash_secret(token)  # found by its hash: how long that takes tells nothing
        number = self._proven.get(run_id, {}).get(token_hash)
        if number is not None:
            return number
        async with self._database.read() as connection:
            number = await queries.find_attempt_of_token(connection, run_id, token_hash)
        if number is None:
            found = "the token of no attempt of this run" if token else "none"
            raise ForbiddenError(
                WRONG_ATTEMPT_TOKEN,
                f"{ATTEMPT_TOKEN_HEADER}: found {found}, wanted the one that the trainer opened "
                "its attempt with.",
            )
        if len(self._proven) >= _MAX_CACHED:
            self._proven.clear()
        self._proven.setdefault(run_id, {})[token_hash] = number
        return number

    async def find(self, run_id: RunId, principal: Principal) -> Run:
        """A run that the caller may see. Raises NotFoundError or ForbiddenError."""
        async with self._database.read() as connection:
            run = await queries.find_run(connection, run_id)
        if run is None:
            raise run_not_found(run_id)
        principal.check_project(run.project)
        if len(self._projects) >= _MAX_CACHED:
            self._projects.clear()
        self._projects[run_id] = run.project
        return run

    async def list_runs(
        self,
        principal: Principal,
        *,
        name: str | None = None,
        project: str | None,
        group: str | None = None,
        state: RunState | None,
        job: str | None = None,
        before: str | None,
        limit: int,
    ) -> list[ListedRun]:
        """Runs of the projects that the caller may see, newest first."""
        if project is not None:
            principal.check_project(project)
        async with self._database.read() as connection:
            return await queries.list_runs(
                connection,
                name=name,
                project=principal.project if project is None else project,
                group=group,
                state=state,
                job=job,
                before=before,
                limit=limit,
            )

    async def change(
        self, run_id: RunId, *, name: str | None, policy: PolicyMode | None, by: str
    ) -> Run:
        """Sets what is given. `by` is the actor for the audit. Raises NotFoundError."""
        if name is not None:
            check_name("name", name)

        async def work(connection: AsyncConnection) -> Run:
            before = await existing_run(connection, run_id)
            values: dict[str, object] = {}
            if name not in (None, before.name):
                values["name"] = name
                await self._audit(
                    connection, before, "run_renamed", by, {"from": before.name, "to": name}
                )
            if policy not in (None, before.policy):
                values["policy"] = policy
                detail = {"from": before.policy or "the service's", "to": policy}
                await self._audit(connection, before, "run_policy_changed", by, detail)
            if values:
                await queries.update_run(connection, run_id, **values)
            return await existing_run(connection, run_id)

        return await self._database.write(work, of=run_id)

    async def delete(self, run_id: RunId, *, by: str) -> None:
        """Removes a run and all that belongs to it. `by` is the actor for the audit. Raises
        ConflictError while it is live."""

        async def work(connection: AsyncConnection) -> None:
            run = await existing_run(connection, run_id)
            if not run.state.is_ended and run.state is not RunState.LOST:
                raise ConflictError(
                    "run_is_live", f"The run is {run.state}; only ended runs can be deleted."
                )
            await queries.delete_run(connection, run_id)
            detail = {"name": run.name, "state": run.state}
            await self._audit(connection, run, "run_removed", by, detail)

        await self._database.write(work, of=run_id)
        self._removals.announce(run_id)
        await purge_run(self._database, run_id)
        log.info("run %s was removed", run_id)

    async def open_attempt(
        self, run_id: RunId, wanted: AttemptOpen, *, by: str, signing_key: str | None = None
    ) -> Attempt:
        """The attempt of a token; a new live one fences off all before it.

        `signing_key` is the key of the secret that the trainer is about to receive; an attempt
        keeps the one that it was opened with. `by` is the actor for the audit, in which is what
        was opened beside an attempt that nobody had closed.
        """
        if not 0 <= wanted.started_at < END_OF_TIME:
            found = f"{wanted.started_at:g}"
            raise InvalidInputError(
                f"started_at: found {found}, wanted Unix seconds from 1970 to the year 9999"
            )

        check_document("host", wanted.host, most=MAX_HOST_BYTES)

        async def work(connection: AsyncConnection) -> tuple[Attempt, bool]:
            run = await existing_run(connection, run_id)
            known = await queries.list_attempts(connection, run_id)
            for attempt in known:
                if attempt.token_hash == token_hash:
                    return attempt, False
            number = max((attempt.attempt for attempt in known), default=0) + 1
            opened = replace(self._attempt(run_id, number, wanted), signing_key=signing_key)
            await queries.insert_attempt(connection, opened)
            await self._audit_beside(connection, run, known, opened, by)
            if wanted.live:
                await queries.update_run(
                    connection,
                    run_id,
                    current_attempt=number,
                    state=RunState.STARTING,
                    ended_at=None,
                )
            return opened, True

        token_hash = hash_secret(wanted.token)
        attempt, is_new = await self._database.write(work, of=run_id)
        if is_new and attempt.live:
            now = self._clock.monotonic()
            self._liveness.open_attempt(run_id, attempt.attempt, now=now)
            log.info("run %s: attempt %d opened", run_id, attempt.attempt)
        return attempt

    async def _audit_beside(
        self,
        connection: AsyncConnection,
        run: Run,
        known: Sequence[Attempt],
        opened: Attempt,
        by: str,
    ) -> None:
        """Names the key that opened an attempt beside one which its trainer has not closed: that
        one was killed, or it goes on, and somebody else has taken its place."""
        for attempt in known:
            if attempt.attempt == run.current_attempt and attempt.closed_at is None:
                deed = "attempt_replaced" if opened.live else "attempt_added"
                detail = {"attempt": opened.attempt, "beside": attempt.attempt}
                await self._audit(connection, run, deed, by, detail)

    async def list_attempts(
        self, run_id: RunId, *, after: int = 0, limit: int | None = None
    ) -> list[Attempt]:
        """In order; `after` is the last one already seen."""
        async with self._database.read() as connection:
            return await queries.list_attempts(connection, run_id, after=after, limit=limit)

    async def close_attempt(
        self, run_id: RunId, number: int, close: AttemptClose, *, by: str
    ) -> Run:
        """Ends an attempt, and the run if it is the current one; ending it again is no error.

        Another rank than 0 ends the attempt only by failing; otherwise it leaves and the others go
        on. `by` is the actor for the audit.
        """
        now = self._clock.wall()
        ends = close.rank == 0 or close.status == "failed"
        reason = close.reason if close.rank == 0 else f"rank {close.rank}: {close.reason}"

        async def work(connection: AsyncConnection) -> Run:
            run = await existing_run(connection, run_id)
            attempt = await queries.find_attempt(connection, run_id, number)
            if attempt is None:
                raise unknown_attempt(number)
            check_rank(close.rank, attempt)
            if ends and attempt.closed_at is None:
                await queries.close_attempt(
                    connection,
                    run_id,
                    number,
                    closed_at=now,
                    status=close.status,
                    reason=reason,
                    last_step=close.last_step,
                )
                detail = {"attempt": number, "status": close.status, "reason": reason}
                await self._audit(connection, run, "attempt_closed", by, detail)
                if run.current_attempt in (number, 0):
                    await queries.update_run(
                        connection, run_id, state=RunState(close.status), ended_at=now
                    )
            return await existing_run(connection, run_id)

        run = await self._database.write(work, of=run_id)
        if run.state.is_ended:
            self._liveness.forget(run_id)
            log.info("run %s: %s", run_id, run.state)
        elif not ends:
            self._liveness.forget_rank(run_id, number, close.rank)
        return run

    async def note_heartbeat(self, run_id: RunId, heartbeat: Heartbeat) -> None:
        """Notes that a rank is alive. Raises ConflictError for an attempt that has ended."""
        async with self._database.read() as connection:
            run = await existing_run(connection, run_id)
            attempt = await queries.find_attempt(connection, run_id, heartbeat.attempt)
        if attempt is None or heartbeat.attempt > run.current_attempt:
            raise unknown_attempt(heartbeat.attempt)
        check_rank(heartbeat.rank, attempt)
        if heartbeat.attempt < run.current_attempt:
            await self._note_outlived(run_id, heartbeat.attempt)
        check_current(run, heartbeat.attempt)
        self._liveness.note_heartbeat(run_id, heartbeat, now=self._clock.monotonic())

    async def _note_outlived(self, run_id: RunId, attempt: int) -> None:
        now = self._clock.wall()
        note = partial(queries.note_outlived, run_id=run_id, attempt=attempt, at=now)
        await self._database.write(note, of=run_id)

    async def _audit(
        self,
        connection: AsyncConnection,
        run: Run,
        deed: str,
        actor: str,
        detail: Mapping[str, object],
    ) -> None:
        entry = AuditEntry(
            at=self._clock.wall(),
            actor=actor,
            deed=deed,
            subject=run.id,
            project=run.project,
            about_run=run.id,
            detail=detail,
        )
        await append_entry(connection, entry)

    def _forget(self, run_id: RunId) -> None:
        self._projects.pop(run_id, None)
        self._proven.pop(run_id, None)

    def _attempt(self, run_id: RunId, number: int, wanted: AttemptOpen) -> Attempt:
        return Attempt(
            run_id=run_id,
            attempt=number,
            token_hash=hash_secret(wanted.token),
            live=wanted.live,
            started_at=wanted.started_at,
            opened_at=self._clock.wall(),
            resume_step=wanted.resume_step,
            world_size=wanted.world_size,
            allow=wanted.allow,
            host=wanted.host,
        )
