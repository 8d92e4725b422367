// A token for a password, which does not leave this machine: SCRAM-SHA-256 (RFC 7677).
import { createHash, createHmac, pbkdf2Sync, randomBytes } from "node:crypto";
import { once } from "node:events";

const hmac = (key, text) => createHmac("sha256", key).update(text).digest();

export async function logIn(client, user, password) {
  const stream = client.Login();
  const reply = async () => (await once(stream, "data"))[0]; // fails with the stream's error
  const nonce = randomBytes(18).toString("base64");
  const clientFirst = `n=*,r=${nonce}`;
  stream.write({ start: { user, client_first: `n,,${clientFirst}` } });
  const { challenge } = await reply();
  const [, all, salt, count] = challenge.match(/^r=([^,]+),s=([^,]+),i=(\d+)$/);
  if (!all.startsWith(nonce) || count > 1_000_000) throw new Error("a challenge that is none");
  const salted = pbkdf2Sync(password, Buffer.from(salt, "base64"), Number(count), 32, "sha256");
  const clientKey = hmac(salted, "Client Key");
  const stored = createHash("sha256").update(clientKey).digest();
  const unproven = `c=biws,r=${all}`;
  const message = `${clientFirst},${challenge},${unproven}`;
  const signature = hmac(stored, message);
  const proof = clientKey.map((byte, index) => byte ^ signature[index]);
  stream.write({ proof: `${unproven},p=${Buffer.from(proof).toString("base64")}` });
  const { verified, token } = (await reply()).logged_in;
  stream.end();
  const expected = hmac(hmac(salted, "Server Key"), message).toString("base64");
  if (verified !== `v=${expected}`) throw new Error("the server does not know the password");
  return token;
}
