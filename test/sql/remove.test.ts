// Staged jobs that an operator removes, step by step: `remove`.
import { EventEmitter } from "node:events";
import test from "ava";
import { makePolicyUtils, policyEvents } from "../../src/index.ts";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";
import { silent } from "../helpers/silent.ts";

const GATES = { gates: [concurrency(1)] };

const remove = async (it: Engine, rest: string) =>
  (await it.pool.query(`select * from dispatch_policy.remove(${rest})`)).rows[0];

test("a step removes so many of those that were staged first, and says whether there may be more", async (t) => {
  const it = await engine(t, GATES);
  const ids = await it.stage(["a", "b", "a", "a", "a", "a"]);
  await it.passes();
  const left = async () =>
    (await it.pool.query("select id from dispatch_policy.staged_jobs order by id")).rows.map(({ id }) => id);
  const step = () => remove(it, "policy => 'p', partition => 'a', count => 2");
  t.like(await remove(it, "policy => 'p', partition => 'a', count => 2, dry_run => true"), {
    ...{ matched: 4, changed: 0, more: false },
  });
  t.like(await step(), { matched: 2, changed: 2, more: true });
  t.deepEqual(await left(), ids.slice(4));
  t.like(await step(), { matched: 2, changed: 2, more: true });
  t.deepEqual(await step(), { matched: 0, changed: 0, more: false, last_id: null });
  await it.route();
  t.is(await it.wrongCounters(), 0);
});

test("a step passes by jobs that are locked, and a dry run locks none and counts them", async (t) => {
  const it = await engine(t, GATES);
  const [first, second, third] = await it.stage(["a", "a", "a"]);
  const [other, counter] = [await it.session(), await it.session()];
  await other.query("begin");
  await it.table("staged_jobs", other).lock({ id: first });
  await counter.query("begin");
  const { rows } = await counter.query(
    "select * from dispatch_policy.remove(policy => 'p', dry_run => true)",
  );
  t.like(rows, [{ matched: 3 }]);
  t.like(await remove(it, "policy => 'p', count => 1"), { matched: 1, changed: 1, more: true });
  t.like(await remove(it, `array[${second}, ${third}]`), { matched: 1, changed: 1, more: false });
  await other.query("rollback");
  t.like(await remove(it, "policy => 'p'"), { matched: 1, changed: 1, more: false });
});

test("a step after an id leaves those before it, and says how far it has looked", async (t) => {
  const it = await engine(t, GATES);
  const ids = await it.stage(["a", "b", "a", "a", "a"]);
  const step = (after: string) =>
    remove(it, `policy => 'p', partition => 'a', count => 2, after => ${after}`);
  t.deepEqual(await step("null"), { matched: 2, changed: 2, more: true, last_id: ids[2] });
  const other = await it.session();
  await other.query("begin");
  await it.table("staged_jobs", other).lock({ id: ids[3] });
  t.deepEqual(await step(ids[2]!), { matched: 1, changed: 1, more: false, last_id: ids[4] });
  await other.query("rollback");
  t.deepEqual(await step(ids[4]!), { matched: 0, changed: 0, more: false, last_id: null });
  t.deepEqual(await step("0"), { matched: 1, changed: 1, more: false, last_id: ids[3] });
});

test("utils go through a backlog once more for jobs that were locked as their step came", async (t) => {
  const it = await engine(t, GATES);
  const [first] = await it.stage(Array(2700).fill("a"));
  const other = await it.session();
  await other.query("begin");
  await it.table("staged_jobs", other).lock({ id: first });
  const events = new EventEmitter();
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [], logger: silent, events });
  t.teardown(() => utils.release());
  const freed: Promise<unknown>[] = [];
  // five more steps come before the job is tried again
  policyEvents(events).on("dispatchPolicy:remove", () => {
    if (freed.length === 0) freed.push(other.query("rollback"));
  });
  t.deepEqual(await utils.remove({ policy: "p" }), { matched: 2700, changed: 2700 });
  t.is((await Promise.all(freed)).length, 1);
});

test("utils remove a long backlog in steps of 500, each with a row in the audit", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(Array(1100).fill("a"));
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [], logger: silent });
  t.teardown(() => utils.release());
  t.deepEqual(await utils.remove({ policy: "p", dryRun: true }), { matched: 1100, changed: 0 });
  t.deepEqual(await utils.remove({ policy: "p", reason: "left us", by: "ana" }), {
    ...{ matched: 1100, changed: 1100 },
  });
  const audit = async () =>
    (await it.pool.query("select changed, reason from dispatch_policy.audit order by id")).rows;
  t.deepEqual(
    await audit(),
    [500, 500, 100].map((changed) => ({ changed, reason: "left us" })),
  );
  t.deepEqual(await utils.remove({ policy: "p" }), { matched: 0, changed: 0 });
  t.like(await audit(), { 3: { changed: 0 } });
});

test("a step of less than one job is refused", async (t) => {
  const it = await engine(t, GATES);
  await t.throwsAsync(remove(it, "policy => 'p', count => 0"), {
    ...{ code: "DPARG", message: /remove: count is 0, expected 1 or more/ },
  });
});
