from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    BOOLEAN: _ClassVar[Kind]
    INTEGER: _ClassVar[Kind]
    BIGINT: _ClassVar[Kind]
    DOUBLE: _ClassVar[Kind]
    DECIMAL: _ClassVar[Kind]
    TEXT: _ClassVar[Kind]
    BYTEA: _ClassVar[Kind]
    DATE: _ClassVar[Kind]
    TIMESTAMP: _ClassVar[Kind]
    TIMESTAMPTZ: _ClassVar[Kind]
    REAL: _ClassVar[Kind]
    SMALLINT: _ClassVar[Kind]
    INTERVAL: _ClassVar[Kind]
    UNKNOWN: _ClassVar[Kind]
KIND_UNSPECIFIED: Kind
BOOLEAN: Kind
INTEGER: Kind
BIGINT: Kind
DOUBLE: Kind
DECIMAL: Kind
TEXT: Kind
BYTEA: Kind
DATE: Kind
TIMESTAMP: Kind
TIMESTAMPTZ: Kind
REAL: Kind
SMALLINT: Kind
INTERVAL: Kind
UNKNOWN: Kind

class Value(_message.Message):
    __slots__ = ("boolean", "integer", "double", "text", "bytea", "decimal", "date", "timestamp", "big_integer", "foreign", "interval")
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BYTEA_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    BIG_INTEGER_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    integer: int
    double: float
    text: str
    bytea: bytes
    decimal: str
    date: str
    timestamp: str
    big_integer: str
    foreign: str
    interval: str
    def __init__(self, boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., double: _Optional[float] = ..., text: _Optional[str] = ..., bytea: _Optional[bytes] = ..., decimal: _Optional[str] = ..., date: _Optional[str] = ..., timestamp: _Optional[str] = ..., big_integer: _Optional[str] = ..., foreign: _Optional[str] = ..., interval: _Optional[str] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Parameters(_message.Message):
    __slots__ = ("positional", "named")
    POSITIONAL_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    positional: Row
    named: NamedValues
    def __init__(self, positional: _Optional[_Union[Row, _Mapping]] = ..., named: _Optional[_Union[NamedValues, _Mapping]] = ...) -> None: ...

class NamedValues(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.MessageMap[str, Value]
    def __init__(self, values: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "kind", "precision", "scale", "length")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: Kind
    precision: int
    scale: int
    length: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., precision: _Optional[int] = ..., scale: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class Columns(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    def __init__(self, columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "message", "sqlstate", "retry", "hint", "position", "leader")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SQLSTATE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    sqlstate: str
    retry: str
    hint: str
    position: int
    leader: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., sqlstate: _Optional[str] = ..., retry: _Optional[str] = ..., hint: _Optional[str] = ..., position: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("text", "parameters", "tablespace", "durability", "statement_timeout_s", "lock_timeout_s")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TABLESPACE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    LOCK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    text: str
    parameters: Parameters
    tablespace: str
    durability: str
    statement_timeout_s: float
    lock_timeout_s: float
    def __init__(self, text: _Optional[str] = ..., parameters: _Optional[_Union[Parameters, _Mapping]] = ..., tablespace: _Optional[str] = ..., durability: _Optional[str] = ..., statement_timeout_s: _Optional[float] = ..., lock_timeout_s: _Optional[float] = ...) -> None: ...

class ExecuteReply(_message.Message):
    __slots__ = ("columns", "rows", "row_count", "last_row_id", "position")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    columns: Columns
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    row_count: int
    last_row_id: int
    position: Position
    def __init__(self, columns: _Optional[_Union[Columns, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., row_count: _Optional[int] = ..., last_row_id: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("statement", "is_arrow", "rows_max")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    IS_ARROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    statement: ExecuteRequest
    is_arrow: bool
    rows_max: int
    def __init__(self, statement: _Optional[_Union[ExecuteRequest, _Mapping]] = ..., is_arrow: _Optional[bool] = ..., rows_max: _Optional[int] = ...) -> None: ...

class QueryReply(_message.Message):
    __slots__ = ("columns", "rows", "arrow", "position")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    columns: Columns
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    arrow: bytes
    position: Position
    def __init__(self, columns: _Optional[_Union[Columns, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., arrow: _Optional[bytes] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = ("tablespace",)
    TABLESPACE_FIELD_NUMBER: _ClassVar[int]
    tablespace: str
    def __init__(self, tablespace: _Optional[str] = ...) -> None: ...

class ListTablesReply(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    def __init__(self, tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("name", "columns", "primary_key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    columns: _containers.RepeatedCompositeFieldContainer[TableColumn]
    primary_key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[TableColumn, _Mapping]]] = ..., primary_key: _Optional[_Iterable[str]] = ...) -> None: ...

class TableColumn(_message.Message):
    __slots__ = ("column", "is_not_null")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    IS_NOT_NULL_FIELD_NUMBER: _ClassVar[int]
    column: Column
    is_not_null: bool
    def __init__(self, column: _Optional[_Union[Column, _Mapping]] = ..., is_not_null: _Optional[bool] = ...) -> None: ...

class GetServerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("server", "protocol_version", "tablespaces")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TABLESPACES_FIELD_NUMBER: _ClassVar[int]
    server: str
    protocol_version: int
    tablespaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, server: _Optional[str] = ..., protocol_version: _Optional[int] = ..., tablespaces: _Optional[_Iterable[str]] = ...) -> None: ...

class GetTablespaceRequest(_message.Message):
    __slots__ = ("tablespace",)
    TABLESPACE_FIELD_NUMBER: _ClassVar[int]
    tablespace: str
    def __init__(self, tablespace: _Optional[str] = ...) -> None: ...

class TablespaceInfo(_message.Message):
    __slots__ = ("name", "source", "leader", "epoch", "written", "durable", "checkpoint", "table_count", "failure")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TABLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    leader: str
    epoch: int
    written: Position
    durable: Position
    checkpoint: Position
    table_count: int
    failure: str
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., leader: _Optional[str] = ..., epoch: _Optional[int] = ..., written: _Optional[_Union[Position, _Mapping]] = ..., durable: _Optional[_Union[Position, _Mapping]] = ..., checkpoint: _Optional[_Union[Position, _Mapping]] = ..., table_count: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("ledger", "entry", "index")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ledger: int
    entry: int
    index: int
    def __init__(self, ledger: _Optional[int] = ..., entry: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("tablespace", "snapshot", "offset")
    TABLESPACE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    tablespace: str
    snapshot: str
    offset: int
    def __init__(self, tablespace: _Optional[str] = ..., snapshot: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class SnapshotReply(_message.Message):
    __slots__ = ("info", "data")
    INFO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    info: SnapshotInfo
    data: bytes
    def __init__(self, info: _Optional[_Union[SnapshotInfo, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SnapshotInfo(_message.Message):
    __slots__ = ("snapshot", "source", "position", "byte_count")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    source: str
    position: Position
    byte_count: int
    def __init__(self, snapshot: _Optional[str] = ..., source: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., byte_count: _Optional[int] = ...) -> None: ...

class IngestRequest(_message.Message):
    __slots__ = ("start", "rows", "arrow", "finish")
    START_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    start: IngestStart
    rows: IngestRows
    arrow: bytes
    finish: IngestFinish
    def __init__(self, start: _Optional[_Union[IngestStart, _Mapping]] = ..., rows: _Optional[_Union[IngestRows, _Mapping]] = ..., arrow: _Optional[bytes] = ..., finish: _Optional[_Union[IngestFinish, _Mapping]] = ...) -> None: ...

class IngestStart(_message.Message):
    __slots__ = ("table", "mode", "columns", "tablespace", "durability", "lock_timeout_s", "statement_timeout_s")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TABLESPACE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    LOCK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    table: str
    mode: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    tablespace: str
    durability: str
    lock_timeout_s: float
    statement_timeout_s: float
    def __init__(self, table: _Optional[str] = ..., mode: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., tablespace: _Optional[str] = ..., durability: _Optional[str] = ..., lock_timeout_s: _Optional[float] = ..., statement_timeout_s: _Optional[float] = ...) -> None: ...

class IngestRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    def __init__(self, rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ...) -> None: ...

class IngestFinish(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IngestReply(_message.Message):
    __slots__ = ("row_count", "position")
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    row_count: int
    position: Position
    def __init__(self, row_count: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class LoginRequest(_message.Message):
    __slots__ = ("start", "proof")
    START_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    start: LoginStart
    proof: str
    def __init__(self, start: _Optional[_Union[LoginStart, _Mapping]] = ..., proof: _Optional[str] = ...) -> None: ...

class LoginStart(_message.Message):
    __slots__ = ("user", "client_first")
    USER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIRST_FIELD_NUMBER: _ClassVar[int]
    user: str
    client_first: str
    def __init__(self, user: _Optional[str] = ..., client_first: _Optional[str] = ...) -> None: ...

class LoginReply(_message.Message):
    __slots__ = ("challenge", "logged_in")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    LOGGED_IN_FIELD_NUMBER: _ClassVar[int]
    challenge: str
    logged_in: LoggedIn
    def __init__(self, challenge: _Optional[str] = ..., logged_in: _Optional[_Union[LoggedIn, _Mapping]] = ...) -> None: ...

class LoggedIn(_message.Message):
    __slots__ = ("verified", "token", "valid_s")
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    VALID_S_FIELD_NUMBER: _ClassVar[int]
    verified: str
    token: str
    valid_s: int
    def __init__(self, verified: _Optional[str] = ..., token: _Optional[str] = ..., valid_s: _Optional[int] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[Detail]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[Detail, _Mapping]]] = ...) -> None: ...

class Detail(_message.Message):
    __slots__ = ("type_url", "value")
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type_url: str
    value: bytes
    def __init__(self, type_url: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("reason", "domain", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: str
    domain: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[str] = ..., domain: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("request", "open", "execute", "execute_many", "fetch", "close_result", "begin", "commit", "rollback", "set_autocommit", "checkpoint", "cancel", "ping", "begin_ingest", "add_to_ingest", "finish_ingest", "drop_ingest", "resolve", "frames")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_MANY_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_RESULT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    SET_AUTOCOMMIT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    BEGIN_INGEST_FIELD_NUMBER: _ClassVar[int]
    ADD_TO_INGEST_FIELD_NUMBER: _ClassVar[int]
    FINISH_INGEST_FIELD_NUMBER: _ClassVar[int]
    DROP_INGEST_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    request: int
    open: Open
    execute: Execute
    execute_many: ExecuteMany
    fetch: Fetch
    close_result: CloseResult
    begin: Begin
    commit: Commit
    rollback: Empty
    set_autocommit: SetAutocommit
    checkpoint: Empty
    cancel: Empty
    ping: Empty
    begin_ingest: BeginIngest
    add_to_ingest: AddToIngest
    finish_ingest: FinishIngest
    drop_ingest: DropIngest
    resolve: Resolve
    frames: bytes
    def __init__(self, request: _Optional[int] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., execute: _Optional[_Union[Execute, _Mapping]] = ..., execute_many: _Optional[_Union[ExecuteMany, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., close_result: _Optional[_Union[CloseResult, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., rollback: _Optional[_Union[Empty, _Mapping]] = ..., set_autocommit: _Optional[_Union[SetAutocommit, _Mapping]] = ..., checkpoint: _Optional[_Union[Empty, _Mapping]] = ..., cancel: _Optional[_Union[Empty, _Mapping]] = ..., ping: _Optional[_Union[Empty, _Mapping]] = ..., begin_ingest: _Optional[_Union[BeginIngest, _Mapping]] = ..., add_to_ingest: _Optional[_Union[AddToIngest, _Mapping]] = ..., finish_ingest: _Optional[_Union[FinishIngest, _Mapping]] = ..., drop_ingest: _Optional[_Union[DropIngest, _Mapping]] = ..., resolve: _Optional[_Union[Resolve, _Mapping]] = ..., frames: _Optional[bytes] = ...) -> None: ...

class SessionReply(_message.Message):
    __slots__ = ("request", "welcome", "done", "rows", "arrow", "failed", "pong", "ingest_begun", "resolved", "frames")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    INGEST_BEGUN_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    request: int
    welcome: Welcome
    done: Done
    rows: Rows
    arrow: Arrow
    failed: Failed
    pong: Empty
    ingest_begun: IngestBegun
    resolved: Resolved
    frames: bytes
    def __init__(self, request: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., arrow: _Optional[_Union[Arrow, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., pong: _Optional[_Union[Empty, _Mapping]] = ..., ingest_begun: _Optional[_Union[IngestBegun, _Mapping]] = ..., resolved: _Optional[_Union[Resolved, _Mapping]] = ..., frames: _Optional[bytes] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Open(_message.Message):
    __slots__ = ("client", "tablespace", "autocommit", "durability", "lock_timeout_s", "statement_timeout_s", "idle_in_transaction_timeout_s", "read", "max_staleness_s")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TABLESPACE_FIELD_NUMBER: _ClassVar[int]
    AUTOCOMMIT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    LOCK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    IDLE_IN_TRANSACTION_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_S_FIELD_NUMBER: _ClassVar[int]
    client: str
    tablespace: str
    autocommit: bool
    durability: str
    lock_timeout_s: float
    statement_timeout_s: float
    idle_in_transaction_timeout_s: float
    read: str
    max_staleness_s: float
    def __init__(self, client: _Optional[str] = ..., tablespace: _Optional[str] = ..., autocommit: _Optional[bool] = ..., durability: _Optional[str] = ..., lock_timeout_s: _Optional[float] = ..., statement_timeout_s: _Optional[float] = ..., idle_in_transaction_timeout_s: _Optional[float] = ..., read: _Optional[str] = ..., max_staleness_s: _Optional[float] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "server", "session", "frame_bytes_max", "token_session")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    server: str
    session: int
    frame_bytes_max: int
    token_session: str
    def __init__(self, version: _Optional[int] = ..., server: _Optional[str] = ..., session: _Optional[int] = ..., frame_bytes_max: _Optional[int] = ..., token_session: _Optional[str] = ...) -> None: ...

class Execute(_message.Message):
    __slots__ = ("text", "parameters", "token", "acknowledged")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    text: str
    parameters: Parameters
    token: int
    acknowledged: int
    def __init__(self, text: _Optional[str] = ..., parameters: _Optional[_Union[Parameters, _Mapping]] = ..., token: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class ExecuteMany(_message.Message):
    __slots__ = ("text", "items", "token", "acknowledged")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    text: str
    items: _containers.RepeatedCompositeFieldContainer[Parameters]
    token: int
    acknowledged: int
    def __init__(self, text: _Optional[str] = ..., items: _Optional[_Iterable[_Union[Parameters, _Mapping]]] = ..., token: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("result", "rows_max", "is_arrow")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    IS_ARROW_FIELD_NUMBER: _ClassVar[int]
    result: int
    rows_max: int
    is_arrow: bool
    def __init__(self, result: _Optional[int] = ..., rows_max: _Optional[int] = ..., is_arrow: _Optional[bool] = ...) -> None: ...

class CloseResult(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: int
    def __init__(self, result: _Optional[int] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("durability",)
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    durability: str
    def __init__(self, durability: _Optional[str] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("token", "acknowledged")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    token: int
    acknowledged: int
    def __init__(self, token: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class SetAutocommit(_message.Message):
    __slots__ = ("autocommit",)
    AUTOCOMMIT_FIELD_NUMBER: _ClassVar[int]
    autocommit: bool
    def __init__(self, autocommit: _Optional[bool] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("in_transaction", "row_count", "last_row_id", "columns", "rows", "result", "position")
    IN_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    in_transaction: bool
    row_count: int
    last_row_id: int
    columns: Columns
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    result: int
    position: Position
    def __init__(self, in_transaction: _Optional[bool] = ..., row_count: _Optional[int] = ..., last_row_id: _Optional[int] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., result: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("is_last", "rows")
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    is_last: bool
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    def __init__(self, is_last: _Optional[bool] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ...) -> None: ...

class Arrow(_message.Message):
    __slots__ = ("is_last", "data")
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    is_last: bool
    data: bytes
    def __init__(self, is_last: _Optional[bool] = ..., data: _Optional[bytes] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("in_transaction", "error")
    IN_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    in_transaction: bool
    error: Error
    def __init__(self, in_transaction: _Optional[bool] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class BeginIngest(_message.Message):
    __slots__ = ("table", "mode")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    table: str
    mode: str
    def __init__(self, table: _Optional[str] = ..., mode: _Optional[str] = ...) -> None: ...

class IngestBegun(_message.Message):
    __slots__ = ("ingest", "table")
    INGEST_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ingest: int
    table: Table
    def __init__(self, ingest: _Optional[int] = ..., table: _Optional[_Union[Table, _Mapping]] = ...) -> None: ...

class AddToIngest(_message.Message):
    __slots__ = ("ingest", "arrow")
    INGEST_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    ingest: int
    arrow: bytes
    def __init__(self, ingest: _Optional[int] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class FinishIngest(_message.Message):
    __slots__ = ("ingest", "token", "acknowledged")
    INGEST_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    ingest: int
    token: int
    acknowledged: int
    def __init__(self, ingest: _Optional[int] = ..., token: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class DropIngest(_message.Message):
    __slots__ = ("ingest",)
    INGEST_FIELD_NUMBER: _ClassVar[int]
    ingest: int
    def __init__(self, ingest: _Optional[int] = ...) -> None: ...

class Resolve(_message.Message):
    __slots__ = ("token_session", "counter")
    TOKEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    token_session: str
    counter: int
    def __init__(self, token_session: _Optional[str] = ..., counter: _Optional[int] = ...) -> None: ...

class Resolved(_message.Message):
    __slots__ = ("outcome", "position")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    position: Position
    def __init__(self, outcome: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...
