// What a job queue has to offer to be compared: jobs of keys (a tenant, an endpoint) are added in one process and run in
// another, under a limit that holds for each key.

/** What holds for each key. Nothing named: no limit. */
export interface Limit {
  readonly atOnce?: number;
  readonly perSecond?: number;
  /** Where it must hold over several worker processes, not in each. */
  readonly overProcesses?: true;
}

export interface Job {
  readonly key: string;
  readonly id: number;
}

export interface World {
  readonly url: string;
  /** All there will be. */
  readonly keys: readonly string[];
  readonly limit: Limit;
  /** After how long a worker that says nothing counts as dead. Undefined: as by default, none dies. */
  readonly silentMs?: number;
}

export interface Adder {
  add(jobs: readonly Job[]): Promise<unknown>;
  stop(): Promise<unknown>;
}

export interface System {
  readonly name: string;
  /** What was chosen, beside the defaults: docs/benchmarks.md says why. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Why it is left out under a limit; undefined where it takes part. */
  cannot(limit: Limit): string | undefined;
  /** Makes what the jobs need in a database that is new, and adds them. */
  open(world: World): Promise<Adder>;
  /** Starts a worker; gives what stops it. */
  start(world: World, task: (job: Job) => Promise<void>): Promise<() => Promise<unknown>>;
}
