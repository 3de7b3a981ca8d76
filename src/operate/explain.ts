import { parameter } from "../db/engine.ts";
import type { Reason } from "../policy/reasons.ts";
import { asOurs, type OperateContext } from "./call.ts";
import type { JobHistory } from "./history.ts";
import type { PartitionStatus } from "./look.ts";
import type { Mend } from "./mend.ts";
import { spelled, spelledJson } from "./rows.ts";
import type { ContextValues, PartitionTarget } from "./targets.ts";
import { checkVerb } from "./verb.ts";

/** A pause or a hold. */
export interface Stop {
  what: "policy" | "partition";
  /** Who did it. */
  by: string | null;
  /** The reason that they gave. */
  reason: string | null;
  /** Its end; null: until `resume`. */
  until: Date | null;
  /** The hold, or the breaker, that stops the partition as well and ends sooner; null: none. */
  besides: {
    kind: "hold" | "breaker";
    by: string | null;
    reason: string | null;
    until: Date;
  } | null;
}

/** What a gate says to a job. It is read without a lock, and may be different at the next pass. */
export interface ExplainedGate {
  /** Its name; `ahead` for the bound that keeps jobs just ahead of the workers. */
  gate: string;
  kind: string;
  /** What it counts over. */
  scope: "partition" | "key" | "policy" | "workers";
  /** The key of that; null: there is none. */
  key: string | null;
  /**
   * Its numbers now. `per` is in seconds; a `max` of null is no bound. `calendar` is the unit and the time zone of a calendar
   * window, such as `"day America/New_York"`, and null for any other throttle. `per` is about its length then.
   *
   * With `perWorker`, `max` comes from `share` and `pools`: the share of each worker pool, and how many live. It is less for a
   * moment after a full pool has requeued a job.
   */
  limit:
    | { max: number | null; share?: number; pools?: number }
    | { rate: number; per: number; capacity: number; sliding: boolean; calendar: string | null };
  /** How many of its slots the job takes. Missing: one. */
  takes?: number;
  /** It has room, which is kept for a job before it that takes more slots. Missing: not so. */
  behind?: true;
  /** Where the numbers come from: the policy, the job's context, an operator's limit, or the workers' pace. */
  source: "policy" | "context" | "override" | "workers";
  /** The operator's limit in force; null: there is none. */
  setBy: SetBy | null;
  /** Slots that are occupied, or tokens that are missing from a full bucket. */
  used: number;
  /** Slots or tokens that are left; null: no bound. */
  free: number | null;
  /** Whether it has no room for the job. */
  lacks: boolean;
  /** The reason that it would give; null: it has room. */
  reason: Reason | null;
  /** Whether it is a shadow gate, which holds nothing back: it never lacks room. */
  shadow: boolean;
  /** Of a shadow gate: whether it would have no room for the job, if it were real. Null: it is real. */
  wouldLack: boolean | null;
  /** When it has the tokens, or when the limit of 0 or the hold ends; null: it has room, or that depends on other jobs. */
  nextAt: Date | null;
  /** Of a shared limit: the policies whose jobs it counts together. Null: it is this policy's alone. */
  sharedBy: readonly string[] | null;
  /** A key for which a limit is set, and which no job has: it differs from this one by capitals or blanks. Null: none. */
  misspelt: string | null;
  /** The key of the partition for which a slot is reserved; null: none is. */
  keptFor: string | null;
  /** The five jobs that have occupied its slots for longest, if it has no room. */
  holders: readonly Holder[];
  /** Seconds that 95 of 100 runs of the policy take at most. Null: it has room, or no run has ended yet. */
  runsUsually: number | null;
}

/** An operator's limit. It is for a key, for the partitions with values in their context, or else for every key. */
export interface SetBy {
  by: string | null;
  reason: string | null;
  /** The scope key; null: every key of the gate, or those of a context. */
  key: string | null;
  /** The values in the context of the partitions that it applies to; null: it does not go by context. */
  where: ContextValues | null;
  /** Whether it is a hold of the key (`hold` with `gate`). */
  hold: boolean;
  /** Whether it allows less than the policy's own numbers. */
  lowers: boolean;
  since: Date;
  until: Date | null;
}

/** A job that occupies a slot. */
export interface Holder {
  /** Graphile Worker's id. */
  jobId: string;
  policy: string;
  partition: string;
  admittedAt: Date;
  /** When a worker fetched it; null: not yet. */
  startedAt: Date | null;
  /** The worker that runs it. */
  workerId: string | null;
  /** Whether it has run for over a minute, and for ten times as long as `runsUsually` of its gate. */
  long: boolean;
}

/** Who cancelled a job that runs, or whose run was cut short. */
export interface CancelledRun {
  at: Date;
  by: string;
  /** Null: nobody said. */
  reason: string | null;
}

