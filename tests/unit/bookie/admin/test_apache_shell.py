"""docs/guides/apache-shell.md: each command of Apache's shell has a row, each of ours is there."""

import re

from tests.style.test_docs import is_bookie_command
from tests.style.test_layers import ROOT

PAGE = (ROOT / "docs" / "guides" / "apache-shell.md").read_text()
COMMANDS = re.findall(
    r"[\w-]+",
    """
metaformat initbookie initnewcluster nukeexistingcluster bookieformat recover ledger readledger
listledgers activeledgers ledgermetadata listunderreplicated whoisauditor whatisinstanceid
simpletest bookiesanity readlog readlogmetadata readjournal lastmark autorecovery
queryautorecoverystatus listbookies listfilesondisc updatecookie updateledgers
updateBookieInLedger deleteledger bookieinfo clusterinfo decommissionbookie endpointinfo
lostbookierecoverydelay triggeraudit forceauditchecks convert-to-db-storage
convert-to-interleaved-storage rebuild-db-ledger-locations-index rebuild-db-ledgers-index
check-db-ledgers-index regenerate-interleaved-storage-index-file localconsistencycheck
cookie_create cookie_delete cookie_update cookie_get cookie_generate help
""",
)
"""Of BookieShell in Apache BookKeeper 4.14 to 4.18."""
GROUPS = ("autorecovery", "bookie", "bookieid", "bookies", "cookie", "healthCheck", "ledger")


def test_every_command_of_the_shell_has_one_row() -> None:
    rows = re.findall(r"^\| (`.*?) \| (.+) \|$", PAGE, re.MULTILINE)
    theirs = [name for left, _ in rows for name in re.findall(r"`([^`]+)`", left)]
    assert sorted(theirs) == sorted(COMMANDS)
    for left, right in rows:
        assert "`bookie " in right or right.startswith("none: "), left


def test_every_group_of_the_newer_tool_is_named() -> None:
    (paragraph,) = re.findall(
        r"^Of the newer `bkctl`:.*?(?=\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert {*GROUPS} <= {*re.findall(r"`(\w+)`", paragraph)}


def test_every_command_of_ours_is_there() -> None:
    ours = re.findall(r"`bookie ([^`]+)`", PAGE)
    assert len(ours) > 30
    for text in ours:
        assert is_bookie_command(text.split()), text


def test_a_command_that_is_not_there_is_found() -> None:
    for text in ("bookies nothing", "replication", "nothing", "ledger list --nothing"):
        assert is_bookie_command(text.split()) == (text == "replication"), text
