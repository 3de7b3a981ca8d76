// One tenant's numbers stop that tenant alone.
import test from "ava";
import { definePolicy, makePolicyUtils, throttle } from "../../../src/index.ts";
import { testDatabase } from "../../helpers/database.ts";
import { silent } from "../../helpers/silent.ts";

type Payload = { key: string; per: string };

for (const [what, zeros] of Object.entries({ "no time at all": 330, "next to no time": 315 })) {
  test(`a tenant whose limit is for ${what} stops nobody else`, async (t) => {
    const { pool } = await testDatabase(t);
    const policy = definePolicy("p", {
      context: (payload: unknown) => payload as Payload,
      partitionBy: (ctx) => ctx.key,
      gates: [throttle<Payload>({ rate: 1_000_000, per: (ctx) => ctx.per as "1 second" })],
    });
    const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
    t.teardown(() => utils.release());
    const refusal = await utils.addJob("p", { key: "bad", per: `0.${"0".repeat(zeros)}1 seconds` }).then(
      () => null,
      (error) => error as Error,
    );
    t.log(refusal?.message ?? "accepted");
    await utils.addJob("p", { key: "good", per: "1 second" });
    const tick = () => pool.query("select * from dispatch_policy.tick('p')");
    await tick();
    await tick();
    const { rows } = await pool.query(
      "select partition from dispatch_policy.in_flight_jobs where partition = 'good'",
    );
    t.is(rows.length, 1);
  });
}
