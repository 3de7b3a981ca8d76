import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import type { RecordedLoad } from "../db/engine.ts";
import { BAD_ARGUMENT } from "../db/sqlstates.ts";
import { ArgumentError, MissingPackageError } from "../errors.ts";
import { ownFile } from "../own-files.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { asOurs, type OperateContext } from "./call.ts";
import { foldIfAllowed, readIfAllowed } from "./metrics.ts";
import { notReplayed, redefined } from "./redefined.ts";
import type { LimitTarget } from "./targets.ts";
import { checkVerb } from "./verb.ts";
import { columnsOf, type LimitValues } from "./verbs/limits.ts";

/**
 * The options of `diff`: a gate, one of its limiters by `key` or some by `where`, and other numbers for it. Or another
 * definition of the policy.
 */
export type DiffOptions = (
  | (LimitTarget & {
      /** The other values, as `setLimit` takes them: at least one, and only those that the gate's kind has. */
      set: LimitValues;
      /** Not beside `gate`. */
      definition?: undefined;
    })
  | {
      /** The policy's name. An unknown one is an {@link UnknownPolicyError}. */
      policy: string;
      /** The policy as `definePolicy` made it, with the changes that you think of. Nobody needs to have declared it. */
      definition: AnyPolicy;
      /** Not beside `definition`. */
      gate?: undefined;
      /** Not beside `definition`. */
      set?: undefined;
    }
) & {
  /** How much of the recorded time is replayed, in milliseconds up to now. Default: all of it. */
  forMs?: number | undefined;
  /** The most jobs that are replayed. If more came, a shorter time is. Default: 10,000. */
  most?: number | undefined;
};

/** A figure of a replay. Both ends are equal unless it depends on how long jobs run. */
export interface Span {
  from: number;
  to: number;
}

/** What a replay says about a partition. */
export interface Replayed {
  /** Jobs that were admitted. */
  started: Span;
  /** Jobs that wait at the end. */
  waiting: Span;
  /** How long half of the jobs had waited at most, from when they were due. Those that still wait count until the end. */
  medianWaitSeconds: Span;
  /** The same of 95 of 100. */
  p95WaitSeconds: Span;
  longestWaitSeconds: Span;
}

/** A partition under the limits as they were, and under the other ones. */
export interface PartitionDiff {
  /** Its key; null: all partitions that have no row of their own in the record. */
  partition: string | null;
  /** Jobs that came, as they were recorded. */
  came: number;
  /** Jobs that were admitted in fact. */
  admitted: number;
  before: Replayed;
  after: Replayed;
}

/** What would have been different under other limits. */
export interface Diff {
  policy: string;
  /** The time that was replayed. */
  from: Date;
  until: Date;
  /** Jobs that came in that time. */
  jobs: number;
  /** Jobs that came in the whole time that was asked for. If it is more, `most` has made the time shorter. */
  recordedJobs: number;
  /** Jobs that waited already at the beginning. They count as waiting from then. */
  waited: number;
  /** So many of these were replayed. The others only count as waiting. */
  waitedReplayed: number;
  /** Options of `definition` that differ and are not replayed, because the recorded jobs have their answers. */
  notReplayed: readonly ("context" | "partitionBy" | "cost")[];
  /** Whether figures are from one value to another, because a gate counts jobs in flight. */
  isInterval: boolean;
  partitions: readonly PartitionDiff[];
}

/** What the thread gets that replays. */
export interface Replay {
  readonly recorded: RecordedLoad;
  /** The same load under the other definition; without one the same object. */
  readonly changed: RecordedLoad;
  /** Null: the definition is what differs. */
  readonly limit: {
    readonly gate: string;
    readonly key: string | null;
    readonly where: object | null;
    readonly set: object;
  } | null;
  readonly most: number;
}

const PGLITE = "@electric-sql/pglite";
const MOST = 10_000;

