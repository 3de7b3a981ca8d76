// The past of a job on its page, where its policy keeps a history.
import test from "ava";
import { concurrency, definePolicy } from "../../src/index.ts";
import { createUi, type UiOptions } from "../../src/ui/ui.ts";
import { startWorker } from "../helpers/worker.ts";
import { HERE } from "./world.ts";

const options = { partitionBy: "k", gates: [concurrency({ max: 1 })] } as const;
const kept = definePolicy("kept", { ...options, history: { keep: "7 days" } });
const forgotten = definePolicy("forgotten", options);

test("a job's page tells what happened to it, in order, and what it waited for", async (t) => {
  const tasks = {
    kept(payload: unknown) {
      if ((payload as { bad?: boolean }).bad) throw new Error("503 from the <server>");
    },
    forgotten() {},
  };
  const { utils, sees, everythingIsReleased, pool } = await startWorker(t, {
    policies: [kept, forgotten],
    tasks,
  });
  const good = await utils.addJob("kept", { k: "a" }, { jobKey: "its" });
  const bad = await utils.addJob("kept", { k: "b", bad: true }, { maxAttempts: 1 });
  const lost = await utils.addJob("forgotten", { k: "a" });
  const coming = await utils.addJob("kept", { k: "c" }, { runAt: new Date(Date.now() + 86_400_000) });
  await sees("job:success", 2);
  await sees("job:error", 1);
  await everythingIsReleased();
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const ask = (id: string) => ui(new Request(`${HERE}/job?id=${id}`));
  const text = async (id: string) => (await ask(id)).text();

  const page = await text(good.id);
  t.deepEqual(whatHappened(page), ["added", "admitted", "last attempt started", "succeeded"]);
  t.regex(page, /<dt>job key<\/dt><dd>its<\/dd>/);
  t.regex(page, /<caption>How long it waited in staging, by reason<\/caption>.*In line: others went first/s);
  for (const [, after] of page.matchAll(/class="number">(?:–|([^<]*))<\/td>/g))
    t.regex(after ?? "0 ms", /^\d[\d.]* (ms|s|min)/);

  const failed = await text(bad.id);
  t.is(whatHappened(failed).at(-1), "failed");
  t.regex(failed, /503 from the &lt;server&gt;/);
  t.notRegex(await text(coming.id), /<h2>History/, "it has no past yet");
  const gone = await ask(lost.id);
  t.is(gone.status, 404);
  t.regex(await gone.text(), /unless its policy keeps a history/);
});

test("a job's page has its failed attempts with their errors, in order and as a line", async (t) => {
  const policy = definePolicy("kept", {
    ...options,
    history: { keep: "7 days" },
    backoff: () => "20 milliseconds",
  });
  const tasks = {
    kept(_: unknown, { job }: { job: { attempts: number } }) {
      if (job.attempts < 3) throw new Error(`<${job.attempts}> of the server\n at a place`);
    },
  };
  const { utils, sees, everythingIsReleased, pool } = await startWorker(t, { policies: [policy], tasks });
  const { id } = await utils.addJob("kept", { k: "a" });
  await sees("job:success", 1);
  await everythingIsReleased();
  const { rows } = await pool.query(
    "select failed_attempts, started_at, ended_at from dispatch_policy.history",
  );
  const [{ failed_attempts: failed }] = rows;
  t.deepEqual(
    failed.map(({ attempt, error }: { attempt: number; error: string }) => [attempt, error]),
    [
      [1, "<1> of the server"],
      [2, "<2> of the server"],
    ],
  );
  const [one] = await utils.history({ policy: "kept" });
  t.deepEqual(
    one?.failedAttempts.map(({ startedAt, endedAt }) => [startedAt?.getTime(), endedAt?.getTime()]),
    failed.map((it: Record<"started_at" | "ended_at", string>) => [
      Date.parse(it.started_at),
      Date.parse(it.ended_at),
    ]),
  );
  const page = await pageOf(pool, id);
  t.deepEqual(
    whatHappened(page).filter((what) => /attempt|succeeded/.test(what ?? "")),
    [
      ...["attempt 1 started", "attempt 1 failed", "attempt 2 started", "attempt 2 failed"],
      ...["last attempt started", "succeeded"],
    ],
  );
  t.regex(page, /attempt 2 failed<.*?&lt;2&gt; of the server/s);
  t.regex(page, /aria-label="3 attempts in [^"]*, 2 of them failed"/);
  t.is(
    page
      .split('<svg class="time-line"')[1]
      ?.split("</svg>")[0]
      ?.match(/<rect class="(?:run|failed)"/g)?.length,
    3,
  );
  t.regex(page, /<rect class="staged"[^>]*><title>in staging for /);
});

