"""Every limit in one place; the relations between them are checked at import.

Bytes and counts that no node may exceed, because other nodes, files or peers rely on them. What a
user may tune is in config.py.
"""

# The log: record <= frame <= wire frame (5 MiB is what a BookKeeper client accepts).
record_bytes_max = 2 * 1024 * 1024
frame_bytes_max = 4 * 1024 * 1024
wire_frame_bytes_max = 5 * 1024 * 1024
row_bytes_max = 1024 * 1024 - 4096  # an UPDATE logs two rows, before and after, in one record
frame_overhead_bytes_max = 64 * 1024

# Pages.
page_rows_max = 4096
page_bytes_max = 8 * 1024 * 1024
buffer_alignment_bytes = 64
l0_runs_max = 4
key_bytes_max = 8 * 1024

# SQL text and trees.
statement_bytes_max = 16 * 1024 * 1024
statement_tokens_max = 4_000_000
# A statement whose literals are parameters of a plan that others share: longer ones are few.
shared_text_max = 2_000
# Plans that a transaction keeps which has defined tables itself, and the length of their texts.
own_plans_max = 64
own_plan_text_max = 4_000
# The binder and what is behind it recurse: deeper trees do not always fit on Python's stack.
statement_depth_max = 32
# Operators one behind the other, which are as deep; and AND and OR, which are not.
statement_chain_max = 1_000
statement_conditions_max = 50_000
# Expressions of one statement, once bound: about one for a token, and more only where one is used
# in several places. At some 200 bytes each this is less than a server has.
statement_nodes_max = 4_000_000
# Expressions that are printed for DuckDB: it parses and binds 2,000 conditions, of four each, in
# 0.1 s, and nothing ends it meanwhile.
vector_nodes_max = 8_192
# Characters of the text for DuckDB with its macros put in, which it takes up to 3 µs each to parse,
# bind and plan: less than one second.
vector_text_max = 256 * 1024
# What DuckDB plans in more than linear time: 100 ms for so many. EXCEPT and INTERSECT take the
# third power of their number, subqueries the square; those that use columns of the queries around
# them the fifth: 64 of them take 14 s, in which nothing ends it.
vector_differences_max = 100
vector_subqueries_max = 100
vector_correlated_max = 24
# Sets of keys that rows are grouped by at once; DuckDB plans 64 in 100 ms, 256 in a second.
grouping_sets_max = 64
# A pattern of to_char() gives at most three characters for each of its own, so its texts are short.
template_characters_max = 100
# Operators of one generated function, of which each takes CPython's compiler 20 kB and 0.1 ms, in
# which no other thread runs: 100 ms. Rows of an INSERT are made by as many functions as they need;
# conditions with more operators are DuckDB's.
row_nodes_max = 1_000
# Lists of constants behind IN that are longer reach DuckDB as one value.
vector_list_items_max = 1_000
# Queries of DuckDB's that run within other statements, beside the results that clients hold.
vector_statements_max = 1_000
# What functions make of texts and bytes. A value may be 64 times what a row can hold, so that texts
# can be put together and looked at; it is refused before its memory is taken.
value_bytes_max = 64 * 1024 * 1024
# DuckDB makes 2,048 values at a time, and counts no memory of theirs: those of more bytes than this
# are counted before, with a call of Python's for each vector. As many smaller ones take 64 MiB.
vector_small_bytes = 32 * 1024
# Values that a client passes are below it: what is put together of them is checked only above.
parameter_bytes_max = 16 * 1024 * 1024
# A call of DuckDB's that nothing ends takes 100 ms at the most: a regular expression reads 10 MB in
# 50 ms, but takes 300 ms where it replaces every third byte, and to turn a text round one needs 100
# times its memory; LIKE compares 2 * 10^9 bytes a second with its pattern at the worst.
regex_bytes_max = 1024 * 1024
like_steps_max = 200_000_000
# A pass over a statement asks this often whether it is cancelled: at least every millisecond.
interrupt_nodes = 256
# What it takes of memory until it asks again: measured over all passes, 22 to 30 kB.
look_bytes = 24 * 1024
parameters_max = 65_535
identifier_bytes_max = 63
columns_max = 1_600
# Of a table: each is one more row to be written for each of its rows.
indexes_max = 64
# Of a table: each is computed for each row that is written. So many texts, and no longer ones, fit
# into the record of a definition.
checks_max = 100
check_bytes_max = 8 * 1024
# Of one ALTER TABLE: each makes the whole definition anew. Of the views that follow it the texts
# are read and bound while no other transaction can write.
alterations_max = 100
altered_views_max = 100
# Values of a sequence that one record of the log reserves, whatever CACHE says: so many may be
# lost by a crash.
sequence_reservation_max = 1_000_000
join_tables_max = 64
# Tables and views that the views of one statement name, theirs counted again wherever they stand:
# views over views would else grow with the power of their number.
view_relations_max = 1_000

