// A limit that policies share, on pages and on the command line: who shares it, and where it is changed.
import test from "ava";
import { concurrency, definePolicy, makePolicyUtils, shared } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { runInTurn } from "../helpers/command.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { HERE } from "./world.ts";

test("pages and commands name those who share a limit, and lead to the place where it is changed", async (t) => {
  const { pool, url } = await lentDatabase(t);
  const gates = [shared("api", concurrency({ scope: "policy", max: 1 }))];
  const policies = ["orders", "stock"].map((name) => definePolicy(name, { partitionBy: "shop", gates }));
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  t.teardown(() => utils.release());
  for (const identifier of ["orders", "stock"]) {
    await utils.addJobs([{ identifier, payload: { shop: "acme" } }] as never);
    await utils.tick({ policy: identifier });
  }
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  const text = async (path: string) => (await ui(new Request(HERE + path))).text();

  const user = await text("/policy?policy=stock");
  t.regex(user, /<a href="\/policy\?policy=api">api<\/a>, shared/);
  t.regex(user, /those of the shared limit/);
  t.regex(user, /\/act\/set-limit\?policy=api&amp;gate=api/);

  const limit = await text("/policy?policy=api");
  t.regex(limit, /a limit shared by<\/dt>\s*<dd>orders, stock/);
  t.regex(limit, /max 1/);
  t.notRegex(limit, /\/act\/pause/);

  const partition = await text("/partition?policy=stock&partition=acme");
  t.regex(partition, /api, shared by orders, stock/);
  t.regex(partition, /\/partition\?policy=orders&amp;partition=acme/);

  const cli = (...args: string[]) => runInTurn({ DATABASE_URL: url }, ...args);
  const { stdout: explained } = await cli("explain", "--policy", "stock", "--partition", "acme");
  t.regex(explained, /x api: 0 of 1 slots free; shared by orders, stock\n\s+job \d+ of orders, acme since/);
  const { stdout: listed } = await cli("policies");
  t.regex(listed, /api {2}version 0, on\n {2}a limit shared by orders, stock\n/);
  t.regex(listed, /gate api: concurrency over the policy; those of the shared limit/);
});
