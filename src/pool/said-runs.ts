import type { Job } from "graphile-worker";
import { counted } from "../counted.ts";
import type { EndedJob, Engine, SaidRun, StageBatch } from "../db/engine.ts";
import { emit } from "../events.ts";
import { makeFailureLog } from "../failure-log.ts";
import { attemptOf, specificationOf } from "../run/fetched-job.ts";
import type { RunningJob } from "../run/running-jobs.ts";
import { batchesOf } from "../stage/stage.ts";
import type { PoolContext } from "./pool-context.ts";
import type { Silence } from "./silence.ts";

/** A job that is locked for so long, and that the pool does not have, is given up: an answer is not under way for longer. */
const GIVES_UP_AFTER_MS = 10_000;
/** And without any sign of a lost answer it looks so often. */
const LOOKS_MS = 300_000;
/** What failed is tried again after this, and locks that could not be given up after that. */
const AGAIN_MS = 1000;
const LEFT_MS = 5000;
/** Heartbeats must go on: with one of them it occupies slots for so long. */
const OCCUPIES_FOR_MS = 3000;
/** A success is mostly recorded at once, and a failure may be tried again for so long. */
const SUCCESS_RECORDED_MS = 10_000;
const FAILURE_RECORDED_MS = 130_000;
/** An end was recorded on the old server if it came so long before that answered last. */
const RECORDED_BEFORE_MS = 1000;

export interface SaidRunsContext
  extends Pick<
    PoolContext,
    "poolId" | "withPgClient" | "engine" | "events" | "logger" | "hand" | "runOf" | "disown"
  > {
  readonly silence: Pick<Silence, "doubt">;
}

export type SaidRuns = ReturnType<typeof makeSaidRuns>;

/**
 * What a pool says that it runs. After a promotion the new primary may not know it, and after a silence others may have its jobs.
 * Then, and after a lost answer, it also gives up what it has locked and does not have.
 */
