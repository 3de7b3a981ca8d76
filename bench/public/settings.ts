// What the public benchmark sets in an adapter's environment, and what these two adapters read beside it.

export interface Settings {
  readonly url: string;
  /** The number of this replica. Only replica 0 measures what is the same for all. */
  readonly instance: number;
  readonly producer: ProducerSettings;
  /** Jobs that run at once. */
  readonly workers: number;
  readonly tuned: boolean;
  readonly payloadBytes: number;
  readonly workMs: number;
  readonly sampleEveryS: number;
  readonly limits: Limits;
}

export interface ProducerSettings {
  readonly mode: "fixed" | "depth-target";
  /** Who says when jobs are added: the harness, on standard input, or the adapter by its own clock. */
  readonly pacing: "harness" | "adapter";
  /** Jobs a second. */
  readonly rate: number;
  /** A file with the rate of the moment, which the harness changes between phases. */
  readonly rateFile: string | undefined;
  readonly batchMax: number;
  readonly batchMs: number;
  readonly targetDepth: number;
}

/** Of each tenant. Undefined: no limit. */
export interface Limits {
  readonly atOnce: number | undefined;
  readonly perSecond: number | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** @throws which variable is wrong, and what it must be */
export function readSettings(env: Environment): Settings {
  const number = (name: string, otherwise: number, least = 0) => readNumber(env, name, least) ?? otherwise;
  const scenario = env.SCENARIO ?? "long_horizon";
  if (scenario !== "long_horizon") throw new Error(`SCENARIO must be long_horizon; got "${scenario}"`);
  if (!env.DATABASE_URL) throw new Error("DATABASE_URL must name a database, as postgres://user@host/name");
  return {
    url: env.DATABASE_URL,
    instance: number("BENCH_INSTANCE_ID", 0),
    producer: {
      mode: readOne(env, "PRODUCER_MODE", ["fixed", "depth-target"]),
      pacing: readOne(env, "PRODUCER_PACING", ["adapter", "harness"]),
      rate: number("PRODUCER_RATE", 800),
      rateFile: env.PRODUCER_RATE_CONTROL_FILE || undefined,
      batchMax: number("PRODUCER_BATCH_MAX", 128, 1),
      batchMs: number("PRODUCER_BATCH_MS", 25, 1),
      targetDepth: number("TARGET_DEPTH", 1000),
    },
    workers: number("WORKER_COUNT", 32, 1),
    tuned: readOne(env, "TUNED", ["0", "1"]) === "1",
    payloadBytes: number("JOB_PAYLOAD_BYTES", 256),
    workMs: number("JOB_WORK_MS", 1),
    sampleEveryS: number("SAMPLE_EVERY_S", 5, 1),
    limits: {
      atOnce: readNumber(env, "LIMIT_AT_ONCE", 1),
      perSecond: readNumber(env, "LIMIT_PER_SECOND", 1),
    },
  };
}

function readNumber(env: Environment, name: string, least: number): number | undefined {
  const text = env[name];
  if (text === undefined || text === "") return undefined;
  const value = Number(text);
  if (Number.isInteger(value) && value >= least) return value;
  throw new Error(`${name} must be a whole number from ${least} on; got "${text}"`);
}

/** The first one is the default. */
function readOne<Value extends string>(env: Environment, name: string, allowed: readonly Value[]): Value {
  const text = env[name] || allowed[0];
  const value = allowed.find((it) => it === text);
  if (value !== undefined) return value;
  throw new Error(`${name} must be one of ${allowed.join(", ")}; got "${text}"`);
}
