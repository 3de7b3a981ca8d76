// npm run bench -- --drill: why jobs wait. Twelve causes are planted beside 100,000 partitions and a million staged jobs. Of
// each, `explain` is asked in SQL, in TypeScript and on the command line: whether all say the same, and how soon.
import { makePolicyUtils, type PolicyUtils } from "../../src/index.ts";
import { runCommand } from "../../test/helpers/command.ts";
import { quietPool } from "../../test/helpers/database.ts";
import { silent } from "../../test/helpers/silent.ts";
import { makeCrowd } from "../engine/crowd.ts";
import { type Timing, timed } from "../engine/timing.ts";
import type { World } from "../engine/world.ts";
import { CAUSES, type Cause } from "../harness/causes.ts";
import { atEnd } from "../harness/closing.ts";
import { median } from "../harness/statistics.ts";

export interface DrillSize {
  /** Of the crowd; each has ten jobs. */
  readonly partitions: number;
  /** How often SQL and TypeScript are asked of each cause. */
  readonly samples: number;
  /** How often the command line is. */
  readonly processes: number;
}

export interface Drilled extends Said {
  readonly cause: string;
  /** Medians in milliseconds. */
  readonly sql: number;
  /** On a processor, of the server's process; not a number where the server is elsewhere. */
  readonly sqlProcessor: number;
  readonly ts: number;
  readonly tsProcessor: number;
  /** Of a whole process. */
  readonly cli: number;
  /** Where one says other than it should, in words. */
  readonly differences: readonly string[];
}

/** What is compared. */
interface Said {
  readonly reason: string | null;
  readonly gate: string | null;
  /** Their ids in Graphile Worker. */
  readonly holders: readonly string[];
  /** In milliseconds. */
  readonly nextAt: number | null;
  readonly author: string | null;
  readonly ticked: boolean;
}

/** SQL and TypeScript may take so long, in the median. */
export const LIMIT_MS = 50;
/** SQL rounds a time of floating tokens anew each time. */
const SAME_TIME_MS = 1;

export async function measureDrill(size: DrillSize): Promise<{ found: Drilled[]; cliStart: number }> {
  console.error(`# drill: ${size.partitions} partitions with ten jobs each`);
  const world = await makeCrowd(size.partitions);
  const policies = Object.values(CAUSES).map(({ policy }) => policy);
  const pool = quietPool(world.url, { max: 1 }); // one process of the server, whose time is known
  const endPool = atEnd(() => pool.end());
  const { rows } = await pool.query("select pg_backend_pid() as pid");
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  const release = atEnd(async () => utils.release());
  await startWorker(world);
  const jobs: [cause: string, id: string][] = [];
  for (const [name, cause] of Object.entries(CAUSES))
    jobs.push([name, await cause.plant({ utils, query: world.query }, cause.policy.identifier)]);
  await world.settle();
  const found: Drilled[] = [];
  for (const [cause, id] of jobs) {
    console.error(`# drill: ${cause}`);
    found.push(await ask({ world, utils, pid: rows[0].pid, size }, cause, id));
  }
  const starts = await repeated(size.processes, () => command(world, "--help"));
  await release();
  await endPool();
  await world.close();
  return { found, cliStart: starts.ms };
}

/** A worker's heartbeat, and its leases on all policies but those that nobody is to tick. */
async function startWorker({ query }: World): Promise<void> {
  const ticked = Object.values(CAUSES).filter((cause) => cause.ticked !== false);
  const names = ticked.map(({ policy }) => policy.identifier);
  await query("select dispatch_policy_internal._worker_alive('pool', 10, $1, 'host', 7, '1 hour', '0')", [
    names,
  ]);
  await query("select from dispatch_policy_internal._lease('pool', $1, null, '1 hour', true)", [names]);
}

interface Asked {
  readonly world: World;
  readonly utils: PolicyUtils;
  /** The server's process that answers them. */
  readonly pid: number;
  readonly size: DrillSize;
}

