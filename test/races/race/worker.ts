// Runs admitted jobs for a random moment, and tells the observer of each start and end: of the start once it has the
// job, of the end before it frees anything. So what the observer sees running at once is never too much.
// Like a worker of Graphile Worker it listens for new jobs, and looks by itself now and then.
import { once } from "node:events";
import net from "node:net";
import readline from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { isLockTimeout } from "../../../src/db/outage.ts";
import { bell, chance, connect, orders, repeat } from "./world.ts";

const WORKERS = 2;
/** So many ids in a row are one worker's: what a pass admits together mostly ends together. */
const IN_A_ROW = 8;
const LOOK_MS = 50;
/** How far behind the newest job one may be that was not seen: it need not look at all that ever were. */
const LOOK_BACK = 1000;
/** What ends within this is released together. */
const GATHER_MS = 1;
const engine = connect();
const session = await engine.session();
await session.query('listen "jobs:insert"');
const inserted = bell();
session.on("notification", inserted.ring);
const ended = bell();
const observer = net.connect(orders.socket);
await once(observer, "connect");
const answers = readline.createInterface(observer)[Symbol.asyncIterator]();

// for good: an answer of the database may be older than the release of a job it names
const taken = new Set<string>();
let newest = 0;
let finished: { job: string; staged: string; partition: string }[] = [];

await Promise.all([repeat(takeJobs), repeat(flush)]);
observer.destroy();
await engine.endSessions();
await engine.pool.end();

/** Each worker process takes the jobs of every other row of ids. */
async function takeJobs(): Promise<void> {
  const { rows } = await session.query({
    name: "take", // planned once: planning it takes longer than the query
    text: `select job_id, staged_id, partition from dispatch_policy.in_flight_jobs
      where task_identifier is not null and mod(job_id / $3, $1) = $2 and job_id > $4`,
    values: [WORKERS, orders.place, IN_A_ROW, newest - LOOK_BACK],
  });
  for (const { job_id: job, staged_id: staged, partition } of rows) {
    if (taken.has(job)) continue;
    taken.add(job);
    newest = Math.max(newest, Number(job));
    observer.write(`+ ${staged} ${partition}\n`);
    setTimeout(() => finish({ job, staged, partition }), chance.between(0, orders.longestMs));
  }
  await inserted.rung(LOOK_MS);
}

function finish(job: (typeof finished)[number]): void {
  finished.push(job);
  ended.ring();
}

async function flush(): Promise<void> {
  if (finished.length === 0) return ended.rung(LOOK_MS);
  await delay(GATHER_MS);
  const batch = finished;
  finished = [];
  observer.write(`- ${batch.map(({ staged, partition }) => `${staged} ${partition}`).join(" ")}\n`);
  await answers.next();
  const jobs = batch.map(({ job }) => job);
  await engine.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  for (let left = jobs; left.length > 0; ) {
    const passesOn = chance.chance(0.7);
    // As a worker pool does: a vacuum that shortens a table may have it locked for longer than a release waits.
    const released = await engine.release(left, engine.pool, { passesOn }).catch((error) => {
      if (!isLockTimeout(error)) throw error;
      return [];
    });
    const done = new Set(released);
    left = left.filter((job) => !done.has(job));
  }
}
