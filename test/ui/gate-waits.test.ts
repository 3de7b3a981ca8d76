// How long jobs waited for each gate, and for which keys: as the history has it.
import test from "ava";
import { concurrency, definePolicy } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { startWorker } from "../helpers/worker.ts";
import { cellsOf, HERE } from "./world.ts";

interface Ctx {
  account: string;
}
const options = {
  context: (payload: { account: string }): Ctx => ({ account: payload.account }),
  partitionBy: "k",
  gates: [
    concurrency({ max: 1 }),
    concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 1 }),
    concurrency({ name: "all", scope: "policy", max: 50 }),
  ],
} as const;
const kept = definePolicy("kept", { ...options, history: { keep: "7 days" } } as never);
const forgotten = definePolicy("forgotten", options as never);
const tasks = { kept: async () => {}, forgotten: async () => {} };

test("each gate has the waits of its jobs, its worst keys first, as the history says", async (t) => {
  const { pool, utils, sees, everythingIsReleased } = await startWorker(t, { policies: [kept], tasks });
  const payloads = ["a", "a", "a", "b", "c"].map((k, n) => ({ k, account: n < 4 ? "acme" : "beta" }));
  await utils.addJobs(payloads.map((payload) => ({ identifier: "kept", payload })));
  await sees("job:success", payloads.length);
  await everythingIsReleased();
  const { rows: history } = await pool.query("select waited, waited_by_gate from dispatch_policy.history");
  t.is(history.length, payloads.length);
  for (const { waited, waited_by_gate } of history) {
    t.notRegex(Object.keys(waited).join(), /:/);
    t.is(sum(Object.values(waited_by_gate)).toFixed(6), sum([waited.concurrency_full ?? 0]).toFixed(6));
  }
  const { rows } = await pool.query(
    "select * from dispatch_policy.gate_waits('kept', now() - interval '1 hour')",
  );
  const all = rows.filter(({ key }) => key === null);
  t.deepEqual(
    all.map(({ gate, jobs }) => [gate, jobs]),
    ["concurrency", "account", "all"].map((gate) => [gate, payloads.length]),
  );
  for (const { gate, waited, longest_seconds } of all) {
    const waits = history.map((row) => row.waited_by_gate[gate] ?? 0);
    t.is(waited, waits.filter((seconds) => seconds > 0).length, gate);
    t.is(longest_seconds, Math.max(...waits), gate);
  }
  t.true(
    all.some(({ waited }) => waited > 0),
    JSON.stringify(rows),
  );
  for (const { gate, key } of rows.filter((row) => row.key !== null))
    t.true((gate === "account" ? ["acme", "beta"] : ["a", "b", "c"]).includes(key), `${gate} ${key}`);

  const page = await pageOf(pool, "kept");
  const cells = cellsOf(page, "How long jobs waited for each gate");
  t.deepEqual(
    cells.map(([gate, key, , , share, jobs]) => [gate, key, share, jobs]),
    rows.map(({ gate, key, waited, jobs }) => [
      ...[gate, key ?? "all", `${Math.round((waited / jobs) * 1000) / 10} %`, String(jobs)],
    ]),
  );
  const [section = ""] = (page.split("How long jobs waited for each gate</h2>")[1] ?? "").split("</table>");
  const worst = Math.max(...rows.map((row) => row.p95_seconds));
  t.deepEqual(
    [...section.matchAll(/<svg class="gauge compared"[^>]*><rect width="([^"]*)"/g)].map(([, width]) =>
      Number(width),
    ),
    rows.flatMap((row) => [(row.p95_seconds / worst) * 100, (row.waited / row.jobs) * 100]),
    "how long, beside the longest, and how often",
  );
});

test("without a history the page says what to switch on", async (t) => {
  const { pool } = await startWorker(t, { policies: [forgotten], tasks });
  const page = await pageOf(pool, "forgotten");
  t.regex(page, /is not recorded\. To know it, .*<code>history: { keep: "7 days" }<\/code>/);
});

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);

async function pageOf(
  pool: Awaited<ReturnType<typeof startWorker>>["pool"],
  policy: string,
): Promise<string> {
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  return (await ui(new Request(`${HERE}/policy?policy=${policy}`))).text();
}
