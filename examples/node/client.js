// herdpy from Node: connect, query, a transaction. Run it:
//   herdpy serve ./data --grpc-port 7001
//   npm install && node client.js localhost:7001
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const proto = fileURLToPath(new URL("../../herdpy/proto/herdpy.proto", import.meta.url));
const loaded = loader.loadSync(proto, { longs: Number, enums: String, oneofs: true });
const { Herdpy } = grpc.loadPackageDefinition(loaded).herdpy.v1;
const address = process.argv[2] ?? "localhost:7001";
const client = new Herdpy(address, grpc.credentials.createInsecure());

const value = (item) => (typeof item === "number" ? { integer: item } : { text: item });
const parameters = (items) => ({ positional: { values: items.map(value) } });
const plain = (row) => row.values.map((each) => (each.kind ? each[each.kind] : null));

// One statement by itself.
function execute(text, ...items) {
  const request = { text, parameters: parameters(items) };
  return new Promise((resolve, reject) =>
    client.Execute(request, (error, reply) => (error ? reject(error) : resolve(reply))),
  );
}

// Requests in, answers out, in order: transactions live in a session.
class Session {
  constructor() {
    this.waiting = [];
    this.number = 0;
    this.stream = client.Session();
    this.stream.on("data", (reply) => this.waiting.shift().take(reply));
    this.stream.on("error", (error) => this.waiting.forEach((each) => each.fail(error)));
  }
  ask(request) {
    return new Promise((resolve, reject) => {
      const take = (reply) =>
        reply.failed ? reject(new Error(reply.failed.error.message)) : resolve(reply);
      this.waiting.push({ take, fail: reject });
      this.stream.write({ request: ++this.number, ...request });
    });
  }
  execute(text, ...items) {
    return this.ask({ execute: { text, parameters: parameters(items) } });
  }
}

await execute("CREATE TABLE accounts (id BIGINT PRIMARY KEY, name TEXT, amount BIGINT)");
await execute("INSERT INTO accounts VALUES (?, ?, ?), (2, 'bee', 50)", 1, "ant", 100);

const session = new Session();
await session.ask({ open: { client: "node" } });
await session.execute("UPDATE accounts SET amount = amount - ? WHERE id = ?", 30, 1);
await session.execute("UPDATE accounts SET amount = amount + ? WHERE id = ?", 30, 2);
await session.ask({ commit: {} });
await session.execute("DELETE FROM accounts");
await session.ask({ rollback: {} });
session.stream.end();

const query = client.Query({ statement: { text: "SELECT * FROM accounts ORDER BY id" } });
for await (const reply of query) {
  for (const row of reply.rows) console.log(JSON.stringify(plain(row)));
}
// [1,"ant",70]
// [2,"bee",80]
await execute("SELECT nope FROM accounts").catch((error) =>
  console.log(grpc.status[error.code], error.details),
);
// NOT_FOUND column "nope" does not exist
client.close();
