// What a vacuum does to the tables through which jobs pass.
import test from "ava";
import { type Engine, engine } from "../helpers/engine.ts";

/** The sizes of tables in bytes, by name. */
async function sizes({ pool }: Engine): Promise<Map<string, number>> {
  const { rows } = await pool.query<{ name: string; bytes: number }>(
    `select relname as name, pg_relation_size(oid)::int as bytes from pg_class
     where relnamespace = 'dispatch_policy'::regnamespace and relkind = 'r' order by 1`,
  );
  return new Map(rows.map(({ name, bytes }) => [name, bytes]));
}

test("a vacuum leaves tables their size, because it would lock everybody out to give the disk back", async (t) => {
  const world = await engine(t, { gates: [] });
  await world.stage(Array.from({ length: 3000 }, (_, n) => `of ${n % 50}`));
  for (let admitted = 1; admitted > 0; ) {
    admitted = await world.passes();
    await world.finish(await world.inFlight());
  }
  const before = await sizes(world);
  const emptied = ["staged_jobs", "arrivals", "in_flight_jobs"].map((name) => `_private_${name}`);
  for (const name of emptied) {
    t.is(await world.number(`select count(*)::int from dispatch_policy.${name}`), 0, name);
    t.true(before.get(name)! > 0, name);
  }
  for (const name of before.keys()) await world.pool.query(`vacuum dispatch_policy.${name}`);
  t.deepEqual(await sizes(world), before);
  // whoever wants the disk back after a large backlog
  await world.pool.query("vacuum (truncate) dispatch_policy._private_staged_jobs");
  t.is((await sizes(world)).get("_private_staged_jobs"), 0);
});