/** Where a job stands. */
export interface Place {
  /** Due jobs of its partition that go before it; 10,000: so many, or more. Null: it is not due. */
  jobsBefore: number | null;
  /** Partitions that go before its own, as of the last look at each; 1,000: so many, or more. Null: not in line. */
  partitionsBefore: number | null;
  /** Its class. Missing: 0. */
  class?: number;
  /** How many of `partitionsBefore` have jobs of lower classes. Missing: it is of class 0. */
  lowerClassesBefore?: number | null;
}

/** When a waiting job is expected to start. It assumes that the load stays as it was lately. */
export interface Estimate {
  from: Date;
  until: Date;
  /** What it rests on, in words. */
  basis: string;
}

/**
 * Why a job, or a partition's next job, waits.
 *
 * The fields up to `sentence` are of one moment. The others are rows of views, read right after it. A partition has its
 * {@link PartitionStatus}. A staged job has its row of `staged_jobs`, and the state of its partition. A job in flight has
 * its row of `in_flight_jobs`.
 */
export interface Explanation extends Partial<Omit<PartitionStatus, "id" | "partition" | "reason">> {
  /** The moment. */
  asOf: Date;
  /**
   * Of a job: `staged`; `parked`, it has failed and waits for its retry; `admitted`; `running`; `failed`, for good; `plain`,
   * no policy's; or `unknown`. One that has ended is `ended` if its policy has a history. Of a partition: `waiting`; `idle`, no
   * job waits; or `unknown`.
   */
  state:
    | ("staged" | "parked" | "admitted" | "running" | "failed" | "ended" | "plain")
    | ("waiting" | "idle")
    | "unknown";
  /** Null: nothing holds it back. */
  reason: Reason | null;
  /** Who has to act. `nobody`: it ends by itself. `operator`: somebody has set it, and may take it back. Null: there is no reason. */
  acts: "nobody" | "operator" | "developer" | null;
  /** The page and section about the reason, in this package; null: there is none. */
  page: string | null;
  /** The job whose end it waits for, because it has cancelled its run: Graphile Worker's id. Missing: none. */
  waitsFor?: string;
  /** The gate that the reason is about, by name; null: it is about none. */
  gate: string | null;
  /** When what the reason names ends; null: no time ends it. */
  nextAt: Date | null;
  /** The id of its partition's row; null: there is none. */
  partitionId: string | null;
  /** Who paused or held it; null: nobody. */
  stop: Stop | null;
  /** What each gate says to the job, from narrow to broad scope, the ahead bound last. */
  gates: readonly ExplainedGate[];
  /** Where it stands; null: it does not wait. */
  place: Place | null;
  /** When it is expected to start; null: it does not wait, or `noEstimate` says why nobody can tell. */
  estimate: Estimate | null;
  /** Why there is no estimate, in words; null: there is one, or it does not wait. */
  noEstimate: string | null;
  /** The live worker pool that runs the loop of its shard; null: none does. Missing unless it waits. */
  tickedBy?: { poolId: string; host: string | null; pid: number | null } | null;
  /** Of a job in flight: who cancelled it. Null: nobody has. */
  cancelled?: CancelledRun | null;
  /** What is known of a job's past; null: its policy has no `history`, or it was not admitted yet. */
  history: JobHistory | null;
  /** Of a job: the id of the trace in which it was added. Null: none is known. */
  traceId?: string | null;
  /** All that in words. */
  sentence: string;
  /** What lets it go; null: it does not wait. */
  mend: Mend | null;
  /** Of a partition that waits for tokens: how many jobs it has, and in how many seconds all have theirs. */
  backlog?: { jobs: number; seconds: number };
  /** Of a partition of which no job waits: whether a live worker has a task of its policy. */
  hasWorker?: boolean;
  /** Of a job that has run for far longer than others do: see {@link Holder}. */
  long?: true;
  /** Of such a job: seconds that 95 of 100 runs of its policy take at most. */
  runsUsually?: number;
  /** Of a partition of which no job waits: how many failed for good, up to 100, and the newest's error. Null: none has. */
  failed?: { jobs: number; error: string } | null;
  /** The open groups that a job belongs to. Missing: none. */
  groups?: readonly { id: string; total: number; jobsLeft: number }[];

  /** For a staged job its id, for a partition the id of its row. */
  id?: string;
  /** The partition's key; null for a job whose key is not worked out yet. */
  partition?: string | null;
  /** Its task. */
  taskIdentifier?: string;
  /** Tokens the job takes from each throttle. */
  cost?: number;
  /** Graphile Worker's id: of a job in flight, or of a failed one that waits for its retry. */
  jobId?: string | null;

