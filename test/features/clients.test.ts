// A client of the application's own: the form of its answers is known before anything is written.
import test from "ava";
import {
  ArgumentError,
  addPolicyJob,
  addPolicyJobs,
  fromPostgresJs,
  type Queryable,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { greet } from "../helpers/policies.ts";

type Answer = (rows: object[], count: number | null) => unknown;

const OTHERS: Record<string, [answer: Answer, got: string]> = {
  "the rows themselves": [(rows) => rows, "an array"],
  "rows and their number": [(rows, count) => [rows, count], "an array"],
  nothing: [() => undefined, "nothing"],
  "a number": [(_rows, count) => count, "1"],
  "the first row": [([row]) => row, "an object"],
  "rows that are no list": [(rows) => ({ rows: new Set(rows) }), "a Set"],
  "rows that are arrays": [(rows) => ({ rows: rows.map(Object.values) }), "an array"],
};

for (const [what, [answer, got]] of Object.entries(OTHERS))
  test(`a client that answers ${what} is refused, and nothing is staged`, async (t) => {
    const { pool } = await testDatabase(t);
    const client = {
      query: async (text: string, values?: unknown[]) => {
        const { rows, rowCount } = await pool.query(text, values);
        return answer(rows, rowCount);
      },
    } as Queryable;
    const job = { policy: greet, payload: { name: "Ana" } };
    const calls = {
      addPolicyJob: () => addPolicyJob(client, greet, job.payload, { jobKey: "k" }),
      addPolicyJobs: () => addPolicyJobs(client, [job]),
      "a group": () => addPolicyJobs(client, [job], { then: job }),
    };
    for (const [call, add] of Object.entries(calls))
      await t.throwsAsync(
        add(),
        {
          instanceOf: ArgumentError,
          message: `the client's query must resolve to { rows }, an array of objects as pg's, got ${got}`,
        },
        call,
      );
    t.deepEqual((await pool.query("select payload from dispatch_policy.staged_jobs")).rows, []);
    t.deepEqual((await pool.query("select id from graphile_worker.jobs")).rows, []);
  });

test("a query function is asked once, and the clients of a library never", async (t) => {
  const { pool } = await testDatabase(t);
  let asked = 0;
  class Adapter implements Queryable {
    query(text: string, values?: unknown[]) {
      asked++;
      return pool.query(text, values);
    }
  }
  const cost = async (client: Queryable) => {
    asked = 0;
    await addPolicyJob(client, greet, { name: "Ana" });
    return asked;
  };
  t.is(await cost(new Adapter()), 2);
  t.is(await cost(new Adapter()), 1);
  const unsafe = async (text: string, values?: unknown[]) => {
    asked++;
    return (await pool.query(text, values)).rows;
  };
  t.is(await cost(fromPostgresJs({ unsafe })), 1);
});
