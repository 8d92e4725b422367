"""Settings of ledgers, clients and bookies: unit, default, range, and when to change each.

Read once at the edge from flags or a file; checked here; never global.
"""

from dataclasses import dataclass

from bookie.errors import IncorrectParameterError

_YEAR_S = 365 * 86400


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise IncorrectParameterError(f"{name}: expected {low} to {high}, found {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """One ledger client."""

    add_timeout_s: float = 5.0
    """Silence of a bookie before an add counts as failed there."""
    read_timeout_s: float = 5.0
    """The same for reads; a long poll adds its own waiting time."""
    connect_timeout_s: float = 10.0
    speculative_read_s: float = 2.0
    """Ask the next replica, too, after this long; 0: at once to all."""
    add_quorum_timeout_s: float | None = None
    """Fail an add that has no ack quorum after this long; None: never."""
    is_ensemble_change_delayed: bool = False
    """Go on with a failed bookie while each entry can reach the ack quorum."""
    ensemble_changes_max: int = 2**31 - 1
    explicit_lac_interval_s: float = 0.0
    """Write the LAC to the bookies this long after it moved with nothing to carry it; 0: never."""
    recovery_read_ahead: int = 16
    """Entries asked for ahead of the one that recovery waits for."""
    pending_adds_max: int = 2_000
    """Adds under way on one handle; the next waits. Handles share connections, and bookies take
    requests_per_connection_max on each: what they refuse counts as their failure."""
    pending_add_bytes_max: int = 32 * 1024 * 1024
    """Payload under way on one handle; the next entry waits. Less than what a bookie's journal
    takes (journal_queue_bytes_max)."""
    bookie_retry_s: float = 5.0
    """How long a bookie that failed is passed over while there are others, or a gap is borne."""
    record_frame_bytes_max: int = 64 * 1024
    """What append_many packs into one entry; a larger record has an entry of its own."""
    frame_bytes_max: int = 5 * 1024 * 1024
    """Largest message, both ways; as on the bookies."""
    connections_per_bookie: int = 1
    is_tls_required: bool = False
    """Refuse to be made without a TLS context. With one, nothing is ever sent to a bookie in clear
    but START_TLS."""
    channel_bytes_max: int = 64 * 1024 * 1024
    """Waiting to be sent on one connection; more is answered TOO_MANY_REQUESTS."""
    channel_requests_max: int = 50_000
    """Under way on one connection; more are answered TOO_MANY_REQUESTS."""
    read_ahead_max: int = 64
    """Entries asked for ahead of the one that a reader waits for."""
    read_ahead_bytes_max: int = 16 * 1024 * 1024
    """Payload held for a reader, or by a recovery; one entry is always let in."""
    poll_wait_s: float = 10.0
    """How long a bookie holds a long poll without news before it says so."""

    def __post_init__(self) -> None:
        _check("channel_bytes_max", self.channel_bytes_max, 1 << 16, 1 << 40)
        _check("channel_requests_max", self.channel_requests_max, 16, 10_000_000)
        _check("read_ahead_max", self.read_ahead_max, 1, 100_000)
        _check("read_ahead_bytes_max", self.read_ahead_bytes_max, 1, 1 << 40)
        _check("poll_wait_s", self.poll_wait_s, 0.001, 3600)
        _check("add_timeout_s", self.add_timeout_s, 0.001, 3600)
        _check("read_timeout_s", self.read_timeout_s, 0.001, 3600)
        _check("connect_timeout_s", self.connect_timeout_s, 0.001, 3600)
        _check("speculative_read_s", self.speculative_read_s, 0, 3600)
        if self.add_quorum_timeout_s is not None:
            _check("add_quorum_timeout_s", self.add_quorum_timeout_s, 0.001, 86400)
        _check("ensemble_changes_max", self.ensemble_changes_max, 0, 2**31 - 1)
        _check("explicit_lac_interval_s", self.explicit_lac_interval_s, 0, 86400)
        _check("pending_add_bytes_max", self.pending_add_bytes_max, 1, 1 << 40)
        _check("bookie_retry_s", self.bookie_retry_s, 0.001, 3600)
        _check("record_frame_bytes_max", self.record_frame_bytes_max, 64, 1 << 28)
        _check("pending_adds_max", self.pending_adds_max, 1, 1_000_000)
        _check("recovery_read_ahead", self.recovery_read_ahead, 1, 1000)
        _check("frame_bytes_max", self.frame_bytes_max, 1024, 256 * 1024 * 1024)
        _check("connections_per_bookie", self.connections_per_bookie, 1, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig:
    """One bookie. Directories are relative to the root of its Disk."""

    host: str = "127.0.0.1"
    """Where to listen."""
    port: int = 3181
    """0: any free one."""
    advertised_address: str | None = None
    """What clients connect to; None: host."""
    bookie_id: str | None = None
    """None: advertised address and port."""
    ledgers_root: str = "/ledgers"
    """The root of the metadata."""
    journal_directory: str | None = None
    """Absolute path of the directory with the journal, best on a device of its own; None: that of
    `--data`."""
    ledger_directories: tuple[str, ...] = ()
    """Absolute paths of the directories with entry logs, each maybe with `=WEIGHT` behind it (1
    without): what part of all bytes it is to hold beside the others. Empty: that of `--data`."""
    journal_bytes_max: int = 256 * 1024 * 1024
    """A journal file that is longer is followed by a new one."""
    journal_preallocation_bytes: int = 16 * 1024 * 1024
    journal_queue_bytes_max: int = 64 * 1024 * 1024
    """Waiting for the journal; more is refused with ETOOMANYREQUESTS."""
    journal_loop_sync_us: int = 1_000
    """Microseconds that a sync of the journal may take on the average for the bookie's loop to do
    it itself while few others wait; 0: always in a thread."""
    write_cache_bytes_max: int = 64 * 1024 * 1024
    """Of each of the two write caches."""
    read_cache_bytes_max: int = 64 * 1024 * 1024
    entry_log_bytes_max: int = 1024 * 1024 * 1024
    flush_interval_s: float = 10.0
    gc_interval_s: float = 600.0
    """Ledgers that metadata no longer knows are removed this often."""
    returned_copy_wait_s: float = 86400.0
    """How long metadata must have given this bookie no part of a CLOSED ledger before its copy is
    removed."""
    is_older_metadata_accepted: bool = False
    """Collect although the metadata store knew no ledger as new as those seen here. For one start,
    after the newer metadata was restored, or a ledger with an id of its own choice deleted; wrong
    while the metadata is that of an older snapshot."""
    minor_compaction_threshold: float = 0.2
    """Entry logs of which less than this share lives are rewritten hourly."""
    minor_compaction_interval_s: float = 3600.0
    major_compaction_threshold: float = 0.8
    major_compaction_interval_s: float = 86400.0
    compaction_bytes_per_s: int = 32 * 1024 * 1024
    """Entry logs are read for compaction at most this fast."""
    scrub_interval_s: float = 604800.0
    """A pass over all entries, which mends what is damaged, begins so long after the one before,
    half as much more or less by chance; 0: only when it is asked for."""
    scrub_bytes_per_s: int = 8 * 1024 * 1024
    """Such a pass reads entry logs at most this fast."""
    disk_usage_max: float = 0.95
    """Read-only from here on."""
    disk_usage_low_water: float = 0.90
    """Writable again below."""
    disk_check_interval_s: float = 10.0
    frame_bytes_max: int = 5 * 1024 * 1024
    connections_max: int = 4096
    """One more takes the place of a silent one, or of an idle one; without such it is closed."""
    silent_of_address_max: int = 256
    """Connections of one address, or IPv6 network, whose first message has not come; one more takes
    the place of the oldest of them."""
    first_message_timeout_s: float = 10.0
    """For the begin of a first message, inside TLS where TLS is required; then it is closed."""
    idle_timeout_s: float = 3600.0
    """Without a message, and without a request under way, a connection is closed after this; its
    client connects again by itself."""
    requests_per_connection_max: int = 10_000
    """Under way for one connection; more are refused with ETOOMANYREQUESTS."""
    requests_max: int = 100_000
    """The same over all connections."""
    response_bytes_max: int = 64 * 1024 * 1024
    """Waiting to be sent on one connection; reads beyond it answer ETOOMANYREQUESTS."""
    response_bytes_total_max: int = 512 * 1024 * 1024
    """The same over all connections."""
    receive_bytes_total_max: int = 256 * 1024 * 1024
    """Of messages that have not come whole, over all connections; a connection that adds to it is
    closed."""
    frame_timeout_s: float = 60.0
    """A message that began and does not end, or answers that are not taken: closed."""
    long_poll_s_max: float = 60.0
    """A long poll that asks for more is answered after this, without news."""
    start_tls_timeout_s: float = 10.0
    """For the handshake after START_TLS; where TLS is required, from the connection's begin on."""
    is_tls_required: bool = False
    """Refuse in clear everything but START_TLS (EUA). Always so where clients have to show a
    certificate (`--tls-trust`). Needs a certificate."""
    tls_cert_files_refresh_duration_s: float = 60.0
    """The files of TLS and `--tls-access` are looked at this often, and read again when they
    changed; those that cannot be used leave the old ones in place."""
    close_timeout_s: float = 5.0
    """For answers under way when the server closes; what is left then is cut off."""
    http_port: int | None = None
    """Where /metrics, /heartbeat, /health and /ready are served; 0: any free one; None: nowhere."""
    registration_timeout_s: float = 30.0
    """How long a start waits for the end of an earlier session that holds this bookie's id; more
    than a session's time-out (`bookie serve` takes twice that, if it is more)."""
    is_journal_synced: bool = True
    """False: acknowledge before fsync. A power failure then loses acknowledged entries."""

    def __post_init__(self) -> None:
        _check("port", self.port, 0, 65535)
        paths = [parse_ledger_directory(text)[0] for text in self.ledger_directories]
        if len(set(paths)) != len(paths):
            raise IncorrectParameterError(
                f"ledger_directories: expected each path once, found {', '.join(paths)}"
            )
        _check("journal_bytes_max", self.journal_bytes_max, 1 << 20, 1 << 40)
        _check("journal_preallocation_bytes", self.journal_preallocation_bytes, 1 << 12, 1 << 30)
        _check("journal_queue_bytes_max", self.journal_queue_bytes_max, 1 << 12, 1 << 40)
        _check("journal_loop_sync_us", self.journal_loop_sync_us, 0, 1_000_000)
        _check("write_cache_bytes_max", self.write_cache_bytes_max, 1 << 16, 1 << 40)
        _check("read_cache_bytes_max", self.read_cache_bytes_max, 0, 1 << 40)
        _check("entry_log_bytes_max", self.entry_log_bytes_max, 1 << 16, 2**32 - 1)
        _check("flush_interval_s", self.flush_interval_s, 0.001, _YEAR_S)
        _check("gc_interval_s", self.gc_interval_s, 0.001, _YEAR_S)
        _check("returned_copy_wait_s", self.returned_copy_wait_s, 0.001, _YEAR_S)
        _check("minor_compaction_threshold", self.minor_compaction_threshold, 0, 1)
        _check("minor_compaction_interval_s", self.minor_compaction_interval_s, 0.001, _YEAR_S)
        _check("major_compaction_threshold", self.major_compaction_threshold, 0, 1)
        _check("major_compaction_interval_s", self.major_compaction_interval_s, 0.001, _YEAR_S)
        _check("compaction_bytes_per_s", self.compaction_bytes_per_s, 1 << 16, 1 << 40)
        _check("scrub_interval_s", self.scrub_interval_s, 0, _YEAR_S)
        _check("scrub_bytes_per_s", self.scrub_bytes_per_s, 1 << 10, 1 << 40)
        _check("disk_usage_max", self.disk_usage_max, 0.01, 1.0)
        _check("disk_usage_low_water", self.disk_usage_low_water, 0.0, self.disk_usage_max)
        _check("disk_check_interval_s", self.disk_check_interval_s, 0.001, 86400)
        _check("frame_bytes_max", self.frame_bytes_max, 1024, 256 * 1024 * 1024)
        _check("connections_max", self.connections_max, 1, 1_000_000)
        _check("silent_of_address_max", self.silent_of_address_max, 1, 1_000_000)
        _check("first_message_timeout_s", self.first_message_timeout_s, 0.001, 3600)
        _check("idle_timeout_s", self.idle_timeout_s, 0.001, _YEAR_S)
        _check("requests_per_connection_max", self.requests_per_connection_max, 1, 1_000_000)
        _check("requests_max", self.requests_max, 1, 100_000_000)
        _check("response_bytes_max", self.response_bytes_max, 1024, 1 << 40)
        _check("response_bytes_total_max", self.response_bytes_total_max, 1024, 1 << 40)
        _check("receive_bytes_total_max", self.receive_bytes_total_max, 1024, 1 << 40)
        _check("frame_timeout_s", self.frame_timeout_s, 0.001, 3600)
        _check("long_poll_s_max", self.long_poll_s_max, 0.001, 3600)
        _check("start_tls_timeout_s", self.start_tls_timeout_s, 0.001, 3600)
        _check(
            "tls_cert_files_refresh_duration_s",
            self.tls_cert_files_refresh_duration_s,
            0.01,
            _YEAR_S,
        )
        _check("close_timeout_s", self.close_timeout_s, 0.0, 3600)
        _check("http_port", self.http_port or 0, 0, 65535)
        _check("registration_timeout_s", self.registration_timeout_s, 0.0, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """One auditor and one replication worker (`bookie autorecovery`, or beside a bookie)."""

    is_auditor: bool = True
    """Stand for election as the auditor."""
    is_worker: bool = True
    """Replicate ledgers."""
    bookie_check_interval_s: float = 86400.0
    """Between audits for ledgers of lost bookies when none was lost newly."""
    ledger_check_interval_s: float = 604800.0
    """Between reads of the first and last entry of every segment on every bookie; 0: never."""
    placement_check_interval_s: float = 0.0
    """Between counts of the write sets that lie in one rack; 0: never."""
    entry_check_interval_s: float = 0.0
    """Between questions to every bookie for all the entries that it has; 0: never."""
    ledgers_at_once: int = 32
    """Ledgers that an audit reads together."""
    open_ledger_grace_s: float = 30.0
    """How long the writer of an open ledger may take to replace a lost bookie by itself; then the
    ledger is fenced and closed."""
    repairs_at_once: int = 4
    """Ledgers that a worker replicates together."""
    copy_window: int = 100
    """Entries of one ledger that are copied together."""
    copy_bytes_max: int = 16 * 1024 * 1024
    """Bytes under way, of all ledgers that are copied at once."""
    copy_bytes_per_s: int | None = None
    """Ledgers are copied at most this fast; None: as fast as it goes."""
    poll_interval_s: float = 5.0
    """Between readings of the tasks."""
    failure_pause_s: float = 300.0
    """A ledger that cannot be replicated is tried again after a 32nd of this, which doubles with
    each failure up to this."""

    def __post_init__(self) -> None:
        _check("bookie_check_interval_s", self.bookie_check_interval_s, 0.001, _YEAR_S)
        _check("ledger_check_interval_s", self.ledger_check_interval_s, 0, _YEAR_S)
        _check("placement_check_interval_s", self.placement_check_interval_s, 0, _YEAR_S)
        _check("entry_check_interval_s", self.entry_check_interval_s, 0, _YEAR_S)
        _check("ledgers_at_once", self.ledgers_at_once, 1, 1000)
        _check("open_ledger_grace_s", self.open_ledger_grace_s, 0, 86400)
        _check("repairs_at_once", self.repairs_at_once, 1, 100)
        _check("copy_window", self.copy_window, 1, 100_000)
        _check("copy_bytes_max", self.copy_bytes_max, 1, 1 << 40)
        if self.copy_bytes_per_s is not None:
            _check("copy_bytes_per_s", self.copy_bytes_per_s, 1, 1 << 40)
        _check("poll_interval_s", self.poll_interval_s, 0.001, 3600)
        _check("failure_pause_s", self.failure_pause_s, 0.001, 86400)


def parse_ledger_directory(text: str) -> tuple[str, float]:
    """Return path and weight of an item of ledger_directories."""
    path, equals, number = text.rpartition("=")
    if not equals:
        return text, 1.0
    try:
        weight = float(number)
    except ValueError:
        return text, 1.0  # a path with "=" in it
    _check(f"ledger_directories: weight of {path}", weight, 0.001, 1000.0)
    return path, weight
