// Who may see the pages, who may change something, and from where.
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import test from "ava";
import { ArgumentError } from "../../src/index.ts";
import { ACTION_PAGES } from "../../src/ui/pages/action.ts";
import { ACTIONS } from "../../src/ui/pages/actions.ts";
import { BULK_PAGES } from "../../src/ui/pages/bulk.ts";
import { tokenOf } from "../../src/ui/pages/one-time.ts";
import { TICKED_PAGES } from "../../src/ui/pages/ticked.ts";
import { createUi, toNodeHandler, type UiOptions, type Viewer } from "../../src/ui/ui.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { HERE, world } from "./world.ts";

/** Of a UI that is not to reach its database. */
const NO_POOL = { connect: () => Promise.reject(new Error("reached the database")) } as never;
const PAUSE = { policy: "fetch_endpoint", partition: "ep1", reason: "deploy", for: "10 minutes" };

test("without authorize nothing is mounted, and a wrong option is named", (t) => {
  const pool = { connect: () => {} } as never;
  const authorize = () => null;
  for (const [options, message] of [
    [{ pool }, /authorize is missing/],
    [{ authorize }, /createUi: expected pool or preset, got neither/],
    [{ pool: {}, authorize }, /createUi: pool must be a pool of pg/],
    [{ pool, authorize, basePath: "jobs" }, /basePath must be a path that begins with "\/".*got "jobs"/],
    [
      { pool, authorize, publicOrigins: ["https://a.example/x"] },
      /publicOrigins must be an array of origins/,
    ],
    [{ pool, authorize, autorize: 1 }, /"autorize"/],
    ...["", "  ", "x".repeat(41), 7].map(
      (environment) =>
        [{ pool, authorize, environment }, /createUi: environment must be a name of at most 40 /] as never,
    ),
  ] as [UiOptions, RegExp][])
    t.throws(() => createUi(options), { instanceOf: ArgumentError, message });
});

test("who is not admitted sees nothing; a redirect to a sign-in is sent", async (t) => {
  const out = await world(t, { authorize: () => null });
  for (const path of ["/", "/assets/style.css", "/nothing"]) t.is((await out.get(path)).status, 401, path);
  t.is((await out.send("/act/pause", PAUSE)).status, 401);
  const away = await world(t, { authorize: () => Response.redirect("https://sign.in/") });
  t.is((await away.get("/")).headers.get("location"), "https://sign.in/");
});

test("an authorize that finds nobody by undefined or false lets nobody in", async (t) => {
  for (const nobody of [undefined, false, "", 0]) {
    const ui = createUi({ pool: NO_POOL, authorize: () => nobody as never });
    for (const path of ["/", "/assets/live.js"])
      t.is((await ui(new Request(HERE + path))).status, 401, String(nobody));
  }
});

test("what PostgreSQL says of a failure is for operators", async (t) => {
  const viewers: readonly Viewer[] = [
    { name: "ana", role: "viewer" },
    { name: "ana", role: "operator" },
    { name: "ana", role: "tenant", partitions: { send_mail: ["acme"] } },
  ];
  for (const viewer of viewers) {
    const ui = createUi({ pool: NO_POOL, authorize: () => viewer });
    const answer = await ui(new Request(`${HERE}/`));
    t.is(answer.status, 503);
    t.is((await answer.text()).includes("reached the database"), viewer.role === "operator");
  }
});

test.serial("an authorize that gives no name or another role lets nobody in", async (t) => {
  const said: unknown[] = [];
  t.teardown(silence(said));
  for (const viewer of [
    {},
    { role: "operator" },
    { name: " ", role: "operator" },
    { name: "ana", role: "admin" },
    { name: "ana", role: "tenant" },
    { name: "ana", role: "tenant", partitions: ["acme"] },
    { name: "ana", role: "tenant", partitions: { send_mail: "acme" } },
    { name: "ana", role: "tenant", partitions: { send_mail: [undefined] } },
    { name: "ana", role: "tenant", where: { send_mail: {} } },
    { name: "ana", role: "tenant", where: { send_mail: { account: undefined } } },
    { name: "ana", role: "tenant", where: { send_mail: { account: ["acme"] } } },
    { name: "ana", role: "tenant", where: { send_mail: { account: Number.NaN } } },
    { name: "ana", role: "tenant", where: { send_mail: "acme" }, partitions: {} },
    { name: "ana", role: "viewer", where: { send_mail: { account: "acme" } } },
    { name: "ana", role: "viewer", partitions: { send_mail: ["acme"] } },
    { name: "ana", role: "operator", partitions: {} },
  ]) {
    const ui = createUi({ pool: NO_POOL, authorize: () => viewer as never });
    t.is((await ui(new Request(`${HERE}/`))).status, 500);
  }
  t.regex(String(said[0]), /what authorize returns must be .*"viewer" or "operator"/);
});

