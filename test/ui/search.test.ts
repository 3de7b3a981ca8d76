// The search in the frame of each page: where a word leads to.
import test from "ava";
import { addPolicyJobs, definePolicy } from "../../src/index.ts";
import { workerTable } from "../helpers/table.ts";
import { HERE, world } from "./world.ts";

/** What each row says, and where its first link leads. */
function rowsOf(page: string): readonly (readonly string[])[] {
  const rows = page.split("<tbody>")[1]?.split("</tbody>")[0]?.split("<tr>").slice(1) ?? [];
  return rows.map((row) => [
    /href="([^"]*)"/.exec(row)?.[1]?.replaceAll("&amp;", "&") ?? "",
    ...[...row.matchAll(/<td[^>]*>(.*?)<\/td>/gs)].map(([, cell]) => cell!.replace(/<[^>]*>/g, "")),
  ]);
}

test("what nothing else reads like is shown itself", async (t) => {
  const { get, utils, pool, first } = await world(t, { basePath: "/admin" });
  const { id } = await utils.addJob("make_report", { tenant: "globex" }, { jobKey: "night of globex" });
  const to = async (q: string) => {
    const answer = await get(`/admin/search?${new URLSearchParams({ q })}`);
    t.is(answer.status, 303, q);
    return answer.headers.get("location");
  };
  t.is(await to("ep3"), "/admin/partition?policy=fetch_endpoint&partition=ep3");
  t.is(await to("send_mail"), "/admin/policy?policy=send_mail");
  t.is(await to(id), `/admin/job?id=${id}`);
  t.is(await to("night of globex"), `/admin/job?id=${id}`);
  const { rows } = await pool.query(
    "select job_id from dispatch_policy.in_flight_jobs where staged_id = $1",
    [first],
  );
  t.is(await to(first), `/admin/job?id=${rows[0].job_id}`);
});

test("a list has what reads like it, with its blanks, and what it may be", async (t) => {
  const { text, utils } = await world(t);
  await utils.addJobs(
    ["cust-06", "cust-06 ", "cust-061"].map((tenant) => ({ identifier: "make_report", payload: { tenant } })),
  );
  await utils.tick();
  const to = (key: string) => `/partition?policy=make_report&partition=${key}`;
  t.deepEqual(rowsOf(await text("/search?q=cust-06")), [
    [to("cust-06"), "partition", "cust-06", "–", "make_report", "–", "no job waits", "–"],
    [
      ...[to("cust-06+"), "partition", "cust-06␠", "–", "make_report", "–", "no job waits"],
      "near match: blanks at its ends differ",
    ],
    [to("cust-061"), "partition", "cust-061", "–", "make_report", "–", "no job waits", "–"],
  ]);
  t.regex(await text(to("cust-06+")), /<h1>cust-06␠<\/h1>/);
  const near = "near match: one character differs";
  t.deepEqual(rowsOf(await text("/search?q=cust-0611")), [
    [to("cust-061"), "partition", "cust-061", "–", "make_report", "–", "no job waits", near],
  ]);
});

test("a context, a state, an error with all jobs that have it, and a policy that nobody declared", async (t) => {
  const { text, pool, utils } = await world(t);
  const [flying] = await workerTable(pool).all({}, "id");
  await utils.permanentlyFailJobs([flying.id], "<b>no answer</b>");
  const gone = definePolicy("gone", { tasks: ["work"], partitionBy: "account" });
  await addPolicyJobs(pool, [{ policy: gone, payload: { account: "lost" } }] as never);
  t.deepEqual(
    rowsOf(await text("/search?q=beta")).map((row) => row.slice(0, 7)),
    [
      [
        ...["/partition?policy=fetch_endpoint&partition=ep3", "partition", "ep3", "account = beta"],
        ...["fetch_endpoint", "–", "✕ Paused paused"],
      ],
    ],
  );
  const page = await text("/search?q=NO+ANSWER");
  t.like(rowsOf(page), [[`/job?id=${flying.id}`, "error", flying.id, "&lt;b&gt;no answer&lt;/b&gt;"]]);
  t.is(rowsOf(page)[0]![6], "✕ failed");
  const [, all = ""] = /href="(\/jobs[^"]*)"/.exec(page.split("<tbody>")[1]!) ?? [];
  t.regex(await text(all.replaceAll("&amp;", "&")), new RegExp(`>${flying.id}</a>`));
  t.deepEqual(rowsOf(await text("/search?q=los")), [
    [
      ...["/jobs?policy=gone&partition=lost", "partition", "lost", "–", "gone", "–"],
      ...["nobody declared its policy", "–"],
    ],
  ]);
});

test("without a word, and where nothing matches, it says what it finds; what was typed is text", async (t) => {
  const { text, get } = await world(t);
  const about = /It finds jobs by their id or job key/;
  t.regex(await text("/search"), about);
  const page = await text("/search?q=%22%3E%3Cscript%3E+");
  t.regex(page, about);
  t.regex(page, /Nothing matches <strong>&quot;&gt;&lt;script&gt;␠<\/strong>/);
  t.regex(page, /name="q" value="&quot;&gt;&lt;script&gt; "/);
  t.is((await get("/search?q=%00")).status, 400);
  t.notRegex(page, /data-live/, "it would be looked for again and again");
});

test("each page has the field; a tenant has neither field nor page", async (t) => {
  const field = /<header>.*<form method="get" action="\/search" role="search">.*<\/header>/s;
  const it = await world(t, { viewer: { name: "vic", role: "viewer" } });
  for (const path of ["/", "/jobs", "/search?q=ep", "/nowhere"]) t.regex(await it.text(path), field, path);
  const partitions = { fetch_endpoint: ["ep1"] };
  const tenant = await world(t, { viewer: { name: "ida", role: "tenant", partitions } });
  t.notRegex(await tenant.text("/"), /role="search"/);
  for (const q of ["ep1", "ep3", "nothing"]) {
    const answer = await tenant.get(`/search?q=${q}`);
    t.is(answer.status, 404, q);
    t.notRegex(await answer.text(), /ep[13]/);
  }
  t.is((await tenant.ui(new Request(`${HERE}/search`))).status, 404);
});
