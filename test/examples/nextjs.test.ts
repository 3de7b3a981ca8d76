// examples/nextjs without Next.js: its route handler is called with a Request and its server action with a FormData, as
// Next.js calls them. docs/ui.md and test/ui/hosts.ts have the same contract for the admin pages.
import "../../scripts/from-sources.ts"; // the example names the package
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { testDatabase } from "../helpers/database.ts";
import { copyOut, runScript } from "../helpers/example-project.ts";
import { ofNextJs } from "../ui/hosts.ts";

/** A copy of the project, whose database `npm start` has set up. */
async function project(t: ExecutionContext) {
  const { url, pool } = await testDatabase(t, { migrated: false });
  const folder = await copyOut(t, "nextjs");
  await runScript(folder, "prestart", { DATABASE_URL: url });
  await runScript(folder, "prestart", { DATABASE_URL: url }); // at each start
  process.env.DATABASE_URL = url;
  t.teardown(async () => {
    const kept = globalThis as { pool?: { end(): Promise<void> } };
    await kept.pool?.end();
    delete kept.pool;
  });
  const load = (file: string) => import(path.join(folder, file));
  const there = async (customer: string) => {
    const { rows } = await pool.query(
      `select (select count(*)::int from sign_ups where customer = $1) as sign_ups,
        array(select id::text from dispatch_policy.staged_jobs where partition = $1) as jobs`,
      [customer],
    );
    return rows[0];
  };
  return { load, there };
}

test.serial("the route handler commits a sign-up and its job together, or neither", async (t) => {
  const { load, there } = await project(t);
  const server = http.createServer(ofNextJs(await load("app/sign-ups/route.ts"))).listen(0, "127.0.0.1");
  t.teardown(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const post = async (body: string) => {
    const response = await fetch(`http://127.0.0.1:${port}/sign-ups`, { method: "POST", body });
    return { status: response.status, said: (await response.json()) as { job?: string; error?: string } };
  };

  const first = await post('{"customer":"ana"}');
  t.is(first.status, 201);
  t.deepEqual(await there("ana"), { sign_ups: 1, jobs: [first.said.job] });
  t.deepEqual(await post('{"customer":"ana"}'), {
    status: 409,
    said: { error: "ana has signed up before" },
  });
  t.deepEqual(await there("ana"), { sign_ups: 1, jobs: [first.said.job] });
  for (const body of ['{"customer":7}', "{}", "no JSON"]) t.is((await post(body)).status, 400, body);
});

test.serial("so does the server action of the form", async (t) => {
  const { load, there } = await project(t);
  const { signUpByForm } = await load("app/actions.ts");
  const send = (fields: Record<string, string>) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    return signUpByForm("", form);
  };
  const said = await send({ customer: "bo" });
  const { sign_ups, jobs } = await there("bo");
  t.deepEqual({ sign_ups, said }, { sign_ups: 1, said: `Welcome! Job ${jobs[0]} was added.` });
  t.is(await send({ customer: "bo" }), "bo has signed up before");
  t.is((await there("bo")).jobs.length, 1);
  t.is(await send({}), "Who are you?");
});
