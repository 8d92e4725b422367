// herdpy from Node: connect, log in, query, a transaction, many rows at once. Run it:
//   herdpy serve ./data --grpc-port 7001
//   npm install && node client.js localhost:7001
// and where there are users and TLS: node client.js host:7001 user password ca.pem
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { logIn } from "./login.js";

const proto = fileURLToPath(new URL("../../herdpy/proto/herdpy.proto", import.meta.url));
const options = { keepCase: true, longs: Number, enums: String, oneofs: true };
const { Herdpy } = grpc.loadPackageDefinition(loader.loadSync(proto, options)).herdpy.v1;
const [address = "localhost:7001", user, password, authority] = process.argv.slice(2);
const { createSsl, createInsecure } = grpc.credentials;
const client = new Herdpy(address, authority ? createSsl(readFileSync(authority)) : createInsecure());
const metadata = new grpc.Metadata();
if (user) metadata.set("authorization", `Bearer ${await logIn(client, user, password)}`);

const value = (item) => (typeof item === "number" ? { integer: item } : { text: item });
const row = (items) => ({ values: items.map(value) });
const parameters = (items) => ({ positional: row(items) });
const plain = (found) => found.values.map((each) => (each.kind ? each[each.kind] : null));

// One statement by itself.
function execute(text, ...items) {
  const request = { text, parameters: parameters(items) };
  return new Promise((resolve, reject) =>
    client.Execute(request, metadata, (error, reply) => (error ? reject(error) : resolve(reply))),
  );
}

// Requests in, answers out, in order: transactions live in a session.
class Session {
  constructor() {
    this.waiting = [];
    this.number = 0;
    this.stream = client.Session(metadata);
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

// Many rows as one statement; nothing is written before `finish`.
function ingest(table, rows) {
  return new Promise((resolve, reject) => {
    const take = (error, reply) => (error ? reject(error) : resolve(reply.row_count));
    const stream = client.Ingest(metadata, take);
    stream.write({ start: { table } });
    for (let at = 0; at < rows.length; at += 1000) {
      stream.write({ rows: { rows: rows.slice(at, at + 1000).map(row) } });
    }
    stream.write({ finish: {} });
    stream.end();
  });
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

const many = Array.from({ length: 2500 }, (_, index) => [index + 3, `name ${index}`, 1]);
console.log(await ingest("accounts", many));
// 2500

const statement = { text: "SELECT * FROM accounts WHERE id < 4 ORDER BY id" };
for await (const reply of client.Query({ statement }, metadata)) {
  for (const each of reply.rows) console.log(JSON.stringify(plain(each)));
}
// [1,"ant",70]
// [2,"bee",80]
// [3,"name 0",1]
await execute("SELECT nope FROM accounts").catch((error) =>
  console.log(grpc.status[error.code], error.details),
);
// NOT_FOUND column "nope" does not exist
client.close();