test("of a job with many failed attempts the last ten are kept", async (t) => {
  const policy = definePolicy("kept", {
    ...options,
    history: { keep: "1 day" },
    backoff: () => "1 millisecond",
  });
  const tasks = {
    kept() {
      throw new Error("never");
    },
  };
  const { utils, sees, everythingIsReleased, pool } = await startWorker(t, { policies: [policy], tasks });
  const { id } = await utils.addJob("kept", { k: "a" }, { maxAttempts: 12 });
  await sees("job:failed", 1);
  await everythingIsReleased();
  const { rows } = await pool.query("select failed_attempts from dispatch_policy.history");
  t.deepEqual(
    rows[0].failed_attempts.map(({ attempt }: { attempt: number }) => attempt),
    Array.from({ length: 10 }, (_, n) => n + 3),
  );
  const page = await pageOf(pool, id);
  t.is(whatHappened(page).at(-1), "failed");
  t.false(whatHappened(page).includes("attempt 12 failed"), "it says it once");
});

const TRACE = "0af7651916cd43dd8448eb211c80319c";

test("a traced job's page leads to its trace while it waits, runs and when it has ended", async (t) => {
  const { utils, sees, everythingIsReleased, pool } = await startWorker(t, {
    policies: [kept],
    tasks: { kept() {} },
  });
  const add = (later: string) =>
    pool.query<{ id: string }>(
      `with traced as (select set_config('dispatch_policy.traceparent', '00-${TRACE}-b7ad6b7169203331-01', true) as is_set)
       select a.id::text from traced, lateral (
         select * from dispatch_policy.add_job('kept', '{"k": "a"}', run_at => now() + $1::interval) where traced.is_set <> '') a`,
      [later],
    );
  const waits = (await add("1 day")).rows[0]!.id;
  const ended = (await add("0")).rows[0]!.id;
  await sees("job:success", 1);
  await everythingIsReleased();
  const href = `<a href="https://traces.example.org/t/${TRACE}?a=%22&amp;b=1" rel="noreferrer">${TRACE}</a>`;
  const traceUrl = (traceId: string) => `https://traces.example.org/t/${traceId}?a="&b=1`;
  for (const id of [waits, ended]) {
    t.true((await pageOf(pool, id, { traceUrl })).includes(href), id);
    t.true((await pageOf(pool, id)).includes(`<dt>trace</dt><dd>${TRACE}</dd>`), id);
    t.is((await utils.explain({ id })).traceId, TRACE);
  }
  for (const wrong of ["javascript:alert(1)", "data:text/html,x", "/relative", "", " JavaScript:alert(1)"]) {
    const page = await pageOf(pool, ended, { traceUrl: () => wrong });
    t.notRegex(page, /javascript:|data:text/i, wrong);
    t.regex(page, /traceUrl gives no http or https address/, wrong);
  }
  t.throws(() => createUi({ pool, authorize: () => null, traceUrl: "https://x" as never }), {
    message: /createUi: traceUrl must be a function from a trace id/,
  });
});

async function pageOf(
  pool: Awaited<ReturnType<typeof startWorker>>["pool"],
  id: string,
  more: Pick<UiOptions, "traceUrl"> = {},
): Promise<string> {
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }), ...more });
  return (await ui(new Request(`${HERE}/job?id=${id}`))).text();
}

/** What the first table of the history says, by its rows. */
function whatHappened(page: string): readonly (string | undefined)[] {
  const [, section = ""] = page.split("<caption>What happened to it</caption>");
  const rows = section.split("</tbody>")[0]?.split("<tr>").slice(2) ?? [];
  return rows.map((row) => /<td[^>]*>([^<]*)</.exec(row)?.[1]);
}