  // of a staged job
  /** Graphile Worker's queue; null: none. */
  queueName?: string | null;
  /** When it is due; null: never. */
  runAt?: Date | null;
  /** Lower goes first. */
  priority?: number;
  /** How many times it may start; null: Graphile Worker's default, 25. */
  maxAttempts?: number | null;
  /** Its job key; null: none. */
  jobKey?: string | null;
  /** Graphile Worker's flags; null: none. */
  flags?: readonly string[] | null;
  /** Its payload. */
  payload?: unknown;
  /**
   * The error of Graphile Worker, or of a function of the policy, because of which the job was quarantined. Of a failed job
   * that waits for its retry the error of its last run.
   */
  error?: string | null;
  /** How many times it was quarantined. */
  failures?: number;
  /** When a job that was quarantined is tried again. */
  retryAt?: Date | null;
  /** When it is dropped if it is not admitted by then; null: never. */
  expiresAt?: Date | null;
  /** The latest time to which further adds of its key with `debounce` postpone it; null: it has none. */
  debouncedUntil?: Date | null;

  // of a job in flight
  /** The id it had in staging. */
  stagedId?: string;
  /** When it was admitted. */
  admittedAt?: Date;
  /** When a worker fetched it; null: not yet. */
  startedAt?: Date | null;
  /** The worker that runs it. */
  workerId?: string | null;
  /** How many times it was started; null: Graphile Worker no longer has it, and a sweep frees its slot. */
  attempts?: number | null;
  /** When it was cancelled. {@link cancelled} has the same, in one. */
  cancelledAt?: Date | null;
  /** Who cancelled it. */
  cancelledBy?: string | null;
  /** Why they did. */
  cancelReason?: string | null;
}

/** A view's row, as PostgreSQL spells it. */
type Row = Record<string, unknown>;

const ID = parameter(1, "id");
const WHERE_ONE = `where id = ${parameter(1, "uuid")}`;

/** What the SQL function answers, all of one moment. */
export type Answer = Pick<
  Explanation,
  | (
      | "asOf"
      | "state"
      | "reason"
      | "acts"
      | "page"
      | "waitsFor"
      | "gate"
      | "nextAt"
      | "stop"
      | "gates"
      | "place"
      | "estimate"
      | "noEstimate"
      | "tickedBy"
      | "cancelled"
      | "history"
      | "traceId"
      | "sentence"
      | "mend"
      | "failed"
      | "backlog"
      | "hasWorker"
      | "long"
      | "runsUsually"
      | "groups"
    )
  | ("id" | "jobId" | "policy" | "partition" | "taskIdentifier" | "runAt" | "attempts" | "error")
  | ("partitionId" | "startedAt" | "workerId")
>;

/** Asks the SQL function. It takes the right to call that, and no other. */
export async function ask(
  context: OperateContext,
  options: { id: string } | PartitionTarget,
): Promise<Answer> {
  const { withPgClient, engine } = context;
  checkVerb("explain", options, isById(options) ? { needs: ["id"] } : { needs: ["policy", "partition"] });
  const [answer] = await asOurs(
    () => withPgClient((client) => engine.call<{ explain: object }>(client, "explain", options)),
    context,
  );
  return spelledJson<Answer>(answer?.explain);
}

/** The next staged jobs of a partition, in the order in which passes take them. It takes the right to call the function. */
export async function askNext(
  context: OperateContext,
  { policy, partition, count }: PartitionTarget & { count: number },
): Promise<readonly Answer[]> {
  const { withPgClient, engine } = context;
  const rows = await asOurs(
    () =>
      withPgClient((client) =>
        engine.call<{ explain_next: object }>(client, "explain_next", { policy, partition, count }),
      ),
    context,
  );
  return rows.map((row) => spelledJson<Answer>(row.explain_next));
}

/** Documented at {@link Operate.explain}. */
export async function explain(
  context: OperateContext,
  options: { id: string } | PartitionTarget,
): Promise<Explanation> {
  const { withPgClient, engine } = context;
  const answer = await ask(context, options);
  const row = await withPgClient(async (client) => {
    // by its id: a look-up by its key would read all partitions
    const state = async () =>
      (await engine.view<Row>(client, "partitions", WHERE_ONE, [answer.partitionId]))[0];
    if (!isById(options)) return state();
    const staged = `where id = ${ID} or job_id = ${ID}`;
    const [job] = await engine.view<Row>(client, "staged_jobs", staged, [options.id]);
    if (job) return { ...(await state()), ...job };
    const admitted = `where staged_id = ${ID} or job_id = ${ID}`;
    return (await engine.view<Row>(client, "in_flight_jobs", admitted, [options.id]))[0];
  });
  return { ...spelled<Row>(row ?? {}), ...answer };
}

function isById(options: object): options is { id: string } {
  return typeof options === "object" && options !== null && "id" in options;
}
