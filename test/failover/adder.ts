// Adds jobs where the conductor says that too few wait, and tells the log what was acknowledged.
import { setTimeout as delay } from "node:timers/promises";
import { addPolicyJobs } from "../../src/index.ts";
import { quietPool } from "../helpers/database.ts";
import { openLog } from "./events.ts";
import { type Payload, POLICIES, type TaskName } from "./policies.ts";
import type { Orders, Room } from "./processes.ts";

const LANES = 2;
const MOST_AT_ONCE = 4;
const { url, file, name, workMs }: Orders = JSON.parse(process.argv[2]!);
const log = openLog(file);
const pool = quietPool(url, { max: LANES, connectionTimeoutMillis: 3000, query_timeout: 10_000 });
let rooms: Room[] = [];
let count = 0;
process.on("message", (message) => {
  rooms = message as Room[];
});
process.on("disconnect", () => process.exit(0)); // the conductor has gone

async function addFor(room: Room): Promise<void> {
  const [task, key] = room.line.split("/") as [TaskName, string];
  const jobs = Array.from(
    { length: Math.min(room.jobs, 1 + Math.floor(Math.random() * MOST_AT_ONCE)) },
    () => {
      const [from, to] = task === "work" ? workMs : [2, 20];
      const payload: Payload = {
        id: `${name}.${count++}`,
        key,
        ms: Math.round(from + Math.random() * (to - from)),
      };
      return { policy: POLICIES[task], payload: { ...payload } };
    },
  );
  room.jobs -= jobs.length;
  const ids = jobs.map(({ payload }) => payload.id);
  try {
    const added = await addPolicyJobs(pool, jobs);
    log({ k: "ack", line: room.line, ids, staged: added.map(({ id }) => String(id)) });
  } catch (error) {
    log({ k: "unknown", ids, message: (error as Error).message });
    await delay(100 + Math.random() * 200);
  }
}

async function lane(): Promise<never> {
  for (;;) {
    const open = rooms.filter(({ jobs }) => jobs > 0);
    if (open.length === 0) await delay(40);
    else await addFor(open[Math.floor(Math.random() * open.length)]!);
  }
}

await Promise.all(Array.from({ length: LANES }, lane));