async function ask({ world, utils, pid, size }: Asked, cause: string, id: string): Promise<Drilled> {
  const explained = async () => {
    const rows = await world.query("select dispatch_policy.explain($1::bigint) as it", [id]);
    return rows[0]?.it as Answer;
  };
  const sql = await repeated(size.samples, () => world.timed(explained));
  const ts = await repeated(size.samples, () => timed(pid, () => utils.explain({ id })));
  const cli = await repeated(size.processes, () => command(world, "explain", id, "--json"));
  if (cli.result.code !== 0) throw new Error(`explain ${id}: ${cli.result.stderr}`);
  const said = {
    SQL: heard(sql.result),
    TypeScript: heard(ts.result),
    CLI: heard(JSON.parse(cli.result.stdout)),
  };
  return {
    ...{ cause, ...said.SQL },
    ...{ sql: sql.ms, sqlProcessor: sql.cpu, ts: ts.ms, tsProcessor: ts.cpu, cli: cli.ms },
    differences: [...misnamed(cause, said.SQL), ...differing(cause, said)],
  };
}

/** A process of the command line. It has ended before anybody can ask for its processor time. */
const command = ({ url }: World, ...args: string[]) => timed(Number.NaN, () => runCommand(url, ...args));

/** The median times, and the last result. */
async function repeated<T>(times: number, run: () => Promise<Timing & { result: T }>) {
  const timings: (Timing & { result: T })[] = [];
  for (let n = 0; n < times; n++) timings.push(await run());
  return {
    ms: median(timings.map(({ ms }) => ms)),
    cpu: median(timings.map(({ cpu }) => cpu)),
    result: (timings.at(-1) as { result: T }).result,
  };
}

// biome-ignore lint/suspicious/noExplicitAny: json, with names as SQL or TypeScript spells them
type Answer = any;

function heard(answer: Answer): Said {
  const of = (it: Answer, snake: string, camel: string) => (snake in it ? it[snake] : it[camel]);
  const next = of(answer, "next_at", "nextAt");
  const lacking = answer.gates.filter((gate: Answer) => gate.lacks);
  const setBy = lacking.map((gate: Answer) => of(gate, "set_by", "setBy")?.by);
  return {
    ...{ reason: answer.reason, gate: answer.gate },
    holders: lacking.flatMap((gate: Answer) => gate.holders.map((one: Answer) => of(one, "job_id", "jobId"))),
    nextAt: next === null ? null : new Date(next).getTime(),
    author: [answer.stop?.by, ...setBy].find((by) => by != null) ?? null,
    ticked: of(answer, "ticked_by", "tickedBy") !== null,
  };
}

/** Where the cause that was planted is not what is said. */
function misnamed(name: string, said: Said): string[] {
  const { reason, gate, author = null, ticked = true, ends = false, isHeld = false } = CAUSES[name] as Cause;
  const heard = { ...said, ends: said.nextAt !== null, isHeld: said.holders.length > 0 };
  return compared(`${name}: planted`, { reason, gate, author, ticked, ends, isHeld }, "SQL", heard);
}

function differing(name: string, { SQL, ...others }: Record<"SQL" | "TypeScript" | "CLI", Said>): string[] {
  return Object.entries(others).flatMap(([who, said]) => compared(`${name}: SQL`, SQL, who, said));
}

function compared<Part extends object>(
  whose: string,
  expected: Part,
  who: string,
  said: Record<keyof Part, unknown>,
): string[] {
  return (Object.keys(expected) as (keyof Part & string)[])
    .filter((part) => !isSame(expected[part], said[part]))
    .map(
      (part) =>
        `${whose} has ${part} ${JSON.stringify(expected[part])}, ${who} has ${JSON.stringify(said[part])}`,
    );
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === "number" && typeof other === "number") return Math.abs(one - other) <= SAME_TIME_MS;
  return JSON.stringify(one) === JSON.stringify(other);
}
