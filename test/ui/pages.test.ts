// The pages as text: what they say is what the database has, and a key cannot become markup.
import { gzipSync } from "node:zlib";
import test from "ava";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { assets } from "../../src/ui/assets.ts";
import { trendHint, trendOf } from "../../src/ui/pages/backlog.ts";
import { charts, type Minute } from "../../src/ui/pages/minutes.ts";
import { HOUR } from "../../src/ui/parts/period.ts";
import { createUi } from "../../src/ui/ui.ts";
import { QUIET_MINUTE } from "../helpers/minutes.ts";
import { silent } from "../helpers/silent.ts";
import { table, workerTable } from "../helpers/table.ts";
import { cellsOf, HERE, paths, world } from "./world.ts";

test("every page answers, with no script or style of its own, and says so in its headers", async (t) => {
  const { get, first } = await world(t);
  for (const path of paths(first)) {
    const answer = await get(path);
    t.is(answer.status, 200, path);
    const text = await answer.text();
    t.notRegex(text, /<script(?![^>]* src=)|<style| style=| on[a-z]+=/, path);
    t.is(text.match(/<h1>/g)?.length, 1, path);
    const policy = answer.headers.get("content-security-policy") ?? "";
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "frame-ancestors 'none'",
    ])
      t.true(policy.includes(part), path);
  }
});

test("the name of the environment is on each page before all else, also for a tenant, and as text", async (t) => {
  const tenant = { name: "ida", role: "tenant", partitions: { send_mail: ["ana@example.org"] } } as const;
  for (const viewer of [undefined, tenant]) {
    const { text, get } = await world(t, { environment: "<b>production</b>", ...(viewer && { viewer }) });
    for (const path of ["/", "/nothing", "/job?id=seven"]) {
      const page = await text(path);
      t.regex(page, /<title>&lt;b&gt;production&lt;\/b&gt;: [^<]+ – dispatch policies<\/title>/, path);
      t.regex(page, /<header>\s*<p class="environment">&lt;b&gt;production&lt;\/b&gt;<\/p>\s*<nav/, path);
    }
    t.is((await get("/")).status, 200);
  }
  const { text } = await world(t);
  t.regex(await text("/"), /<title>Overview – dispatch policies<\/title>/);
  t.notRegex(await text("/"), /class="environment"/);
});

test("numbers on the pages are those of the database", async (t) => {
  const { text, pool } = await world(t);
  const { rows } = await pool.query("select policy, staged, in_flight from dispatch_policy.policies");
  const page = await text("/policies");
  t.is(rows.length, 3);
  for (const { policy, staged, in_flight } of rows) {
    const row = page.split("<tr>").find((one) => one.includes(`>${policy}</a>`)) ?? "";
    const numbers = [...row.matchAll(/class="number">([^<]*)</g)].map(([, number]) => number);
    t.deepEqual([numbers[0], numbers[3]], [String(staged), String(in_flight)], policy);
  }
  const partition = await text("/partition?policy=fetch_endpoint&partition=ep1");
  const explained = await pool.query(
    "select dispatch_policy.explain(policy => 'fetch_endpoint', partition => 'ep1') ->> 'reason' as reason",
  );
  t.true(partition.includes(`<span class="code">${explained.rows[0].reason}</span>`));
  t.regex(partition, /account of acme/);
});

test("a partition lists its next jobs in their order, each with when it starts", async (t) => {
  const { text, utils, pool } = await world(t);
  const urgent = await utils.addJob("fetch_endpoint", { endpoint: "ep1", account: "acme" }, { priority: -5 });
  await utils.tick();
  const page = await text("/partition?policy=fetch_endpoint&partition=ep1");
  const [, section = ""] = page.split("<h2>Next jobs</h2>");
  const rows = (section.split("</table>")[0] ?? "").split("<tr>").slice(2);
  const { rows: staged } = await pool.query(
    "select id::text from dispatch_policy.staged_jobs where partition = 'ep1' order by priority, run_at, id",
  );
  t.deepEqual(
    rows.map((row) => /id=(\d+)/.exec(row)?.[1]),
    staged.map(({ id }) => id),
  );
  t.is(staged[0].id, urgent.id);
  t.regex(rows[0] ?? "", /Concurrency limit full.*nobody can tell: |Limit full.* in \d/is);
});