export function makeSaidRuns({
  poolId,
  engine,
  events,
  logger,
  hand,
  runOf,
  disown,
  silence,
  withPgClient,
}: SaidRunsContext) {
  const failures = makeFailureLog(logger, "Could not say which jobs run here, trying again", "It is said");
  /** For this one the pool has said what it runs. */
  let server: string | null = null;
  let heardAt = 0;
  /** Until when the server that was heard last has answered. Null: no connection was lost since. */
  let answeredUntil: number | null = null;
  let owes: "nothing" | "silence" | "promotion" = "nothing";
  /** By `performance.now()`: what had ended until then was recorded on a server that was lost. */
  let lostUntil = Number.NEGATIVE_INFINITY;
  /** When an answer was lost last. */
  let lostAt = Number.NEGATIVE_INFINITY;
  /** How many answers were lost, and how many of them before the last heartbeat with which the pool has said all. */
  let lostAnswers = 0;
  let heardAfter = 0;
  /** Since when heartbeats are answered, and the pool still owes something. */
  let owesSince: number | null = null;
  /** When the last promotion was heard of. */
  let promotedAt = Number.NEGATIVE_INFINITY;
  let givesUpAt = performance.now() + LOOKS_MS;
  let givingUp: Promise<void> | null = null;
  const lent = new Set<string>();

  /** The runs that have a slot. */
  const runs = () =>
    [...hand.running.values()].flatMap((job) => {
      const running = runOf(job);
      if (!running?.ownsSlot) return [];
      const { attempt, revision, lockedAt } = attemptOf(job);
      const { admission, stagedId } = running;
      const run: SaidRun = { job: String(job.id), revision, attempt, admission, stagedId, lockedAt };
      return [{ job, running, run }];
    });

  async function say(now: string, anew: boolean): Promise<void> {
    const said = runs();
    const all = said.map(({ run }) => run);
    const answer = await withPgClient((client) => engine.sayRuns(client, poolId, now, all, { anew }));
    if (!anew) return;
    for (const { run } of said) lent.add(run.job);
    for (const { job, run } of said) if (answer.elsewhere.has(run.job)) disown(job);
    const lost = said.filter(({ run }) => answer.lost.has(run.job));
    const until = performance.now() + OCCUPIES_FOR_MS;
    for (const one of lost) {
      if (performance.now() > until) throw new Error("some have no slots yet");
      await occupy(one);
    }
    // one that has ended meanwhile was released before it had a slot
    const gone = lost.filter(({ job, run }) => hand.running.get(run.job) !== job).map(({ run }) => run.job);
    const still = runs().map(({ run }) => run);
    await withPgClient((client) => engine.sayRuns(client, poolId, now, still, { anew: false, gone }));
    emit(events, "dispatchPolicy:promoted", { server: now, runs: said.length, occupied: lost.length });
    logger.warn(
      `Another server answers, of timeline ${now.split(":")[1]}: ${lost.length} of the ${said.length} jobs with a slot that run here had lost it`,
    );
  }

  async function occupy({ job, running, run }: ReturnType<typeof runs>[number]): Promise<void> {
    try {
      const batch = batchOf(job, running);
      await withPgClient((client) => engine.occupyRun(client, poolId, run, batch));
    } catch (error) {
      logger.warn(`Job ${run.job} runs on without a slot: ${(error as Error).message}`, { error });
    }
  }

  /** The jobs of the pool, as the database takes them. */
  function inHand() {
    const now = performance.now();
    const ended = [...hand.ended.values()];
    // what ended just before a promotion may be being recorded, and after a while it is not
    const until = now > promotedAt + GIVES_UP_AFTER_MS ? Math.max(lostUntil, promotedAt) : lostUntil;
    const idsOf = (is: (one: (typeof ended)[number]) => boolean) => ended.filter(is).map(({ job }) => job);
    const isLate = ({ at, well }: (typeof ended)[number]) =>
      at > until && at > now - (well ? SUCCESS_RECORDED_MS : FAILURE_RECORDED_MS);
    return {
      running: [...hand.running.keys()],
      fetched: [...hand.fetched, ...idsOf((one) => one.well && isLate(one))],
      recording: idsOf((one) => !one.well && isLate(one)),
      lost: idsOf(({ at }) => at <= until),
      ended: ended.flatMap(({ job, revision, well }): EndedJob[] => (well ? [{ job, revision }] : [])),
      afterMs: GIVES_UP_AFTER_MS,
    };
  }

  async function giveUp(): Promise<void> {
    const now = performance.now();
    let answer: Awaited<ReturnType<Engine["giveUpLocks"]>>;
    try {
      // jobs end while a connection is made
      answer = await withPgClient((client) => engine.giveUpLocks(client, poolId, inHand()));
    } catch (error) {
      // it may have been done, and what is still locked is not lent
      silence.doubt();
      for (const id of hand.running.keys()) lent.add(id);
      throw error;
    }
    if (answer.unlocked > 0) silence.doubt(); // what was fetched before may be unlocked by now
    for (const id of answer.lent) lent.add(id);
    // by then what has ended just now counts as recorded, or is still there
    const foundAllAt = Math.max(lostAt, answer.lent.length > 0 ? now : 0) + GIVES_UP_AFTER_MS;
    givesUpAt = answer.is_left ? now + LEFT_MS : now < foundAllAt ? foundAllAt : now + LOOKS_MS;
    const { unlocked, completed } = answer;
    if (unlocked + completed === 0) return;
    emit(events, "dispatchPolicy:gaveUp", { unlocked, completed });
    logger.warn(
      `Unlocked ${counted(unlocked, "job")} that this worker did not have, and completed ${completed} that had ended: an answer was lost`,
    );
  }

  /** Jobs that start meanwhile wait for it. */
  function giveUpOnce(): Promise<void> {
    givingUp = giveUp().finally(() => {
      givingUp = null;
    });
    return givingUp;
  }

  async function settle(now: string): Promise<void> {
    if (owes !== "nothing") {
      const anew = owes === "promotion";
      await say(now, anew);
      lostAnswer();
      if (anew) await giveUpOnce();
      owes = "nothing";
    }
    server = now;
    for (const id of lent) if (!hand.running.has(id)) lent.delete(id);
    if (lent.size > 0) await withPgClient((client) => engine.lend(client, poolId, [...lent]));
    if (performance.now() < givesUpAt) return;
    await say(now, false); // a slot is spared whose start was recorded just before the pool said its runs last
    await giveUpOnce();
  }

  /** Jobs may be locked that nobody has: those will be locked for long enough. */
  function lostAnswer(): void {
    lostAt = performance.now();
    givesUpAt = Math.min(givesUpAt, lostAt + GIVES_UP_AFTER_MS);
  }

  return {
    /** The server for which the pool has said what it runs. Null: it is new. */
    server: (): string | null => server,
    /** An answer of the database was lost. */
    lostAnswer(): void {
      answeredUntil ??= Math.max(heardAt, hand.cameAt);
      lostAnswers++;
      lostAnswer();
    },
    /**
     * An answer was lost since the pool has said what it runs: another server may answer, which has forgotten that. If it cannot
     * say so for long, it goes on.
     */
    owesWord: (): boolean =>
      (heardAfter < lostAnswers || owes === "promotion") &&
      performance.now() < (owesSince ?? Number.POSITIVE_INFINITY) + GIVES_UP_AFTER_MS,
    /** How many answers were lost so far. */
    lost: (): number => lostAnswers,
    /** A heartbeat was answered by this server. `lost`: what {@link lost} said when it was sent: an answer may be read late. Does not reject: what fails is done with the next one. */
    async heard(now: string, wasSilent: boolean, lost: number): Promise<void> {
      if (server !== null && now !== server && owes !== "promotion") {
        owes = "promotion";
        promotedAt = performance.now();
        lostUntil = (answeredUntil ?? Math.max(heardAt, hand.cameAt)) - RECORDED_BEFORE_MS;
        silence.doubt();
      } else if (wasSilent && owes === "nothing") owes = "silence";
      heardAt = performance.now();
      answeredUntil = null;
      owesSince ??= heardAt;
      try {
        await settle(now);
        heardAfter = lost;
        owesSince = null;
        failures.succeeded();
      } catch (error) {
        givesUpAt = Math.min(givesUpAt, performance.now() + AGAIN_MS);
        failures.failed(error);
      }
    },
    /** Milliseconds until it has something to do with a heartbeat. */
    dueInMs: (): number => (owes === "nothing" ? Math.max(0, givesUpAt - performance.now()) : AGAIN_MS),
    /** Jobs that start wait for this. Null: nothing is given up just now. Does not reject: `heard` says what failed. */
    givingUp: (): Promise<void> | null => givingUp?.catch(() => {}) ?? null,
  };
}

function batchOf(job: Job, { policy }: RunningJob): StageBatch {
  const { task, ...spec } = specificationOf(job);
  return batchesOf([{ policy, task, payload: job.payload, spec, hasStarted: true }])[0] as StageBatch;
}
