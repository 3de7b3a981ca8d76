import { once } from "node:events";
import { connect, createServer } from "node:net";
import test from "ava";
import { isOfEntries } from "../../src/db/halves.ts";
import { isOutage } from "../../src/db/outage.ts";

/** What a socket says that is written to after its other end has closed. */
async function brokenPipe(): Promise<Error> {
  const server = createServer((socket) => socket.destroy()).listen(0);
  await once(server, "listening");
  const socket = connect((server.address() as { port: number }).port);
  const failed = once(socket, "error") as Promise<[Error]>;
  const writing = setInterval(() => socket.write("x"), 1);
  const [error] = await failed;
  clearInterval(writing);
  server.close();
  return error;
}

test("a connection that breaks as it is written to is an outage, and no entry's fault", async (t) => {
  const error = await brokenPipe();
  t.regex((error as Error & { code: string }).code, /^(EPIPE|ECONNRESET)$/);
  t.true(isOutage(error));
  t.false(isOfEntries(error));
  const pipe = Object.assign(new Error("write EPIPE"), { code: "EPIPE", syscall: "write" });
  t.true(isOutage(pipe));
  t.false(isOfEntries(pipe));
});

test("what PostgreSQL refuses may be one entry's fault, unless it says nothing of the entries", (t) => {
  const refused = (code: string) => Object.assign(new Error("refused"), { code });
  for (const code of ["22P02", "23514", "DPKEY"]) t.true(isOfEntries(refused(code)), code);
  for (const code of ["55P03", "40P01", "42501", "3F000", "57P01"]) t.false(isOfEntries(refused(code)), code);
});
