// Other hands on the jobs: Graphile Worker's own verbs, jobs added with the flags of others, many jobs added past a policy
// at once, an operator who adopts, sets limits by context, or switches a policy off and unstages jobs, and an application that
// leaves transactions open with whatever it has touched.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { isBusy } from "../../src/db/outage.ts";
import { chance, judge, onCommand, orders, repeat, tell } from "./member.ts";
import {
  accounts,
  DEFINITIONS,
  freshQueue,
  LIMITED,
  mostByOperator,
  type Payload,
  regionOf,
  TASKS,
  type TaskName,
  TOGETHER,
} from "./world.ts";

const PAUSE_MS = 300;
const LONGEST_OPEN_MS = 2500;
let jobsMade = 0;
const LONGEST_OFF_MS = 400;
const LONGEST_LIMITED_MS = 1000;
let session: pg.Client | undefined;
let switches = 0;

for (const task of TASKS) await switchOn(task); // one before it may have ended in between
tell({ ready: true });
await repeat(async () => {
  await chance.pick([
    native,
    native,
    copyFlags,
    leaveOpen,
    flood,
    adopt,
    limitByContext,
    limitTogether,
    lower,
    switchOff,
  ])();
  await delay(chance.between(0, PAUSE_MS));
});
process.exit(0);

/** An order of jobs that the seed repeats: random() of PostgreSQL has a seed of its own in each session. */
function shuffled(): string {
  return `md5(id::text || '${chance.below(2 ** 31)}')`;
}

/** Postpones waiting jobs or forward, also failed ones that are parked. */
async function native(): Promise<void> {
  const schema = chance.pick(["graphile_worker", "dispatch_policy"]);
  const change = chance.pick(["run_at => now()", "run_at => now() + interval '300 ms'", "priority => 1"]);
  await run(
    `select count(*) from ${schema}.reschedule_jobs(array(
       select id from graphile_worker.jobs where locked_at is null order by ${shuffled()} limit 2), ${change})`,
  );
}

/** Adds a job past its policy that looks like an admitted one. */
async function copyFlags(): Promise<void> {
  const id = `m${orders.place}.${orders.life}.${jobsMade++}`;
  const payload: Payload = { id, account: chance.pick(accounts), ms: chance.between(0, 100), failures: 0 };
  tell({ intends: [id] });
  const added = await run(
    `select graphile_worker.add_job('work', $1, flags => array(
       select jsonb_object_keys(flags) from (
         select flags from graphile_worker.jobs where flags is not null order by ${shuffled()} limit 1) x))`,
    [JSON.stringify(payload)],
  );
  if (added) tell({ staged: [id] });
}

/** As many as make a worker adopt by itself. */
async function flood(): Promise<void> {
  if (!chance.chance(0.2)) return;
  const payloads = Array.from({ length: 20 }, (): Payload => {
    const id = `m${orders.place}.${orders.life}.${jobsMade++}`;
    return { id, account: chance.pick(accounts), ms: chance.between(0, 100), failures: 0 };
  });
  const ids = payloads.map(({ id }) => id);
  tell({ intends: ids });
  const text = `select count(*) from json_array_elements($1) p
    cross join lateral graphile_worker.add_job('${chance.pick(TASKS)}', p.value)`;
  if (await run(text, [JSON.stringify(payloads)])) tell({ staged: ids });
}

async function adopt(): Promise<void> {
  await run(`select * from dispatch_policy.adopt('${chance.pick(TASKS)}', count => ${1 + chance.below(20)})`);
}

/**
 * None is higher than what the judge allows. That of the limited region stays, so one of an account there is as low.
 *
 * None has an end: a tick whose clock is ahead comes to it too early, and only a sweep brings it up again, by design.
 */
