"""One file of the corpus on both servers: each statement, its verdict, and what is kept of it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tests.pg_oracle.answers import Answer
from tests.pg_regress.causes import READ_BY_IT, Cause, Causes
from tests.pg_regress.closed_list import FAILED_TRANSACTION, Compared, rule_of
from tests.pg_regress.comparison import Reply, Verdict, compare
from tests.pg_regress.outcome import SETUP, Finding, Outcome
from tests.pg_regress.reasons import reason_of
from tests.pg_regress.script import Command, Script, Statement
from tests.pg_regress.servers import HerdpySession, PostgresSession, new_database
from tests.pg_regress.words import Words

_FAILED = "25P02"
_OF_TRANSACTION = ("transaction_isolation", "transaction_read_only", "transaction_deferrable")
_SKIPPED_ENDINGS = ("gdesc", "watch", "bind")
_MODES = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SET", "SET SESSION")
"""What may say of which kind a transaction is; SET where it is of no other setting."""
_COPIED = re.compile(r"copy\s+(.*?)\s+from\s", re.IGNORECASE | re.DOTALL)


def run_file(
    conninfo: str, corpus: Path, name: str, environment: Mapping[str, str]
) -> tuple[Outcome, Outcome]:
    """Run test_setup and a file of the corpus on new databases; return what both did."""
    with (
        new_database(conninfo) as database,
        closing(PostgresSession(database)) as theirs,
        closing(HerdpySession()) as ours,
    ):
        causes = Causes()
        setup, own = (
            Run(each, Script((corpus / "sql" / f"{each}.sql").read_text(), environment), ours,
                theirs, causes).outcome()
            for each in (SETUP, name)
        )  # fmt: skip
    return setup, own


class Run:
    """A script that runs on both sessions."""

    def __init__(
        self,
        name: str,
        script: Script,
        ours: HerdpySession,
        theirs: PostgresSession,
        causes: Causes,
    ) -> None:
        self._script = script
        self._ours, self._theirs, self._causes = ours, theirs, causes
        self._outcome = Outcome(name)

    def outcome(self) -> Outcome:
        """Run it to its end, errors or not, as psql does; both leave their transactions then."""
        while (item := self._read()) is not None:
            if isinstance(item, Command):
                self._outcome.skipped[f"\\{item.name.rstrip('+')}"] += 1
            else:
                self._statement(item)
        for session in (self._ours, self._theirs):
            if session.is_in_transaction:
                session.ask("ROLLBACK")
        return self._outcome

    def _read(self) -> Statement | Command | None:
        self._script.has_escapes = self._theirs.has_escapes
        return self._script.read()

    def _statement(self, item: Statement) -> None:
        words = Words(item.text)
        kind = _not_compared(item, words)
        if kind is not None:
            self._outcome.skipped[kind] += 1
            return
        had_failed, setting = self._theirs.has_failed, words.setting
        former = None if setting is None or had_failed else self._theirs.setting(setting)
        theirs = self._theirs.ask(item.text)
        if self._theirs.takes_rows:
            self._copy_rows(item, words)
            return
        if had_failed and theirs.sqlstate == _FAILED:
            ours = Reply(Answer(None, message="not asked: PostgreSQL's transaction has failed"))
            self._judge(item, words, ours, theirs)
            return
        is_undone = words.head in ("COMMIT", "END") and self._theirs.tag == "ROLLBACK"
        ours = self._ours.ask("ROLLBACK" if is_undone else item.text)
        self._judge(item, words, ours, theirs)
        self._follow_transaction(ours, theirs)
        if setting is not None and former is not None:
            self._follow_setting(words, setting, former, ours)
        if item.ending == "gset":
            self._set_variables(item, theirs)
        elif item.ending == "gexec" and theirs.sqlstate is None:
            for cell in (cell for row in theirs.answer.rows for cell in row if cell):
                self._statement(Statement(item.line, cell))

    def _judge(self, item: Statement, words: Words, ours: Reply, theirs: Reply) -> None:
        outcome, where = self._outcome, f"{self._outcome.name}.sql:{item.line}"
        found, reason = compare(words, ours, theirs), reason_of(words, ours)
        cause: Cause | None = None
        rule: str | None = None
        if theirs.sqlstate == _FAILED:
            found, rule = Verdict.DOCUMENTED, FAILED_TRANSACTION
        elif found in (Verdict.DIFFERENT, Verdict.REFUSED, Verdict.REFUSED_ERROR):
            cause = self._causes.of(words, ours)
            if cause is not None:
                found = Verdict.CONSEQUENCE
            elif found is Verdict.DIFFERENT:
                rule = rule_of(Compared(item.text, words, ours, theirs))
                found = found if rule is None else Verdict.DOCUMENTED
            self._leave_different(item, words, ours, theirs, cause or Cause(where, reason))
        elif found is not Verdict.INTERNAL and theirs.sqlstate is None:
            self._causes.forget(words)
            for name in _OF_TRANSACTION if words.head in ("BEGIN", "START") else ():
                self._causes.forget_setting(name)
        outcome.verdicts[found] += 1
        outcome.answered += theirs.sqlstate is None
        if found not in (Verdict.EQUAL, Verdict.EQUAL_ERROR):
            outcome.findings.append(
                Finding(where, found, words.head, item.text, str(ours), str(theirs), reason, rule,
                        cause, is_error=ours.sqlstate is not None,
                        is_answered=theirs.sqlstate is None)
            )  # fmt: skip

    def _leave_different(
        self, item: Statement, words: Words, ours: Reply, theirs: Reply, cause: Cause
    ) -> None:
        if self._is_loaded(item, words, ours, theirs):
            return
        self._causes.note(words, ours, theirs, cause)
        if ours.sqlstate and words.setting in READ_BY_IT:
            self._causes.note_setting(words.setting or "", cause)
        elif ours.sqlstate and words.head in _MODES and words.setting is None:
            for name in _OF_TRANSACTION:
                self._causes.note_setting(name, cause)

    # --- COPY ---

    def _copy_rows(self, item: Statement, words: Words) -> None:
        """Give PostgreSQL the rows that follow, and ours the same by INSERT."""
        lines = self._script.copy_rows()
        theirs = self._theirs.copy(lines)
        if theirs.sqlstate is not None:
            self._outcome.skipped["COPY FROM stdin, an error"] += 1
            return
        ours = self._load(item, words, lines)
        is_loaded = ours.sqlstate is None
        kind = "rows by INSERT" if is_loaded else "rows of PostgreSQL alone"
        self._outcome.skipped[f"COPY FROM stdin, {kind}"] += 1
        if not is_loaded:
            where = f"{self._outcome.name}.sql:{item.line}"
            cause = self._causes.of(words, ours) or Cause(where, reason_of(words, ours))
            self._causes.note(words, ours, theirs, cause)

    def _is_loaded(self, item: Statement, words: Words, ours: Reply, theirs: Reply) -> bool:
        """Insert the rows of a file that PostgreSQL has copied and herdpy has not."""
        path = words.words[-1].text.strip("'")
        is_copy = words.head == "COPY" and words.text(len(words.words) - 2) == "FROM"
        if not is_copy or ours.sqlstate is None or theirs.sqlstate is not None:
            return False
        return self._load(item, words, Path(path).read_text().splitlines()).sqlstate is None

    def _load(self, item: Statement, words: Words, lines: Sequence[str]) -> Reply:
        target = _COPIED.match(item.text)
        if target is None or words.text(len(words.words) - 2) != "FROM":
            return Reply(Answer("0A000", message="rows of a COPY with options"))
        return Reply(self._ours.load(target[1], lines))

    # --- what goes on behind a statement ---

    def _set_variables(self, item: Statement, theirs: Reply) -> None:
        if len(theirs.answer.rows) != 1:
            return
        prefix = "".join(item.arguments[:1])
        for name, cell in zip(theirs.names, theirs.answer.rows[0], strict=True):
            if cell is None:
                self._script.variables.pop(prefix + name, None)
            else:
                self._script.variables[prefix + name] = cell

    def _follow_transaction(self, ours: Reply, theirs: Reply) -> None:
        """Bring ours where PostgreSQL's session is, if it did not come there by itself."""
        tag = self._theirs.tag
        has_ended = tag in ("COMMIT", "ROLLBACK") and ours.sqlstate and not theirs.sqlstate
        is_left = not self._theirs.is_in_transaction
        if self._ours.is_in_transaction and (is_left or has_ended):
            self._ours.ask("COMMIT" if tag == "COMMIT" else "ROLLBACK")
        if not is_left and not self._ours.is_in_transaction:
            self._ours.ask("BEGIN")
        if is_left:
            self._causes.leave_transaction()

    def _follow_setting(self, words: Words, setting: str, former: str, ours: Reply) -> None:
        """Put a setting that herdpy has not taken back on PostgreSQL, too.

        One by which strings are read stays: the rest of the script is written for it.
        """
        if ours.sqlstate is None:
            self._causes.forget_setting(setting)
        elif setting not in READ_BY_IT:
            self._theirs.put_back(setting, former, is_local=words.is_local_setting)


def _not_compared(item: Statement, words: Words) -> str | None:
    """Return the kind of what neither server is asked; None for what both are."""
    if item.is_several:
        return r"\;"
    if item.ending in _SKIPPED_ENDINGS:
        return f"\\{item.ending}"
    return "EXPLAIN" if words.is_explain else None
