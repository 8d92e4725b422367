// herdpy from Go: connect, log in, query, a transaction, many rows at once. Run it, in this folder:
//
//	herdpy serve ./data --grpc-port 7001
//	./generate.sh && go run . localhost:7001
//
// and where there are users and TLS: go run . host:7001 user password ca.pem
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "herdpy.example/client/herdpypb"
)

func value(item any) *pb.Value {
	switch item := item.(type) {
	case int:
		return &pb.Value{Kind: &pb.Value_Integer{Integer: int64(item)}}
	case string:
		return &pb.Value{Kind: &pb.Value_Text{Text: item}}
	}
	return &pb.Value{} // NULL
}

func row(items ...any) *pb.Row {
	found := &pb.Row{}
	for _, item := range items {
		found.Values = append(found.Values, value(item))
	}
	return found
}

func parameters(items ...any) *pb.Parameters {
	return &pb.Parameters{Kind: &pb.Parameters_Positional{Positional: row(items...)}}
}

func plain(row *pb.Row) []any {
	var items []any
	for _, value := range row.Values {
		switch kind := value.Kind.(type) {
		case *pb.Value_Integer:
			items = append(items, kind.Integer)
		case *pb.Value_Text:
			items = append(items, kind.Text)
		default:
			items = append(items, nil)
		}
	}
	return items
}

// A token for a password, which goes over TLS; by SCRAM it stays here: examples/node/login.js.
func logIn(ctx context.Context, client pb.HerdpyClient, user, password string) string {
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+basic)
	stream := must(client.Login(ctx))
	check(stream.CloseSend())
	return must(stream.Recv()).GetLoggedIn().Token
}

// Requests in, answers out, in order: transactions live in a session.
type session struct {
	stream grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionReply]
	number uint64
}

func (s *session) ask(request *pb.SessionRequest) *pb.SessionReply {
	s.number++
	request.Request = s.number
	check(s.stream.Send(request))
	reply := must(s.stream.Recv())
	if failed := reply.GetFailed(); failed != nil {
		log.Fatal(failed.Error.Message)
	}
	return reply
}

func (s *session) execute(text string, items ...any) {
	execute := &pb.Execute{Text: text, Parameters: parameters(items...)}
	s.ask(&pb.SessionRequest{Kind: &pb.SessionRequest_Execute{Execute: execute}})
}

func transfer(ctx context.Context, client pb.HerdpyClient, from, to, amount int) {
	s := &session{stream: must(client.Session(ctx))}
	s.ask(&pb.SessionRequest{Kind: &pb.SessionRequest_Open{Open: &pb.Open{Client: "go"}}})
	s.execute("UPDATE accounts SET amount = amount - ? WHERE id = ?", amount, from)
	s.execute("UPDATE accounts SET amount = amount + ? WHERE id = ?", amount, to)
	s.ask(&pb.SessionRequest{Kind: &pb.SessionRequest_Commit{Commit: &pb.Commit{}}})
	check(s.stream.CloseSend())
}

// Many rows as one statement; nothing is written before finish.
func ingest(ctx context.Context, client pb.HerdpyClient, table string, rows []*pb.Row) int64 {
	stream := must(client.Ingest(ctx))
	start := &pb.IngestRequest_Start{Start: &pb.IngestStart{Table: table}}
	check(stream.Send(&pb.IngestRequest{Kind: start}))
	for len(rows) > 0 {
		count := min(len(rows), 1000)
		some := &pb.IngestRequest_Rows{Rows: &pb.IngestRows{Rows: rows[:count]}}
		check(stream.Send(&pb.IngestRequest{Kind: some}))
		rows = rows[count:]
	}
	finish := &pb.IngestRequest_Finish{Finish: &pb.IngestFinish{}}
	check(stream.Send(&pb.IngestRequest{Kind: finish}))
	return must(stream.CloseAndRecv()).RowCount
}

func main() {
	address, security := "localhost:7001", insecure.NewCredentials()
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if len(os.Args) > 4 {
		security = must(credentials.NewClientTLSFromFile(os.Args[4], ""))
	}
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(security)))
	defer connection.Close()
	client, ctx := pb.NewHerdpyClient(connection), context.Background()
	if len(os.Args) > 3 {
		token := logIn(ctx, client, os.Args[2], os.Args[3])
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	execute := func(text string, items ...any) error {
		_, err := client.Execute(ctx, &pb.ExecuteRequest{Text: text, Parameters: parameters(items...)})
		return err
	}

	check(execute("CREATE TABLE accounts (id BIGINT PRIMARY KEY, name TEXT, amount BIGINT)"))
	check(execute("INSERT INTO accounts VALUES (?, ?, ?), (2, 'bee', 50)", 1, "ant", 100))
	transfer(ctx, client, 1, 2, 30)

	var many []*pb.Row
	for index := range 2500 {
		many = append(many, row(index+3, fmt.Sprint("name ", index), 1))
	}
	fmt.Println(ingest(ctx, client, "accounts", many))
	// 2500

	statement := &pb.ExecuteRequest{Text: "SELECT * FROM accounts WHERE id < 4 ORDER BY id"}
	stream := must(client.Query(ctx, &pb.QueryRequest{Statement: statement}))
	for reply, err := stream.Recv(); err != io.EOF; reply, err = stream.Recv() {
		check(err)
		for _, row := range reply.Rows {
			fmt.Println(plain(row)...)
		}
	}
	// 1 ant 70
	// 2 bee 80
	// 3 name 0 1

	failed := status.Convert(execute("SELECT nope FROM accounts"))
	info := failed.Details()[0].(*errdetails.ErrorInfo)
	fmt.Println(failed.Code(), info.Reason, info.Metadata["retry"], failed.Message())
	// NotFound 42703 never column "nope" does not exist
}

func must[T any](found T, err error) T {
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
