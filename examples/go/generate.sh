#!/bin/sh
# Writes herdpypb/ from herdpy.proto, by protoc and its two programs for Go:
#   go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
#   go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
# PROTOC="python -m grpc_tools.protoc" does without a protoc of the system.
set -eu
cd "$(dirname "$0")"
to=Mherdpy.proto=herdpy.example/client/herdpypb
${PROTOC:-protoc} -I ../../herdpy/proto --go_out=. --go-grpc_out=. \
  --go_opt="$to" --go-grpc_opt="$to" --go_opt=module=herdpy.example/client \
  --go-grpc_opt=module=herdpy.example/client herdpy.proto