/** Documented at {@link Operate.diff}. */
export async function diff(context: OperateContext, options: DiffOptions): Promise<Diff> {
  checkDiff(options);
  const { policy, definition, forMs = Number.POSITIVE_INFINITY, most = MOST } = options;
  const limit = options.definition === undefined ? limitOf(options) : null;
  checkInstalled();
  const recorded = await read(context, policy, forMs);
  const changed = definition ? redefined(recorded, definition) : recorded;
  const answer = await inThread({ recorded, changed, limit, most });
  return { policy, notReplayed: notReplayed(recorded.definition, changed.definition), ...answer };
}

function checkDiff(options: DiffOptions): void {
  const { policy, definition } = options;
  if (definition === undefined) {
    const takes = ["definition", "key", "where", "forMs", "most"] as const;
    checkVerb("diff", options, { needs: ["policy", "gate", "set"], takes });
    return;
  }
  checkVerb("diff", options, { needs: ["policy", "definition"], takes: ["forMs", "most"] });
  if (definition.identifier !== policy)
    throw new ArgumentError(
      `diff: definition is of policy "${definition.identifier}", expected one of policy "${policy}"`,
    );
}

function limitOf({ gate, key, where, set }: LimitTarget & { set: LimitValues }) {
  return { gate, key: key ?? null, where: where ?? null, set: columnsOf("diff", set) };
}

/** @throws {MissingPackageError} if PGlite is not installed */
function checkInstalled(): void {
  try {
    createRequire(ownFile("package.json")).resolve(PGLITE);
  } catch (cause) {
    throw new MissingPackageError(
      `diff replays in a PGlite, which is not installed: npm install --save-dev ${PGLITE}@0.5.16`,
      { cause },
    );
  }
}

async function read(context: OperateContext, policy: string, forMs: number): Promise<RecordedLoad> {
  const { withPgClient, engine } = context;
  await foldIfAllowed(context);
  await readIfAllowed(context);
  const recorded = await asOurs(
    () => withPgClient((client) => engine.recordedLoad(client, policy, Math.min(forMs / 1000, 86_400))),
    context,
  );
  if (recorded === null)
    throw new ArgumentError(
      `diff: policy "${policy}" records no load: declare it with load: { keep: "1 hour" }, and ask again later`,
    );
  if (recorded.load.every(({ came }) => came.length === 0))
    throw new ArgumentError(
      `diff: policy "${policy}" records its load, but no job has come in that time: ask again later`,
    );
  const shared = recorded.definition.gates.find((gate) => gate.shared);
  if (shared !== undefined)
    throw new ArgumentError(
      `diff: policy "${policy}" shares the limit "${shared.name}", expected one without shared limits: jobs of the others would be missing`,
    );
  return recorded;
}

/** What the thread finds out. */
export type Answer = Omit<Diff, "policy" | "notReplayed">;
type Message = { diff: Answer } | { error: { message: string; code?: string } };

/** A thread of its own, because a replay moves the clock. */
function inThread(replay: Replay): Promise<Answer> {
  // sources are run as they are, and a bundle has no place of its own
  const file = ownFile(
    import.meta.url?.endsWith(".ts") ? "src/replay/thread.ts" : "dist/src/replay/thread.js",
  );
  const thread = new Worker(file, { workerData: replay });
  return new Promise<Answer>((resolve, reject) => {
    thread.once("message", (message: Message) => {
      if ("diff" in message) resolve(message.diff);
      else reject(refusal(message.error));
    });
    thread.once("error", reject);
    thread.once("exit", (code) => reject(new Error(`diff: the thread that replays ended with code ${code}`)));
  }).finally(() => thread.terminate());
}

/** What SQL refuses there is what set_limit would refuse. */
function refusal({ message, code }: { message: string; code?: string }): Error {
  if (BAD_ARGUMENT.has(code))
    return new ArgumentError(message.replace(/^dispatch_policy: set_limit: |^dispatch_policy: /, "diff: "));
  return new Error(`diff: the replay failed: ${message}`);
}
