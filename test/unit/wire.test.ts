// What the connection to a PGlite reads of PostgreSQL's wire protocol.
import test from "ava";
import { listensOf } from "../../src/testing/listens.ts";
import {
  failure,
  message,
  messagesOf,
  notification,
  query,
  readAnswer,
  SYNC,
  statementOf,
  typeOf,
} from "../../src/testing/wire.ts";

test("messages are found among bytes, and a part of one is an error that says what to do", (t) => {
  const sent = [query("select 'ä'"), message("P", "name\0select 1\0\0\0"), SYNC];
  const all = Buffer.concat(sent);
  t.deepEqual(messagesOf(all), sent);
  t.deepEqual(messagesOf(all.subarray(0, 0)), []);
  for (const part of [
    all.subarray(0, 3),
    all.subarray(0, -1),
    all.subarray(1),
    Buffer.from("data of a copy\n"),
  ])
    t.throws(() => messagesOf(part), { message: /use a PostgreSQL server for this test/ });
});

test("the statement of a message", (t) => {
  t.is(statementOf(query("select 'ä'")), "select 'ä'");
  t.is(statementOf(message("P", "name\0select 1\0\0\0")), "select 1");
  t.is(statementOf(SYNC), undefined);
});

test("an answer says whether a transaction is open, and brings no notifications", (t) => {
  const done = message("C", "BEGIN\0");
  const bytes = Buffer.concat([notification("a", "b"), done, message("Z", "T")]);
  t.deepEqual(readAnswer(bytes), { bytes: Buffer.concat([done, message("Z", "T")]), inTransaction: true });
  t.true(readAnswer(message("Z", "E")).inTransaction);
  t.false(readAnswer(Buffer.concat([message("Z", "T"), message("Z", "I")])).inTransaction);
  t.is(readAnswer(done).inTransaction, undefined);
  const said = failure({ code: "55P03", message: "busy", hint: "wait" });
  t.is(typeOf(said), "E");
  t.false(readAnswer(said).inTransaction);
});

test("listens are found among statements, by the names that PostgreSQL makes of them", (t) => {
  t.deepEqual(listensOf('LISTEN "jobs:insert"; UNLISTEN Some_Name;\n listen "a""b"'), [
    { channel: "jobs:insert", on: true },
    { channel: "some_name", on: false },
    { channel: 'a"b', on: true },
  ]);
  t.deepEqual(listensOf("unlisten *"), [{ channel: null, on: false }]);
  for (const none of ["select 'listen a'", "listen *", "select 1", "listen a b", "relisten a"])
    t.deepEqual(listensOf(none), [], none);
});