/** Keeps what is written to the console as an error, until it is called. */
function silence(said: unknown[]): () => void {
  const { error } = console;
  console.error = (...parts) => said.push(...parts);
  return () => {
    console.error = error;
  };
}

test("requests that no browser sends are refused, and do not end the process", async (t) => {
  const asked: string[] = [];
  const authorize = ({ url }: Request) => {
    asked.push(url);
    return null;
  };
  const handler = toNodeHandler(createUi({ pool: NO_POOL, authorize, publicOrigins: ["http://a.example"] }));
  const server = http.createServer((request, response) => {
    handler(request, response).catch((error) => response.destroy(error)); // a host does not catch it
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  for (const [line, host] of [
    ["TRACE / HTTP/1.1", "a.example"],
    ["GET / HTTP/1.1", "a b"],
    ["GET / HTTP/1.1", "a.example/act/pause?"],
    ["GET http://[ HTTP/1.1", "a.example"],
  ] as const)
    t.is(await firstLine(port, line, host), "HTTP/1.1 400 Bad Request", `${line}, ${host}`);
  t.deepEqual(asked, []);
  for (const path of ["//", "//evil.example/policies"]) {
    t.is(await firstLine(port, `GET ${path} HTTP/1.1`, "a.example"), "HTTP/1.1 401 Unauthorized");
    t.is(asked.pop(), `http://a.example${path}`);
  }
});

/** The first line of the answer. */
async function firstLine(port: number, line: string, host: string): Promise<string | undefined> {
  const socket = net.connect(port, "127.0.0.1");
  socket.end(`${line}\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  return (await text(socket)).split("\r\n")[0];
}

test("all cookies of a sign-in are sent", async (t) => {
  const authorize = () => {
    const headers = new Headers({ location: "https://sign.in/" });
    for (const cookie of ["state=1", "nonce=2"]) headers.append("set-cookie", cookie);
    return new Response(null, { status: 302, headers });
  };
  const server = http.createServer(toNodeHandler(createUi({ pool: NO_POOL, authorize })));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const answer = await fetch(`http://127.0.0.1:${port}/`, { redirect: "manual" });
  t.is(answer.status, 302);
  t.deepEqual(answer.headers.getSetCookie(), ["state=1", "nonce=2"]);
});

test("a host's empty body that no parser has read does not hide the form", async (t) => {
  const it = await world(t);
  const handler = toNodeHandler(it.ui);
  const server = http.createServer((request, response) => {
    Object.assign(request, { body: {} }); // as Express 4 does with a parser for JSON alone
    void handler(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const sent = await fetch(`http://127.0.0.1:${port}/act/pause`, {
    method: "POST",
    body: new URLSearchParams({ ...PAUSE, form: tokenOf(new Date()) }),
    headers: { "sec-fetch-site": "same-origin" },
  });
  t.regex(await sent.text(), /role="status">Paused partition ep1/);
});

test("a viewer changes nothing, by any verb", async (t) => {
  const it = await world(t, { viewer: { name: "eve", role: "viewer" } });
  const before = await it.audit();
  for (const verb of Object.keys(ACTIONS)) {
    t.is(
      (await it.send(`/act/${verb}`, { ...PAUSE, gate: "account", max: "1", count: "1" })).status,
      403,
      verb,
    );
    t.regex(await it.text(`/act/${verb}?policy=fetch_endpoint`), /A viewer changes nothing/);
  }
  t.deepEqual(await it.audit(), before);
  t.notRegex(await it.text("/partition?policy=fetch_endpoint&partition=ep1"), /\/act\//);
});

test("a viewer's page of a form counts nothing", async (t) => {
  const ui = createUi({ pool: NO_POOL, authorize: () => ({ name: "eve", role: "viewer" }) });
  for (const path of Object.keys({ ...ACTION_PAGES, ...BULK_PAGES, ...TICKED_PAGES })) {
    const answer = await ui(new Request(`${HERE}${path}?policy=fetch_endpoint&partition=ep1&gate=account`));
    t.is(answer.status, 200, path);
    t.regex(await answer.text(), /A viewer changes nothing/);
  }
});

test("what is no verb has no page and no form, whatever objects inherit", async (t) => {
  const ui = createUi({ pool: NO_POOL, authorize: () => ({ name: "ana", role: "operator" }) });
  const body = new URLSearchParams({ policy: "fetch_endpoint", reason: "r", form: tokenOf(new Date()) });
  const headers = { "sec-fetch-site": "same-origin" };
  for (const name of [
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "drop",
    "pause/x",
    "%5F_proto__",
    "",
  ])
    for (const at of ["act", "bulk", "assets"]) {
      const url = `${HERE}/${at}/${name}`;
      t.is((await ui(new Request(url))).status, 404, url);
      t.is((await ui(new Request(url, { method: "POST", body, headers }))).status, 404, url);
    }
});

test("another name for the host is refused if the pages have names, but no address is", async (t) => {
  let asked = 0;
  const ui = createUi({
    pool: NO_POOL,
    publicOrigins: ["https://admin.example.org", "http://jobs.internal:3000"],
    authorize: () => {
      asked++;
      return null;
    },
  });
  const statusFor = async (host: string) => (await ui(new Request(`${HERE}/`, { headers: { host } }))).status;
  for (const host of [
    ...["admin.example.org", "ADMIN.example.org", "admin.example.org:443", "jobs.internal:3000", "localhost"],
    ...["localhost:4180", "127.0.0.1", "127.0.0.1:4180", "[::1]:3000", "10.1.2.3:80"],
  ])
    t.is(await statusFor(host), 401, host);
  asked = 0;
  for (const host of [
    ...["evil.example", "admin.example.org.evil.example", "evil.example:443", "admin.example.org:8443", ""],
    ...[
      "jobs.internal",
      "localhost.evil.example",
      "127.0.0.1.evil.example",
      "a b",
      "admin.example.org@evil.example",
    ],
  ])
    t.is(await statusFor(host), 421, host);
  t.is(asked, 0, "nobody is asked who it is");
  const answer = await ui(new Request("http://evil.example/"));
  t.regex(await answer.text(), /not meant to be reached under this name.*publicOrigins of createUi/);
});

test.serial("pages that any name reaches say so once, and not for an address", async (t) => {
  const said: unknown[][] = [];
  const { emitWarning } = process;
  process.emitWarning = ((...warning: unknown[]) => said.push(warning)) as never;
  t.teardown(() => {
    process.emitWarning = emitWarning;
  });
  const ui = createUi({ pool: NO_POOL, authorize: () => null });
  for (const host of ["127.0.0.1:4180", "localhost", "jobs.example", "other.example", "jobs.example"])
    t.is((await ui(new Request(`${HERE}/`, { headers: { host } }))).status, 401);
  t.is(said.length, 1);
  t.regex(String(said[0]![0]), /open under the name "jobs\.example".*publicOrigins of createUi/);
  t.deepEqual(said[0]![1], { code: "DISPATCH_POLICY_HOST" });
});

test("a form of another site changes nothing", async (t) => {
  const origins = ["https://admin.public.example", "http://admin.example.org"];
  const it = await world(t, { publicOrigins: origins });
  const before = await it.audit();
  for (const headers of [
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "none" },
    { origin: "https://evil.example" },
    { origin: "null" },
    {},
  ] as Record<string, string>[])
    t.is((await it.send("/act/pause", PAUSE, { host: "admin.example.org", ...headers })).status, 403);
  t.deepEqual(await it.audit(), before);
  for (const origin of origins)
    t.is((await it.send("/act/pause", PAUSE, { host: "admin.example.org", origin })).status, 200, origin);
});

test("what is done is in the audit under the name of whoever signed in, and has a reason", async (t) => {
  const it = await world(t);
  const before = (await it.audit()).length;
  const without = await it.send("/act/pause", { ...PAUSE, reason: " " });
  t.regex(await without.text(), /Say why/);
  t.is((await it.audit()).length, before);
  const done = await it.send("/act/pause", { ...PAUSE, by: "somebody else" });
  const text = await done.text();
  t.regex(text, /Paused partition ep1 of policy fetch_endpoint, for 10 min\. By ana/);
  t.deepEqual((await it.audit()).at(-1), {
    ...{ verb: "pause", policy: "fetch_endpoint", partition: "ep1", by: "ana", reason: "deploy" },
  });
  t.regex(text, /\/act\/resume\?[^"]*">Undo</);
  const sql = /<pre>(select .*?)<\/pre>/.exec(text)?.[1] ?? "";
  const { rows } = await it.pool.query(sql.replaceAll("&#39;", "'").replaceAll("&gt;", ">"));
  t.like(rows[0], { matched: 1 });
});

test("an empty key is a key: the action does not widen to the policy", async (t) => {
  const it = await world(t);
  await it.utils.addJob("make_report", { tenant: "" });
  await it.utils.tick();
  t.regex(await it.text("/act/pause?policy=make_report&partition="), /name="partition" value=""/);
  await it.send("/act/pause", { policy: "make_report", partition: "", reason: "r" });
  t.deepEqual((await it.audit()).at(-1)?.partition, "");
  const { rows } = await it.pool.query(
    "select paused from dispatch_policy.policies where policy = 'make_report'",
  );
  t.false(rows[0].paused);
});

test("each verb's page does what its command does", async (t) => {
  const it = await world(t);
  const asks = (verb: string, more = "") => it.text(`/act/${verb}?policy=fetch_endpoint${more}`);
  const counts = /concerns <strong>1 partition<\/strong>, with 3 staged jobs and 2 in flight\./;
  for (const verb of ["pause", "resume", "hold"]) t.regex(await asks(verb, "&partition=ep1"), counts, verb);
  t.regex(await asks("pause"), /<strong>4 partitions<\/strong>, with 15 staged jobs and 3 in flight\./);
  t.regex(
    await asks("pause", "&partition=ep9"),
    /Nothing matches now: it is stored for partitions to come\./,
  );
  t.regex(await asks("clear-limit", "&gate=account&key=acme"), /<strong>2 partitions<\/strong>, with 6 /);
  const says = async (verb: string, form: Record<string, string>) =>
    (await it.send(`/act/${verb}`, { policy: "fetch_endpoint", reason: "r", ...form })).text();
  t.regex(await says("resume", { partition: "ep3" }), /Resumed partition ep3/);
  t.regex(await says("hold", { partition: "ep3", for: "1 hour" }), /Put partition ep3 .* on hold for 60 min/);
  t.regex(
    await says("set-limit", { gate: "account", key: "acme", max: "7", for: "1 hour" }),
    /Set the limit of gate account for acme to max 7, for 1 h\./,
  );
  t.like((await it.utils.limits())[0], { key: "acme", override: { max: 7 }, by: "ana" });
  t.regex(await says("clear-limit", { gate: "account", key: "acme" }), /Ended the limit of gate account/);
  t.deepEqual(await it.utils.limits(), []);
  t.regex(await it.text(`/job?id=${it.first}`), /act\/release-slots\?ids=\d+"/);
  t.regex(await says("release-slots", { ids: it.first }), /Job \d+ has freed its slots/);
  t.regex(await says("admit", { partition: "ep1", count: "1" }), /Admitted 1 job of/);
  t.regex(
    await says("admit", { partition: "ep1", count: "all" }),
    /Admitted 3 jobs of.*--count 200 .*count =&gt; 200/s,
  );
  t.regex(await it.text("/act/move?policy=fetch_endpoint&partition=ep4"), /<strong>3<\/strong> jobs match/);
  t.regex(await says("move", { partition: "ep4" }), /Say where the jobs go/);
  t.regex(
    await says("move", { partition: "ep4", "to-partition": "ep5" }),
    /Moved 3 of 3 staged jobs to partition ep5/,
  );
  t.regex(await it.text("/act/remove?policy=fetch_endpoint&partition=ep3"), /<strong>6<\/strong> jobs match/);
  t.regex(await says("remove", { partition: "ep3" }), /Removed 6 of 6 staged jobs/);
  t.regex(await it.text("/act/cancel?policy=fetch_endpoint&partition=ep2"), /<strong>4<\/strong> jobs match/);
  t.regex(await says("cancel", { partition: "ep2" }), /Cancelled 4 of 4 jobs/);
});

test("the command that a page prints does the same", async (t) => {
  const it = await world(t);
  const printed = async (verb: string, form: Record<string, string>) => {
    const page = await (await it.send(`/act/${verb}`, { reason: "it's -odd", ...form })).text();
    const [, command = ""] = /<pre>npx graphile-worker-dispatch-policy (.*?)<\/pre>/.exec(page) ?? [];
    const words = command.replaceAll("&#39;", "'").match(/(?:'[^']*'|\\'|[^ '\\])+/g) ?? [];
    return words.map((word) => word.replaceAll("'\\''", "\0").replaceAll("'", "").replaceAll("\0", "'"));
  };
  const policy = "fetch_endpoint";
  for (const [verb, form, again] of [
    ["admit", { policy, partition: "ep1", count: "1" }, /^Admitted 1 job/],
    ["admit", { policy, partition: "ep1", count: "all" }, /^Admitted 0 jobs/],
    ["move", { policy, partition: "ep2", "to-partition": "ep5" }, /^Moved 0 of 0 staged jobs/],
    ["remove", { policy, partition: "ep1" }, /^Removed 0 of 0 staged jobs/],
    ["release-slots", { ids: it.first }, /has no slots/],
    ["retry", { ids: it.first }, /^Brought back 0 of 0 failed jobs/],
    ["set-limit", { policy, gate: "account", max: "7", for: "1 hour" }, /^Set the limit of gate account/],
  ] as [string, Record<string, string>, RegExp][]) {
    const { stdout, stderr } = await it.cli(...(await printed(verb, form)));
    t.regex(stdout, again, `${verb}: ${stderr}`);
    t.like((await it.audit()).at(-1), { by: "ana", reason: "it's -odd" });
  }
});

test("below a path, through Node's http server, with a body that the host has parsed", async (t) => {
  const { url } = await testDatabase(t);
  const it = await world(t, { basePath: "/admin/jobs" });
  const pool = quietPool(url);
  t.teardown(() => pool.end());
  const handler = toNodeHandler(it.ui);
  const server = http.createServer(async (request, response) => {
    const parsed = request as typeof request & { originalUrl?: string; body?: unknown };
    parsed.originalUrl = request.url ?? "/";
    if (request.method === "POST") {
      let text = "";
      for await (const part of request) text += part;
      parsed.body = Object.fromEntries(new URLSearchParams(text));
    }
    request.url = (request.url ?? "/").replace("/admin/jobs", "") || "/"; // as Express does
    await handler(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const here = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const page = await fetch(`${here}/admin/jobs/policies`);
  t.is(page.status, 200);
  const text = await page.text();
  for (const [, href] of text.matchAll(/(?:href|src)="([^"#]+)"/g))
    t.regex(href!, /^(\/admin\/jobs\/|data:)/);
  t.is((await fetch(`${here}/admin/jobs/assets/live.js`)).status, 200);
  t.is((await fetch(`${here}/admin/jobs`)).status, 200);
  const sent = await fetch(`${here}/admin/jobs/act/pause`, {
    method: "POST",
    body: new URLSearchParams({ ...PAUSE, form: tokenOf(new Date()) }),
    headers: { "sec-fetch-site": "same-origin" },
  });
  t.regex(await sent.text(), /role="status">Paused partition ep1/);
});
