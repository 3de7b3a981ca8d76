import test from "ava";
import { isOfEntries } from "../../src/db/halves.ts";
import { isOutage } from "../../src/db/outage.ts";

const refused = (code: string) => Object.assign(new Error("refused"), { code });

for (const code of ["EPIPE", "ECONNRESET"]) {
  test(`${code}, of a connection that breaks as it is written to, is an outage and no entry's fault`, (t) => {
    const error = Object.assign(new Error(`write ${code}`), { code, syscall: "write", errno: -32 });
    t.true(isOutage(error));
    t.false(isOfEntries(error));
  });
}

test("what PostgreSQL refuses may be one entry's fault, unless it says nothing of the entries", (t) => {
  for (const code of ["22P02", "23514", "DPKEY"]) t.true(isOfEntries(refused(code)), code);
  for (const code of ["55P03", "40P01", "42501", "3F000", "57P01"]) t.false(isOfEntries(refused(code)), code);
});