test("the overview lists the partitions that wait for longest, and why", async (t) => {
  const { text, utils, pool } = await world(t);
  const job = await utils.addJob(
    "fetch_endpoint",
    { endpoint: "old", account: "acme" },
    { runAt: new Date("2020-01-02T03:04:05Z") },
  );
  // a job that was added late has not waited since it was due
  await table(pool, "staged_jobs").set(
    { created_at: () => "timestamptz '2020-01-02T03:04:05Z'" },
    { id: job.id },
  );
  await utils.pause({ policy: "fetch_endpoint", partition: "old", reason: "r", by: "bo" });
  await utils.tick();
  const [, section = ""] = (await text("/")).split("Waiting for longest</h2>");
  const [first = "", ...others] = (section.split("</table>")[0] ?? "").split("<tr>").slice(2);
  t.regex(first, />old<.*2020-01-02 03:04:05.*>✕ Paused</s);
  t.is(others.length, 4);
});

/** A minute of the last hour. */
function aMinute(back: number, numbers: Partial<Minute> = {}): Minute {
  const none = {
    staged: "0",
    admitted: "0",
    dropped: "0",
    succeeded: "0",
    failed: "0",
    passes: "0",
    passSeconds: 0,
  };
  const minute = new Date((Math.floor(Date.now() / 60_000) - back) * 60_000);
  return { minute, ...none, denied: {}, shadowDenied: {}, ...NO_TIMES, ...numbers };
}

