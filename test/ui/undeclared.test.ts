// Jobs of a policy that nobody declared, on the pages where an operator looks: how many they are, and the ways out.
import test from "ava";
import { addPolicyJobs, definePolicy } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { documentedStatements, roles } from "../helpers/roles.ts";
import { cellsOf, HERE, world } from "./world.ts";

const old = definePolicy("it's old", { tasks: ["work"], partitionBy: "account" });

async function withUndeclared(t: Parameters<typeof world>[0]) {
  const it = await world(t);
  const jobs = ["a", "b", "b"].map((account) => ({ policy: old, payload: { account } }));
  await addPolicyJobs(it.pool, jobs as never);
  return it;
}

test("overview, policies and health have their counts and the ways out, and lead to the jobs", async (t) => {
  const { text, utils } = await withUndeclared(t);
  t.deepEqual((await utils.status()).undeclared, [{ policy: "it's old", staged: 3 }]);
  for (const path of ["/", "/policies", "/health"]) {
    const page = await text(path);
    t.deepEqual(cellsOf(page, "Policies that nobody declared"), [["it&#39;s old", "3", "jobs"]], path);
    t.regex(page, /remove-policy --policy &#39;it&#39;\\&#39;&#39;s old&#39; --into OTHER --yes/, path);
    t.regex(page, /unstage --policy &#39;it/, path);
  }
  t.regex(await text("/"), /3 jobs wait for <a href="#undeclared">|which nobody declared \(3 staged\)/);
  const [, link = ""] = /href="([^"]*)" aria-label="jobs of/.exec(await text("/policies")) ?? [];
  t.is((await text(link)).match(/class="badge plain">staged</g)?.length, 3);
  const one = await text("/policy?policy=it%27s+old");
  t.regex(one, /Nobody declared this policy, and <a [^>]*>3 jobs<\/a> wait for it/);
  t.regex(one, /unstage --policy/);
});

test("once the jobs are unstaged, no page names the policy any more", async (t) => {
  const { text, utils, get } = await withUndeclared(t);
  await utils.unstage({ policy: "it's old" });
  for (const path of ["/", "/policies", "/health"]) t.notRegex(await text(path), /nobody declared/, path);
  t.is((await get("/policy?policy=it%27s+old")).status, 400, "an unknown policy");
});

test("who may not ask the doctor sees them as well", async (t) => {
  const it = await withUndeclared(t);
  const { nameOf, as } = roles(t, it, ["app_worker", "app_enqueue", "app_operator", "app_reader"]);
  for (const statements of await documentedStatements(nameOf, new URL(it.url).pathname.slice(1)))
    await it.pool.query(statements);
  const reader = await as("app_reader");
  const pool = { connect: async () => Object.assign(reader, { release: () => {} }) };
  const ui = createUi({ pool: pool as never, authorize: () => ({ name: "eve", role: "viewer" }) });
  for (const path of ["/", "/health"]) {
    const page = await (await ui(new Request(HERE + path))).text();
    t.regex(page, /The doctor was not asked/, path);
    t.deepEqual(cellsOf(page, "Policies that nobody declared"), [["it&#39;s old", "3", "jobs"]], path);
  }
  t.is((await ui(new Request(`${HERE}/policy?policy=fetch_endpoint`))).status, 200);
  t.regex(
    await (await ui(new Request(`${HERE}/`))).text(),
    /warning<\/span> 3 jobs wait for <a href="#undeclared">/,
  );
});