async function limitByContext(): Promise<void> {
  const account = chance.pick(accounts);
  const region = regionOf(account);
  const where = JSON.stringify(region === LIMITED.region || chance.chance(0.5) ? { account } : { region });
  const max = chance.below(mostByOperator(account) + 1);
  const gate = "'work', 'concurrency'";
  tell({ met: "limit by context" });
  await run(`select * from dispatch_policy.set_limit(${gate}, '{"max": ${max}}', "where" => $1)`, [where]);
  await delay(chance.between(0, LONGEST_LIMITED_MS));
  while (!(await run(`select * from dispatch_policy.clear_limit(${gate}, "where" => $1)`, [where])))
    await delay(chance.between(0, PAUSE_MS));
}

/** The limit that two policies share. */
async function limitTogether(): Promise<void> {
  const of = () => `'${chance.pick(["work", "render", TOGETHER])}', '${TOGETHER}'`;
  tell({ met: "shared limit set" });
  await run(
    `select * from dispatch_policy.set_limit(${of()}, '{"max": ${1 + chance.below(DEFINITIONS.second.together)}}')`,
  );
  await delay(chance.between(0, LONGEST_LIMITED_MS));
  while (!(await run(`select * from dispatch_policy.clear_limit(${of()})`)))
    await delay(chance.between(0, PAUSE_MS));
}

/** A partner says what is left of its limit. */
async function lower(): Promise<void> {
  const to = `${chance.below(3)}, reset_at => now() + interval '${chance.below(900)} ms'`;
  await run(`select * from dispatch_policy.sync('call', 'all', ${to})`);
}

/** While a policy is off, its limits do not hold: the conductor must know before. */
async function switchOff(): Promise<void> {
  if (!chance.chance(0.2)) return;
  const task = chance.pick(TASKS);
  await isNoted(task, switches++);
  tell({ met: "policy switched off" });
  const isOff = await run("select * from dispatch_policy.switch_policy($1, false)", [task]);
  for (let steps = isOff ? chance.below(4) : 0; steps > 0; steps--) {
    await delay(chance.between(0, LONGEST_OFF_MS));
    await run("select * from dispatch_policy.unstage($1, count => $2)", [task, 1 + chance.below(20)]);
  }
  await delay(chance.between(0, LONGEST_OFF_MS));
  await switchOn(task);
}

function isNoted(task: TaskName, n: number): Promise<void> {
  return new Promise((resolve) => {
    onCommand((command) => "noted" in command && command.noted === n && resolve());
    tell({ off: task, n });
  });
}

async function switchOn(task: TaskName): Promise<void> {
  while (!(await run("select * from dispatch_policy.switch_policy($1, true)", [task])))
    await delay(chance.between(0, PAUSE_MS));
  tell({ on: task });
}

async function leaveOpen(): Promise<void> {
  const touch = chance.pick([
    // admission must not wait for it, though staged jobs are of the same queue
    ...Array(2).fill(
      `select graphile_worker.add_job('unknown', queue_name => '${freshQueue(chance.below(9))}')`,
    ),
    `select count(*) from graphile_worker.reschedule_jobs(array(
       select id from graphile_worker.jobs order by ${shuffled()} limit 1), priority => 1)`,
    `select * from dispatch_policy.hold('work', '${chance.pick(accounts)}', "for" => '100 ms')`,
    `select * from dispatch_policy.take('call', 'all')`,
  ]);
  if (!(await run("begin"))) return;
  if (!(await run(touch))) return;
  await delay(chance.between(100, LONGEST_OPEN_MS));
  await run("rollback");
}

/** False: it was refused, or its answer was lost; whatever it was in the middle of is over. */
async function run(text: string, values: unknown[] = []): Promise<boolean> {
  try {
    session ??= await connect();
    await session.query(text, values);
    return true;
  } catch (error) {
    await session?.end().catch(() => {});
    session = undefined;
    if (isBusy(error)) tell({ met: "lock of a meddler" });
    else judge(error);
    return false;
  }
}

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: orders.url });
  client.on("error", () => {});
  await client.connect();
  return client;
}