test("charts say how many there were at most, and have the same as numbers", (t) => {
  const drawn = (minutes: readonly Minute[]) => String(charts(minutes, HOUR, 7));
  t.regex(drawn([]), /^<p class="empty">Nothing happened in the last hour\./);
  const page = drawn([
    aMinute(5, {
      staged: "7",
      admitted: "1234",
      succeeded: "30",
      failed: "2",
      denied: { batch: 2, held: 3 },
      lagP95Seconds: 2,
    }),
  ]);
  t.regex(page, /aria-label="Admitted: at most 1,234 in a minute/);
  t.regex(page, /From due to admitted, 95 %<\/figcaption>/);
  t.regex(page, /aria-label="Ended: at most 32, failed at most 2 in a minute/);
  t.is(page.match(/<path class="wrong" d="M\d+ 40v-2\.5h3v2\.5z"/g)?.length, 1, "2 of 32, of a height of 40");
  const { minute } = aMinute(5);
  t.true(
    page.includes(`<title>${minute.toISOString().slice(11, 16)}: 32, 2 failed</title>`),
    "for who points at it",
  );
  const [, cells = ""] = page.split("<tbody>");
  t.deepEqual(
    [...cells.matchAll(/class="number[^"]*">([^<]*)</g)].map(([, cell]) => cell),
    ["7", "1,234", "5", "32", "2", "–", "2 s", "–", "7"],
  );
});

for (const [fast, slow, most] of [
  [90, 10, "1 min 51 s"],
  [98, 2, "0.95 s"],
] as const)
  test(`the overview's times are those of all policies' jobs together: ${fast} fast ones, ${slow} slow`, async (t) => {
    const { text, pool } = await world(t);
    const minute = () => "date_trunc('minute', now())";
    for (const [name, seconds, jobs] of [
      ["send_mail", 1, fast],
      ["fetch_endpoint", 113, slow],
    ]) {
      const { id: policy_id } = await table(pool, "policies").one({ name });
      const counts = () => `jsonb_build_object(dispatch_policy_internal._bucket(${seconds}), ${jobs})`;
      await table(pool, "minutes").remove({ policy_id, minute: (its: string) => `${its} = ${minute()}` });
      await table(pool, "minutes").add({
        ...{ ...QUIET_MINUTE, policy_id, minute, passes: 1, waits: counts, lags: counts },
        ...{ wait_max: seconds, lag_max: seconds },
      });
    }
    const page = await text("/");
    for (const name of ["from due to admitted, 95\u00a0%", "from admitted to started, 95\u00a0%"])
      t.true(page.includes(`<dt>${name}</dt><dd>${most}<small>half 0.95 s, longest 1 min 53 s`), name);
    const [[, , , , , , wait, lag] = []] = cellsOf(page, "The last hour");
    t.deepEqual([wait, lag], [most, most]);
  });

test("a backlog that grows is a warning, and one that shrinks says when it is gone", (t) => {
  const minutes = (numbers: Partial<Minute>) => Array.from({ length: 15 }, (_, n) => aMinute(n + 1, numbers));
  const grows = trendOf(minutes({ staged: "20", admitted: "5", dropped: "3" }), 600);
  t.deepEqual(grows, { eachMinute: 12, drainSeconds: null });
  t.regex(String(trendHint(grows, 600)), /warning<\/span> The backlog grows by 12 a minute/);
  const shrinks = trendOf(minutes({ staged: "1", admitted: "5" }), 600);
  t.deepEqual(shrinks, { eachMinute: -4, drainSeconds: 9000 });
  t.regex(String(trendHint(shrinks, 600)), /class="warn">.*gone in 2 h 30 min/);
  t.regex(String(trendHint(trendOf(minutes({ admitted: "10" }), 600), 600)), /class="">.*info.*gone in 1 h/);
  t.is(trendHint(trendOf(minutes({ admitted: "100" }), 600), 600), null);
  t.is(trendHint(trendOf([], 600), 600), null);
});

test("the overview has what waits now by reason, and the limits that end soon", async (t) => {
  const { text, utils, pool } = await world(t);
  const until = new Date(Date.now() + 20 * 60_000);
  const set = { rate: 9 };
  await utils.setLimit({ policy: "send_mail", gate: "all", set, until, reason: "a sale", by: "bo" });
  const acme = { policy: "fetch_endpoint", gate: "account", key: "acme" };
  await utils.setLimit({ ...acme, set: { max: 9 }, reason: "for good", by: "bo" });
  const later = {
    policy: "fetch_endpoint",
    gate: "throttle",
    from: until,
    set,
    reason: "newsletter",
    by: "bo",
  };
  await utils.setLimit(later);
  const states = [...(await text("/limits")).matchAll(/class="badge[^>]*>(✓ in force|to come)</g)];
  t.deepEqual(states.map(([, state]) => state).toSorted(), ["to come", "✓ in force", "✓ in force"]);
  const page = await text("/");
  const { rows } = await pool.query(
    `select reason, count(*)::text as partitions, sum(staged)::text as jobs from dispatch_policy.partitions
     where staged > 0 and reason is not null group by 1`,
  );
  t.true(rows.length > 2);
  const [, section = ""] = page.split("<h2>Why jobs wait now</h2>");
  for (const { reason, partitions, jobs } of rows) {
    const [, row = ""] = section.split(`reason=${reason}">`);
    const numbers = [...row.matchAll(/class="number">([^<]*)</g)].map(([, number]) => number);
    t.deepEqual(numbers.slice(0, 2), [partitions, jobs], reason);
  }
  const [, ending = ""] = page.split("Limits that end within the hour");
  t.regex(ending, /a sale/);
  t.notRegex(ending, /for good/);
});

test("the page of limits has a line for each: the gate's own numbers, now, since, by whom, and what comes next", async (t) => {
  const { text, utils, pool } = await world(t);
  const acme = { policy: "fetch_endpoint", gate: "account", key: "acme" };
  const later = new Date(Date.now() + 60 * 60_000);
  const says = (at: Date) => at.toISOString().slice(0, 19).replace("T", " ");
  await utils.setLimit({ ...acme, set: { max: 9 }, until: later, reason: "a sale", by: "bo" });
  await utils.setLimit({ ...acme, set: { max: 5 }, from: later, reason: "after it", by: "cy" });
  await utils.setLimit({ ...acme, key: "beta", set: { max: 2 }, from: later, reason: "soon", by: "di" });
  const mail = { policy: "send_mail", gate: "all" };
  await utils.setLimit({ ...mail, set: { rate: 9 }, reason: "9", by: "bo" });
  await utils.hold({ ...mail, until: later, reason: "429", by: "ana" });
  const since = async (where: string) =>
    says(
      (await pool.query(`select since from dispatch_policy.overrides where since is not null and ${where}`))
        .rows[0].since,
    );
  const page = await text("/limits");
  const lines = cellsOf(page.replace("<main", "Now</h2><main"), "Now").map(([gate, ...cells]) => [
    gate,
    ...cells.slice(0, -1),
  ]);
  t.deepEqual(lines, [
    [
      ...["account of fetch_endpoint", "acme", "max 3", "✓ in force max 9", await since("key = 'acme'")],
      ...[says(later), "bo", "a sale", `max 5 from ${says(later)}, by cy: after it`],
    ],
    [
      ...["account of fetch_endpoint", "beta", "max 3", "to come", "–", "–", "di", "soon"],
      `max 2 from ${says(later)}`,
    ],
    [
      ...["all of send_mail", "the policy", "3 per 1 h", "✕ on hold rate 0"],
      ...[await since("hold"), says(later), "ana", "429", `rate 9 from ${says(later)}, by bo: 9`],
    ],
  ]);
  t.regex(page, /act\/set-limit\?policy=fetch_endpoint&amp;gate=account&amp;key=acme"[^>]*>Change limit…</);
  t.regex(page, /All other gates go by .*<a href="\/policy\?policy=make_report">make_report<\/a>/);
});

test("the page of workers: who is busy, leads, has another definition, and is dead", async (t) => {
  const { text, pool } = await world(t);
  const alive = (id: string, slots: number) =>
    pool.query(
      "select dispatch_policy_internal._worker_alive($1, $2, '{fetch_endpoint}', $3, 7, '1 hour', '0')",
      [...[id, slots, `host-${id}`]],
    );
  await alive("a", 4);
  await alive("b", 2);
  await alive("c", 2);
  const { version, definition_hash: hash } = await table(pool, "policies").one({ name: "send_mail" });
  await table(pool, "workers").set({ definitions: { send_mail: { version, hash } } }, { pool_id: "a" });
  await table(pool, "workers").set({ definitions: { send_mail: { version, hash: "x" } } }, { pool_id: "b" });
  await pool.query("select dispatch_policy_internal._lease('a', '{send_mail}', null, '1 hour', true)");
  const { rows } = await pool.query("select job_id from dispatch_policy.in_flight_jobs order by 1 limit 2");
  const ids = rows.map(({ job_id }) => job_id);
  await workerTable(pool).set({ locked_by: "a", locked_at: () => "now()" }, { id: ids });
  await table(pool, "workers").set(
    { buried_at: () => "now() - interval '23 hours'", unlocked: 3, used_up: 1 },
    { pool_id: "c" },
  );
  const lines = (page: string) =>
    cellsOf(page.replace("<main", "Pools</h2><main"), "Pools").map((cells) =>
      cells.filter((_, n) => n !== 3 && n !== 4),
    );
  const page = await text("/workers");
  t.deepEqual(lines(page), [
    ["✓ alive", "a", "host-a, process 7", "2 of 4 slots", "send_mail", "send_mail", "fetch_endpoint"],
    [
      "✓ alive",
      "b",
      "host-b, process 7",
      "0 of 2 slots",
      "–",
      "send_mail ! another definition",
      "fetch_endpoint",
    ],
  ]);
  const [[pool_id, host, , , , jobs] = []] = cellsOf(page, "Dead within a day");
  t.deepEqual(
    [pool_id, host, jobs],
    ["c", "host-c, process 7", "3 jobs unlocked, to run again; 1 job in the last attempt, failed for good"],
  );
  await table(pool, "workers").set({ buried_at: () => "now() - interval '25 hours'" }, { pool_id: "c" });
  t.regex(await text("/workers"), /None died/);
});

test("a policy's page has its gates with their numbers, and what was set instead", async (t) => {
  const { text, utils } = await world(t);
  const acme = { policy: "fetch_endpoint", gate: "account", key: "acme" };
  await utils.setLimit({ ...acme, set: { max: 3 }, reason: "r", by: "bo" });
  const page = await text("/policy?policy=fetch_endpoint");
  t.regex(page, />60 per 1 min/);
  t.regex(page, /max 3 for acme, by bo/);
  t.regex(page, /the fullest key 100 %/);
  t.regex(await text("/policy?policy=send_mail"), />0[.\d]* of 3 left</);
});

test("the overview and a policy show the minutes that a sweep has written", async (t) => {
  const { text, utils } = await world(t);
  await utils.sweep();
  for (const path of ["/", "/policy?policy=fetch_endpoint"])
    t.regex(await text(path), /<caption>Denials in the last hour/, path);
});

const NO_TIMES = {
  ...{ waitP50Seconds: null, waitP95Seconds: null, waitMaxSeconds: null },
  ...{ lagP50Seconds: null, lagP95Seconds: null, lagMaxSeconds: null },
  ...{ runP50Seconds: null, runP95Seconds: null, runMaxSeconds: null },
};

test("a page below another leads to it, and a list of jobs to each state with the rest of its filter", async (t) => {
  const { text, first } = await world(t);
  const above = async (path: string) => {
    const [, trail = ""] = (await text(path)).split('<nav class="trail"');
    return [...(trail.split("</nav>")[0] ?? "").matchAll(/href="([^"]*)">([^<]*)/g)].map(([, to, says]) => [
      says,
      to,
    ]);
  };
  const policy = ["fetch_endpoint", "/policy?policy=fetch_endpoint"];
  t.deepEqual(await above("/policies"), []);
  t.deepEqual(await above("/policy?policy=fetch_endpoint"), [["Policies", "/policies"]]);
  t.deepEqual(await above("/partition?policy=fetch_endpoint&partition=ep1"), [
    ["Policies", "/policies"],
    policy,
  ]);
  t.deepEqual(await above(`/job?id=${first}`), [["Jobs", "/jobs"]]);
  const jobs = await text("/jobs?policy=send_mail&state=staged");
  t.regex(jobs, /href="\/jobs\?state=failed&amp;policy=send_mail">failed</);
  t.regex(jobs, /href="\/jobs\?policy=send_mail">any</);
  t.regex(jobs, /state=staged&amp;policy=send_mail" aria-current="true">staged <small>2</);
});

test("a policy that does not admit as it should is marked so, and its line has its last hour", async (t) => {
  const { text, utils } = await world(t);
  await utils.sweep();
  const line = async () =>
    (await text("/policies")).split("<tr>").find((one) => one.includes(">send_mail</a>")) ?? "";
  t.regex(
    await line(),
    /<svg class="spark"[^>]* aria-label="at most \d+ admitted in a minute of the last hour"/,
  );
  await utils.pause({ policy: "send_mail", reason: "r", by: "bo" });
  t.regex(await line(), /class="badge bad">✕ paused/);
});

test("a table that is wider than the screen can be scrolled by the keyboard", async (t) => {
  const { text } = await world(t);
  const page = await text("/partition?policy=fetch_endpoint&partition=ep1");
  const around = page.match(/<div class="wide"[^>]*>/g) ?? [];
  t.true(around.length > 1);
  for (const one of around) t.regex(one, / aria-label="[^"]+" tabindex="0"/);
});

const HOSTILE = `"><script>alert('x')</script>&amp;`;

test("keys, reasons and what was searched for are text, never markup", async (t) => {
  const { text, utils, send } = await world(t);
  await utils.addJob("make_report", { tenant: HOSTILE });
  await utils.pause({ policy: "make_report", partition: HOSTILE, reason: HOSTILE, by: HOSTILE });
  await utils.tick();
  const key = encodeURIComponent(HOSTILE);
  const pages = [
    ...["/", "/partitions", "/jobs", "/limits", "/audit", `/partitions?search=${key}&policy=${key}`],
    ...[`/partition?policy=make_report&partition=${key}`, `/act/hold?policy=make_report&partition=${key}`],
    `/policy?policy=${key}`,
  ];
  for (const path of pages) t.notRegex(await text(path), /<script>|alert\('x'\)/, path);
  t.true((await text(`/partition?policy=make_report&partition=${key}`)).includes("&lt;script&gt;"));
  const done = await send("/act/pause", { policy: "make_report", partition: HOSTILE, reason: HOSTILE });
  t.notRegex(await done.text(), /<script>/);
});

test("what is not there is a 404, and a wrong argument a 400 that says what is wrong", async (t) => {
  const { get, send } = await world(t);
  for (const path of [
    "/nothing",
    "/partition?policy=fetch_endpoint&partition=ep99",
    "/job?id=77",
    "/act/drop",
  ])
    t.is((await get(path)).status, 404, path);
  for (const [path, says] of [
    ["/policy?policy=nobody", /nobody/],
    ["/job?id=seven", /seven/],
    ["/partitions?after=nowhere", /nowhere/],
    ["/partitions?search=%00", /0x00/],
  ] as const) {
    const answer = await get(path);
    t.is(answer.status, 400, path);
    t.regex(await answer.text(), says);
  }
  const answer = await send("/act/pause", { policy: "fetch_endpoint", for: "soon", reason: "r" });
  t.is(answer.status, 400);
  t.regex(await answer.text(), /for must be a duration, .*got &quot;soon&quot;/);
});

test("a policy's page has what the doctor finds of it, with what mends that, and nothing of others", async (t) => {
  const { text, utils } = await world(t);
  await utils.pause({ policy: "send_mail", reason: "r", by: "bo" });
  const [its, other] = [await text("/policy?policy=send_mail"), await text("/policy?policy=fetch_endpoint")];
  t.regex(
    its,
    /<li class=""><span class="mark">info<\/span> Policy &quot;send_mail&quot; is paused, by bo \(r\)/,
  );
  t.regex(its, /<pre>select \* from dispatch_policy\.resume\(&#39;send_mail&#39;\);<\/pre>/);
  t.notRegex(other, /is paused, by bo/);
  t.notRegex(its, /policy &quot;fetch_endpoint&quot;/);
});

test("what stops a partition by name can be ended from the page of limits, by an operator", async (t) => {
  const { text } = await world(t);
  const to = /<a href="(\/act\/resume[^"]*)" aria-label="Resume ep3 of fetch_endpoint">/.exec(
    await text("/limits"),
  );
  t.is(to?.[1], "/act/resume?policy=fetch_endpoint&amp;partition=ep3");
  const viewer = await world(t, { viewer: { name: "eve", role: "viewer" } });
  t.notRegex(await viewer.text("/limits"), /act\/resume/);
});

test("a limit's gate is chosen from those of the policy", async (t) => {
  const { text, get } = await world(t);
  const page = await text("/act/set-limit?policy=fetch_endpoint&gate=account&key=acme");
  t.regex(page, /<select name="gate" required>/);
  const [, asked = ""] = page.split('<select name="gate"');
  const choices = [...asked.matchAll(/<option value="(\w+)"( selected)?>([^<]+)</g)].map((one) =>
    one.slice(1),
  );
  t.deepEqual(choices, [
    ["throttle", undefined, "throttle (throttle of each partition)"],
    ["concurrency", undefined, "concurrency (concurrency of each partition)"],
    ["account", " selected", "account (concurrency of each key)"],
  ]);
  t.regex(page, /name="key" value="acme"/);
  t.regex(await text("/act/set-limit?policy=fetch_endpoint&gate=gone"), /<input name="gate" value="gone"/);
  t.is((await get("/act/set-limit?policy=nobody")).status, 400);
});

test("a page that has not changed is not sent again", async (t) => {
  const { get } = await world(t);
  for (const path of ["/limits", "/policies", "/partitions"]) {
    const tag = (await get(path)).headers.get("etag") ?? "";
    t.regex(tag, /^".+"$/);
    const again = await get(path, { "if-none-match": tag });
    t.is(again.status, 304, path);
    t.is(await again.text(), "");
  }
});

test("pages of a long list follow one another without a gap", async (t) => {
  const { text, utils, pool } = await world(t);
  await utils.addJobs(
    Array.from({ length: 120 }, (_, n) => ({ identifier: "make_report", payload: { tenant: `t${n}` } })),
  );
  await utils.tick();
  const listed = async (query: string) => {
    const seen: string[] = [];
    for (let path: string | undefined = `/partitions?policy=make_report&${query}`; path !== undefined; ) {
      const page: string = await text(path);
      seen.push(...[...page.matchAll(/partition=(t\d+)"/g)].map(([, key]) => key!));
      path = /href="([^"]*)" rel="next"/.exec(page)?.[1]?.replaceAll("&amp;", "&");
    }
    return seen;
  };
  await utils.addJobs(
    Array.from({ length: 60 }, (_, n) => ({ identifier: "make_report", payload: { tenant: `t${n}` } })),
  );
  await utils.pause({ policy: "make_report", partition: "t7", reason: "r", by: "bo" });
  await utils.addJob("make_report", { tenant: "t7" });
  for (const [sort, order] of [
    ["", "date_trunc('milliseconds', next_due_at), id"],
    ["key", "partition"],
    ["most staged", "staged desc, id"],
    ["most in flight", "in_flight desc, id"],
    ["most admitted", "admitted_total desc, id"],
  ]) {
    const { rows } = await pool.query(
      `select partition from dispatch_policy.partitions where policy = 'make_report' order by ${order}`,
    );
    t.deepEqual(
      await listed(`sort=${sort}`),
      rows.map(({ partition }) => partition),
      sort,
    );
  }
  const { rows } = await pool.query(
    "select from dispatch_policy.partitions where policy = 'make_report' and staged > 0",
  );
  t.true(rows.length > 50);
  t.is((await listed("state=with+staged+jobs")).length, rows.length);
  t.deepEqual(await listed("state=paused+or+on+hold"), ["t7"]);
});

/** The cells of each row of the page's only table. */
const rowsOf = (page: string) =>
  page
    .split("<tr>")
    .slice(2)
    .map((row) => [...row.matchAll(/<td[^>]*>(.*?)<\/td>/gs)].map(([, cell]) => cell!));
const textOf = (cell = "") => cell.replace(/<[^>]*>/g, "");

test("partitions with work are first, the longest due before all others, each with how full its cap is", async (t) => {
  const { text, utils, pool } = await world(t);
  const fetch = (endpoint: string, runAt?: Date) =>
    utils.addJob("fetch_endpoint", { endpoint, account: endpoint }, runAt && { runAt });
  await fetch("idle");
  await fetch("later", new Date(Date.now() + 3_600_000));
  await fetch("ep4", new Date("2020-01-02T03:04:05Z"));
  const shared = await makePolicyUtils({ pgPool: pool, policies: [SHARED], logger: silent });
  t.teardown(() => shared.release());
  await shared.addJobs(["a", "a", "b"].map((k) => ({ identifier: "shared", payload: { k } })));
  await utils.tick();
  await shared.tick();
  const judged = await pool.query<{ partition: string }>(
    `select partition from dispatch_policy.staged_jobs where policy = 'fetch_endpoint' group by partition order by min(run_at)`,
  );
  const rows = rowsOf(await text("/partitions?policy=fetch_endpoint"));
  t.deepEqual(
    rows.map(([, , key]) => textOf(key)),
    [...judged.rows.map(({ partition }) => partition), "idle"],
  );
  t.is(judged.rows[0]?.partition, "ep4");
  t.is(judged.rows.at(-1)?.partition, "later");
  const cellOf = (key: string, column: number) => rows.find(([, , one]) => textOf(one) === key)?.[column];
  t.regex(cellOf("ep1", 6)!, /^<svg class="gauge".*width="100".*>2 of 2$/s);
  t.is(textOf(cellOf("idle", 6)), "1 of 2");
  t.is(textOf(cellOf("later", 3)), "Not due yet not_due");
  t.regex(cellOf("ep4", 3)!, /✕ On hold/);
  t.is(textOf(cellOf("ep4", 4)), "2020-01-02 03:04:05");
  await utils.setLimit({
    ...{ policy: "fetch_endpoint", gate: "concurrency", key: "ep1", set: { max: 9 }, reason: "r", by: "bo" },
  });
  t.is(textOf(rowsOf(await text("/partitions?policy=fetch_endpoint&search=ep1"))[0]![6]), "2 of 9");
  const ofShared = rowsOf(await text("/partitions?policy=shared&sort=key"));
  t.deepEqual(
    ofShared.map((cells) => textOf(cells[6])),
    ["1 concurrency 2 of 2", "1 concurrency 2 of 2"],
  );
});

const SHARED = definePolicy("shared", {
  partitionBy: "k",
  gates: ({ concurrency }) => [concurrency({ scope: "policy", max: 2 })],
});

test("how many partitions wait for each reason is what its link lists, with a policy and without", async (t) => {
  const { text, utils } = await world(t);
  await utils.addJob(
    "fetch_endpoint",
    { endpoint: "later", account: "a" },
    { runAt: new Date(Date.now() + 3_600_000) },
  );
  await utils.addJob("fetch_endpoint", { endpoint: "idle", account: "b" });
  await utils.addJobs(
    // ep2 is one, with a lane for each account
    ["beta", "beta", "beta"].map((account) => ({
      identifier: "fetch_endpoint",
      payload: { endpoint: "ep2", account },
    })),
  );
  await utils.tick();
  for (const key of ["idle", "ep9"])
    await utils.pause({ policy: "fetch_endpoint", partition: key, reason: "nothing waits there", by: "bo" });
  for (const path of [
    "/partitions",
    "/partitions?policy=fetch_endpoint",
    "/partitions?policy=send_mail&sort=key",
  ]) {
    const chips = [...(await text(path)).matchAll(/<a href="([^"]*)">([^<]*) <small>([^<]*)<\/small><\/a>/g)];
    t.true(chips.length > 1, path);
    for (const [, to, says, count] of chips) {
      const page = await text(to!.replaceAll("&amp;", "&"));
      t.is(rowsOf(page).length, Number(count), `${path}: ${says}`);
      t.regex(page, new RegExp(`aria-current="true">${says} <small>`));
      if (path.includes("send_mail")) t.regex(page, /<input type="hidden" name="(?:state|reason)"/);
    }
  }
  const chipsOf = async (path: string) =>
    [...(await text(path)).matchAll(/<li><a href="\/partitions[^"]*"[^>]*>(.*?)<\/a>/g)].map(([, one]) =>
      textOf(one),
    );
  const chips = await chipsOf("/partitions?policy=fetch_endpoint");
  t.true(chips.includes("Paused 1") && chips.includes("Not due yet 1"), chips.join());
  const unused = await chipsOf("/partitions?policy=send_mail&reason=batch");
  t.true(unused.includes("Next pass 0"), unused.join());
  t.true(
    (await chipsOf("/partitions?search=ep")).includes("Paused"),
    "what the search leaves is not counted",
  );
});

test("a policy's page names the partitions that were admitted most, and the jobs that were due first", async (t) => {
  const { text, utils, pool } = await world(t);
  await utils.addJob("fetch_endpoint", { endpoint: "ep3", account: "beta" }, { runAt: new Date(0) });
  const page = await text("/policy?policy=fetch_endpoint");
  const most = cellsOf(page, "Partitions that were admitted most");
  t.deepEqual(
    most.map((cells) => cells.slice(0, 2)),
    [
      ["ep1", "2"],
      ["ep2", "1"],
    ],
  );
  const since = async (which: string, values: unknown[] = []) =>
    (
      await pool.query(
        `select greatest(run_at, created_at) as since from dispatch_policy.staged_jobs where policy = 'fetch_endpoint' ${which}`,
        values,
      )
    ).rows.map((row) => Number(row.since));
  const ids = cellsOf(page, "Staged jobs").map(([id]) => id);
  t.is(ids.length, 5);
  t.deepEqual(
    (await since("and id = any($1)", [ids])).toSorted(),
    await since("order by greatest(run_at, created_at) limit 5"),
  );
  t.regex(page, /href="\/jobs\?policy=fetch_endpoint&amp;state=staged">All staged jobs</);
});

test("payloads are shown only where they are allowed, without what is secret, and with all digits", async (t) => {
  const it = await world(t);
  const payload = `{"tenant": "acme", "order": 9007199254740993, "card": "hush", "apiKey": "hush", "smtp": {"password": {"is": "hush"}}}`;
  const { rows } = await it.pool.query("select id from dispatch_policy.add_job('make_report', $1::json)", [
    payload,
  ]);
  const path = `/job?id=${rows[0].id}`;
  t.notRegex(await it.text(path), /9007199254740993|hush|<h2>Payload/);
  const ui = createUi({
    pool: it.pool,
    showPayloads: true,
    authorize: () => ({ name: "ana", role: "viewer" }),
  });
  const page = await (await ui(new Request(HERE + path))).text();
  t.regex(page, /&quot;order&quot;: 9007199254740993,/);
  t.regex(page, /&quot;apiKey&quot;: &quot;\(hidden\)&quot;/);
  t.regex(page, /&quot;password&quot;: &quot;\(hidden\)&quot;/);
  t.notRegex(page, /hush/);
});

test("browsers keep what they load under an address that names its text, and under no other", async (t) => {
  const { get, text } = await world(t);
  const page = await text("/");
  const named = [...page.matchAll(/(?:href|src)="(\/assets\/[^"]*)"/g)].map(([, to]) => to!);
  t.is(named.length, 2);
  const script = await text(named[1]!);
  const [, imported = ""] = /from "\.(\/idiomorph[^"]*)"/.exec(script) ?? [];
  for (const to of [...named, `/assets${imported}`]) {
    t.regex((await get(to)).headers.get("cache-control") ?? "", /immutable/, to);
    for (const other of [to.replace(/\?.*/, ""), to.replace(/v=.*/, "v=old")])
      t.is((await get(other)).headers.get("cache-control"), "private, no-cache", other);
  }
});

test("what a browser loads beside the pages is at most 20 kB", (t) => {
  const sizes = Object.values(assets()).map(({ text }) => gzipSync(text).length);
  const size = sizes.reduce((sum, one) => sum + one, 0);
  t.true(size > 5000 && size < 20_000, `${size} bytes`);
});