# Tablespaces of one directory, `default` and those being made or removed included: the list of them
# is written whole, 100 to 200 bytes each, and each takes about 1 MB of memory while it is open.
tablespaces_max = 1_000
# Threads that sync the logs of all tablespaces where commits come together: each waits for the disk
# most of its time, and a disk gains little by more than a few syncs at once.
sync_threads_max = 4

# Users and rights: roles, memberships, grants and owners of one tablespace together.
access_facts_max = 100_000
access_names_max = 1_000  # of one statement: while it runs, no other session can write
role_count_max = 1_000_000  # of anything that a role may have a maximum of

# Rows that a change of rows gives (RETURNING), and their bytes: they go with its acknowledgement in
# one message, of which a driver reads so many rows, and a gRPC client 4 MiB unless it says more.
returned_rows_max = 65_536
returned_bytes_max = 3 * 1024 * 1024

# Transactions.
statement_restarts_max = 100
# Changed rows of a transaction that are kept in memory: its COMMIT keeps the others waiting for
# about a tenth of a second. A statement of many rows that brings more spills, and locks its table.
memory_changes_max = 100_000
# Rows that are locked, logged or applied while the monitor is held: one or two milliseconds.
monitor_rows_max = 1_000
# Rows of an INSERT, or of a COMMIT, while no other session is open: less than a tenth of a second.
monitor_rows_alone_max = 65_536
# Locks that are given back for each time that it is held: 1 to 3 milliseconds. With as many as rows
# the end of a cancelled UPDATE of keys took half a second beside other sessions.
monitor_locks_max = 5_000
# Of rows of one table that a transaction has changed and the log does not have yet.
unlogged_bytes_max = 64 * 1024
# Inserts or changes of a table by a transaction, over all transactions: the COMMITs of all may use
# up the disk's reserve, and have 1 MiB of it at the most in this way; the smallest has 2.
unlogged_tables_max = 16
# Savepoints of a transaction: each fetch from a cursor looks at those that it began behind.
savepoints_max = 1_000
decimal_precision_max = 38
varchar_length_max = 10_485_760
# Commit tokens: sessions whose outcomes are kept, and outcomes of one session not acknowledged.
token_sessions_max = 10_000
token_outcomes_max = 1_000
# Snapshot leases: how many, and how long one may live unused.
leases_max = 100
leases_of_user_max = 80  # so that no user takes them from all others
leases_crowded_max = 4  # of one user, while leases_of_user_max are held in all
lease_seconds_max = 30 * 24 * 3600
# Partitions that a table is asked to be read in.
partitions_max = 10_000
# Staging: jobs that are open, attempts of their tasks, and committed jobs that are remembered.
stagings_max = 1_000
stagings_of_user_max = 800  # so that no user takes them from all others
staging_runs_max = 1_000  # of one job: programs that began it and have not given it up
stages_max = 100_000
stages_of_user_max = 80_000
staging_commits_max = 10_000
staging_name_bytes_max = 200
# What a session is set to.
timeout_seconds_max = 2_147_483  # PostgreSQL's, too: 2³¹ milliseconds
application_name_bytes_max = 256

if not 2 * row_bytes_max + 1024 < record_bytes_max <= frame_bytes_max - frame_overhead_bytes_max:
    raise AssertionError("limits: 2 rows < record <= frame - overhead does not hold")
if not frame_bytes_max <= wire_frame_bytes_max:
    raise AssertionError("limits: frame <= wire frame does not hold")
if not checks_max * check_bytes_max < record_bytes_max // 2:
    raise AssertionError("limits: the checks of a table must fit in its definition")
if not row_bytes_max < page_bytes_max:
    raise AssertionError("limits: a row must fit in a page")
