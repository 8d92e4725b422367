"""BookKeeper's wire protocol: messages and frames of v3, and of v2 for clients that ask.

What the others use, by module. All of it is without I/O; any thread may call; nothing is kept
between calls but in FrameSplitter. Frames that an encoder returns begin with the 4-byte length;
frames that a parser takes, and that FrameSplitter hands out, do not.

runtime/frames.py, the outer layer, the same for both versions:

- `FrameSplitter(frame_bytes_max)`; `.feed(data) -> list[memoryview]` hands out the frames that
  are whole now, each a view of `data` or of a buffer of its own (what is kept is copied);
  `.buffered_byte_count`; `.frame_bytes_max` may be changed between calls.
  FrameTooLargeError: close the connection.

v3.py, both sides (one light object for each message; its class says the operation, and
`message.operation` is the Operation for the key (txn_id, operation)):

- server: `parse_request(frame) -> Request`, one of AddRequest, ReadRequest, ReadLacRequest,
  WriteLacRequest, ForceRequest, InfoRequest, ListEntriesRequest, AuthRequest, StartTlsRequest, or
  RefusedRequest: a request that parses and cannot be served (`status` says why); answer it with
  `encode_refusal(operation, txn_id, status, ledger_id, entry_id)`, which attaches the
  operation's own response, or none where there is none.
  MalformedFrameError: a malformed message (first frame: try v2; else close).
- server: `encode_add_response(txn_id, status, ledger_id, entry_id)`,
  `encode_read_response(txn_id, status, ledger_id, entry_id, body, max_lac, lac_update_ms)`,
  `encode_read_response_parts(...)` (the same as (head, body, tail), for writelines),
  `encode_read_lac_response(txn_id, status, ledger_id, lac_body, last_entry_body)`,
  `encode_write_lac_response(txn_id, status, ledger_id)`,
  `encode_force_response(txn_id, status, ledger_id)`,
  `encode_info_response(txn_id, status, total_bytes, free_bytes)`,
  `encode_list_entries_response(txn_id, status, ledger_id, availability)`,
  `encode_auth_response(txn_id, status, plugin_name, payload)`,
  `encode_start_tls_response(txn_id, status)`, `encode_bare_response(operation, txn_id, status)`.
- client: `encode_add_request(txn_id, ledger_id, entry_id, master_key, packet, *, is_recovery,
  is_deferred_sync, priority)` (the same frame may go to several bookies),
  `encode_read_request(txn_id, ledger_id, entry_id, *, fence_key, previous_lac, wait_ms,
  is_piggyback, priority)`, `encode_read_lac_request(txn_id, ledger_id)`,
  `encode_write_lac_request(txn_id, ledger_id, master_key, lac, packet)`,
  `encode_force_request(txn_id, ledger_id)`, `encode_info_request(txn_id, requested)`,
  `encode_list_entries_request(txn_id, ledger_id)`,
  `encode_auth_request(txn_id, plugin_name, payload)`, `encode_start_tls_request(txn_id)`.
- client: `parse_response(frame) -> Response`, one of AddResponse, ReadResponse, ReadLacResponse,
  WriteLacResponse, ForceResponse, InfoResponse, ListEntriesResponse, AuthResponse,
  StartTlsResponse, UnknownResponse; each with `txn_id` and `status`. MalformedFrameError: close.

v2.py, both sides (`is_v2(frame)` tells by the first byte, which no v3 request has):

- server: `parse_request(frame)` -> v2.AddRequest, v2.ReadRequest, v2.BatchReadRequest,
  v2.AuthRequest, or v2.RefusedRequest (another version than 2; answer with
  `encode_refusal(opcode, status, ledger_id, entry_id, request_id)`); MalformedFrameError: close.
  `encode_add_response(status, ledger_id, entry_id)`,
  `encode_read_response(status, ledger_id, entry_id, body)`,
  `encode_batch_read_response(status, ledger_id, entry_id, request_id, packets)`,
  `BatchBudget(request, frame_bytes_max)` with `.take(packet_byte_count) -> bool` for the size rule,
  `encode_auth_response(plugin_name, payload)`.
- client: `encode_add_request(master_key, packet, *, is_recovery, is_high_priority)`,
  `encode_read_request(ledger_id, entry_id, *, fence_key, is_high_priority)`,
  `encode_batch_read_request(ledger_id, entry_id, request_id, max_count, max_size, *, fence_key)`,
  `encode_auth_request(plugin_name, payload)`, `parse_response(frame)` -> v2.AddResponse,
  v2.ReadResponse, v2.BatchReadResponse, v2.AuthResponse.

availability.py: `encode(entry_ids) -> bytes`, `decode(data) -> Availability` (`.count`,
`in`, `.ranges()`), for GET_LIST_OF_ENTRIES_OF_LEDGER.
"""
