// Jobs that ended alike are sent as lists. A list says the same as an entry for each job, in the same order.
import test from "ava";
import { asSent, type FinishedJob } from "../../src/db/releasing.ts";
import { adaptive, engine } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";

const ended = (job: string, more: Partial<FinishedJob> = {}): FinishedJob => ({
  ...{ job, admission: "1795457410164365", ok: true, lagMs: 5, task: "p", durationMs: 7 },
  ...{ attempt: 1, ends: true, retry: null, ...more },
});

test("jobs in a row that ended alike are one entry, and a retry is an entry of its own", (t) => {
  const retry = { attempt: 1, giveUp: true } as const;
  const jobs = [
    ...[ended("1"), ended("2", { lagMs: null, durationMs: undefined })],
    ...[ended("3", { ok: false, retry }), ended("4", { ok: false, retry })],
    ...[ended("5"), ended("6", { attempt: 2 }), ended("7", { admission: null }), ended("8", { task: "q" })],
    ...[ended("9", { ends: false }), ended("10", { ok: null })],
    ...[ended("11", { ok: false, error: "a" }), ended("12", { ok: false, error: "b" })],
    ...[ended("13"), ended("14", { stagedId: "1" }), ended("15", { stagedId: "2" })],
  ];
  t.deepEqual(
    asSent(jobs).map((entry) => {
      const { job, jobs: list } = entry as { job?: string; jobs?: string };
      return job ?? list;
    }),
    ["{1,2}", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "{14,15}"],
  );
  t.deepEqual(asSent([]), []);
});

test("PostgreSQL reads lists as it reads an entry for each job", async (t) => {
  const it = await engine(t, { gates: [] });
  const jobs = [
    ended("9223372036854775807", { lagMs: 1e-7, durationMs: 5e-324 }),
    ended("3000000000", { lagMs: null, durationMs: undefined }),
    ended("2", { lagMs: Number.NaN, durationMs: Number.POSITIVE_INFINITY }),
    ended("1", { lagMs: 1e21, durationMs: -0.5 }),
    ended("5", { ok: false, retry: { attempt: 1, revision: 3, native: true, after: 1.5 } }),
    ...[ended("4", { ok: null, admission: null, attempt: null }), ended("4", { ok: null, attempt: 2 })],
    ...[ended("1"), ended("1"), ended("6")],
    ...[ended("7", { ok: false, error: "a" }), ended("8", { ok: false, error: "a" })],
    ...[ended("9", { stagedId: "1000000000000001" }), ended("10", { stagedId: "9" })],
  ];
  const read = async (entries: readonly object[]) => {
    const rows = await inside(
      it.pool,
      `select to_jsonb(j) - 'ordinality' as it from dispatch_policy_internal._finished($1) j order by j.ordinality`,
      [JSON.stringify(entries)],
    );
    return rows.map((row) => row.it);
  };
  const sent = asSent(jobs);
  t.is(sent.length, 7);
  t.deepEqual(await read(sent), await read(jobs));
  t.deepEqual(
    (await read(sent)).map(({ job }) => String(job)),
    // 2^63 - 1 is no JavaScript number
    jobs.map(({ job }) => String(Number(job))),
  );
});

test("an adaptive limit learns from lists in the order in which jobs ended", async (t) => {
  const limits: object[] = [];
  for (const send of [asSent, (jobs: readonly FinishedJob[]) => jobs]) {
    const it = await engine(t, { gates: [adaptive(8)] });
    await it.stage(Array(8).fill("a"));
    t.is(await it.passes(), 8);
    const ids = await it.inFlight();
    await it.pool.query("select graphile_worker.complete_jobs($1)", [ids]);
    // the latest jobs end first, so the order of their ids is not that of their ends
    const ok = [true, true, false, true, true, true];
    const jobs = [400, 90, 10, 3, 250, 1].map((lagMs, n) =>
      ended(ids.at(-1 - n)!, { admission: null, attempt: null, ok: ok[n]!, lagMs }),
    );
    await it.pool.query("select dispatch_policy_internal._release($1, now())", [JSON.stringify(send(jobs))]);
    const { current_max, lag_ewma_ms, in_flight } = await it.limiter("adaptive_concurrency");
    limits.push({ current_max, lag_ewma_ms, in_flight });
  }
  t.deepEqual(limits[0], limits[1]);
});
