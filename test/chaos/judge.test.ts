// Plants each kind of problem in what the judge hears, and expects the judge to report it. Beside each fault stands the
// same course of events without it, of which the judge must report nothing.
import test, { type ExecutionContext } from "ava";
import { addPolicyJobs, type JobGroup, makePolicyUtils, type Repaired } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { random } from "../helpers/random.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { Fleet } from "./fleet.ts";
import { Judge, type Problem, type Suspect } from "./judge.ts";
import { leftovers } from "./leftovers.ts";
import { inForce, type LimitsLog, otherLimits, readLimits } from "./limits.ts";
import type { Execution } from "./messages.ts";
import { logLimits } from "./tables.ts";
import { accounts, DEFINITIONS, FIRST_RELEASE, LIMITED, nextRelease, policiesOf } from "./world.ts";

const { caps: CAPS, rates: RATES, share: SHARE } = DEFINITIONS.first;

const nothing: Repaired = {
  ...{ pools: 0, unlocked: 0, overdue: 0, jobs: 0, counters: 0, asleep: 0, blocked: 0, pending: 0 },
};

class Process implements Suspect {
  diedAt: number | undefined;
  readonly longStops: { from: number; to: number | undefined }[] = [];
  readonly unrecorded: number[] = [];
  readonly buried: number[] = [];
}

/** What happens, told to a judge. Its clock moves only by `pass`. */
class Course {
  #now = 1_000_000;
  #runs = 0;
  readonly judge = new Judge(() => this.#now);
  readonly process = new Process();
  #log: LimitsLog = inForce(DEFINITIONS.first);

  pass(ms: number): void {
    this.#now += ms;
  }

  stage(...ids: string[]): void {
    this.judge.intends(ids);
    this.judge.staged(ids);
  }

  /** Starts a run of the job with this id, and returns how it ends. */
  start(
    id: string,
    more: Partial<Execution> & { of?: Process } = {},
  ): (how?: "well" | "badly" | "cut") => void {
    const { of = this.process, ...given } = more;
    const n = this.#runs++;
    const now = this.#now;
    this.judge.started(of, {
      ...{ n, id, task: "work", account: "a0", job: `job of ${id}`, attempt: 1, staged: `staged ${id}` },
      ...{ createdAt: now, admittedAt: now, lockedAt: now, outside: false, group: null },
      ...given,
    });
    return (how = "well") => this.judge.ended(of, { n, ok: how === "well", cut: how === "cut" });
  }

  /** Stages jobs of a group, and runs them and its callback. */
  group(how: { readonly ends: readonly string[]; readonly counts?: Partial<JobGroup> | null }): void {
    const jobs = ["1", "2"];
    this.stage(...jobs, "then");
    this.judge.grouped("then", jobs);
    const ends = new Map(jobs.map((id) => [id, this.start(id)]));
    for (const id of how.ends) ends.get(id)?.();
    this.pass(1);
    this.start("then", { group: how.counts === null ? null : { ...COUNTS, ...how.counts } })();
    for (const id of jobs) ends.get(id)?.();
    this.judge.conclude();
  }

  /** Stages and starts `count` jobs at once. */
  startMany(count: number, more: Partial<Execution> & { of?: Process } = {}): void {
    for (let n = 0; n < count; n++) {
      const id = `${more.account ?? "a0"}.${this.#runs}`;
      this.stage(id);
      this.start(id, more);
    }
  }

  kill(of = this.process): void {
    of.diedAt = this.#now;
    this.judge.lost(of);
  }

  bury(of = this.process): void {
    of.buried.push(this.#now);
  }

  /** Stops the process for so long that others may count it as dead. */
  stopForLong(of = this.process): void {
    of.longStops.push({ from: this.#now, to: undefined });
    this.judge.lost(of);
    this.pass(8000);
    of.longStops.at(-1)!.to = this.#now;
  }

  /** Another definition comes into force for everybody. */
  change(definition: keyof typeof DEFINITIONS, version = 0): void {
    this.#add(inForce(DEFINITIONS[definition], { at: this.#now, version }));
  }

  /** The limits of a version are worked out; nobody has them yet. */
  resolve(version: number): void {
    const { resolved } = inForce(DEFINITIONS.first, { at: this.#now, version });
    this.#add({ limits: [], gates: [], resolved, definitions: 0 });
  }

  #add(more: LimitsLog): void {
    this.#log = {
      limits: [...this.#log.limits, ...more.limits],
      gates: [...this.#log.gates, ...more.gates],
      resolved: [...this.#log.resolved, ...more.resolved],
      definitions: this.#log.definitions + more.definitions,
    };
    this.judge.limitsWere(this.#log);
  }

  /** A job runs well; `between` happens; then it runs again, as its second attempt unless said otherwise. */
  runTwice(between: () => void, again: Partial<Execution> = {}): void {
    this.stage("1");
    const end = this.start("1");
    this.pass(100);
    end();
    between();
    this.pass(100);
    this.start("1", { of: new Process(), attempt: 2, ...again })();
    this.judge.conclude();
  }

  wasCopied(
    job: string,
    copy: string,
    more: { staged?: string; by?: Process; createdAt?: number } = {},
  ): void {
    const { staged = null, by, createdAt = Number.NaN } = more;
    this.judge.wasCopied({ job, staged, copy, by, at: this.#now, createdAt });
  }
}

type Play = (course: Course, planted: boolean) => void;

/** Of a group of two jobs. */
const COUNTS: JobGroup = {
  ...{ id: "7", total: 2, succeeded: 1, failed: 0, removed: 0, dropped: 0, replaced: 0, gone: 1 },
};

const COPY = { job: "another job", attempt: 1, staged: "copy" };
/** It keeps its staged id, and gets another row of Graphile Worker's. */
const REQUEUED = { job: "another job", staged: "staged 1" };

/** By the kind of problem; each course plays with and without its fault. */
const FAULTS: Record<Problem, Record<string, Play>> = {
  overrun: {
    "one run too many of a partition": (it, planted) => {
      it.startMany(CAPS.account + (planted ? 1 : 0));
    },
    "one run too many of a partition with a limit by context": (it, planted) => {
      it.startMany(LIMITED.max + (planted ? 1 : 0), { account: "a2" });
    },
    "one run too many of a scope that partitions share": (it, planted) => {
      for (const account of ["a0", "a3"]) it.startMany(CAPS.account, { account });
      it.startMany(CAPS.region - 2 * CAPS.account + (planted ? 1 : 0), { account: "a6" });
    },
    "one run too many of a policy": (it, planted) => {
      for (const account of accounts) it.startMany(CAPS.all / accounts.length, { account });
      if (planted) it.startMany(1, { account: "a0" });
    },
    "runs of a process that still lives, run again elsewhere": (it, planted) => {
      it.startMany(CAPS.account);
      if (!planted) it.kill();
      it.startMany(CAPS.account, { of: new Process() });
    },
    "runs of a pool that does not count as dead": (it, planted) => {
      it.startMany(CAPS.account);
      it.pass(1);
      if (!planted) it.bury();
      it.startMany(CAPS.account, { of: new Process() });
    },
    "a run that a pool fetched after it counted as dead, past the cap": (it, planted) => {
      it.bury();
      it.pass(planted ? 1 : 0);
      it.startMany(CAPS.account);
      it.startMany(1, { of: new Process() });
    },
    "a run that a process fetched after a long stop, past the cap": (it, planted) => {
      const fetchedBefore = { lockedAt: 1_000_000 };
      it.stopForLong();
      it.startMany(CAPS.account, { of: new Process() });
      it.pass(1);
      it.startMany(1, planted ? {} : fetchedBefore);
    },
    "one run too many after its policy was off": (it, planted) => {
      it.judge.switchedOff("work");
      it.pass(1);
      it.startMany(CAPS.account + 2);
      it.judge.switchedOn("work");
      it.pass(1);
      it.startMany(CAPS.account + (planted ? 1 : 0));
    },
    "runs of a pass that began after its policy was off": (it, planted) => {
      it.judge.switchedOff("work");
      it.pass(1);
      it.judge.switchedOn("work");
      it.pass(100);
      const createdAt = planted ? 1_000_002 : 1_000_001;
      it.startMany(CAPS.account + 1, { createdAt, attempt: 2 });
    },
    "runs past the cap while the other policy was off": (it, planted) => {
      it.judge.switchedOff(planted ? "call" : "work");
      it.startMany(CAPS.account + 1);
    },
    "a run that was admitted at its start after its policy was off": (it, planted) => {
      it.judge.switchedOff("work");
      it.pass(1);
      it.judge.switchedOn("work");
      const lockedAt = planted ? 1_000_002 : 1_000_001;
      it.pass(1);
      it.startMany(CAPS.account);
      it.startMany(1, { admittedAt: null, lockedAt });
    },
    "a run that was admitted after another definition had lowered the cap": (it, planted) => {
      it.startMany(CAPS.account - 1);
      if (!planted) it.startMany(1);
      it.change("second");
      it.pass(1);
      if (planted) it.startMany(1);
    },
    "a second attempt whose pass read a later time, beside another definition": (it, planted) => {
      it.startMany(CAPS.account - 1);
      it.startMany(planted ? 2 : 1, { attempt: 2, createdAt: 999_000, admittedAt: 1_002_000 });
      it.pass(1000);
      it.change("second");
    },
    "one run too many after another definition had raised the cap": (it, planted) => {
      it.change("second");
      it.pass(1);
      it.startMany(CAPS.account - 1);
      it.change("first");
      it.pass(1);
      it.startMany(planted ? 2 : 1);
    },
    "runs past a gate that has come back, beside those that it did not bind": (it, planted) => {
      it.change("second");
      it.pass(1);
      it.startMany(3, { account: "a0" });
      it.change("first");
      it.pass(1);
      for (const [account, runs] of [
        ["a3", 4],
        ["a6", 4],
        ["a9", planted ? 3 : 2],
      ] as const)
        it.startMany(runs, { account });
    },
    "one run too many of what two policies share": (it, planted) => {
      for (const account of accounts.slice(0, 11)) it.startMany(2, { account });
      for (const account of ["a0", "a1"]) it.startMany(SHARE, { task: "render", account, of: new Process() });
      if (planted) it.startMany(1, { task: "render", account: "a2" });
    },
    "two runs of a job key at once": (it, planted) => {
      it.stage("older", "newer");
      it.judge.newer("newer", ["older"]);
      const end = it.start("older", { key: "k" });
      if (!planted) end("badly");
      it.start("newer", { key: "k", account: "a1" })();
    },
    "one run too many of a region in one worker pool": (it, planted) => {
      it.startMany(SHARE, { task: "render", account: "a0" });
      it.startMany(SHARE, { task: "render", account: "a1" });
      it.startMany(1, { task: "render", account: "a3", of: planted ? it.process : new Process() });
    },
    "one run too many in a worker pool that counted as dead": (it, planted) => {
      it.startMany(SHARE, { task: "render" });
      it.bury();
      it.pass(1);
      it.startMany(1, { task: "render", of: planted ? it.process : new Process() });
    },
    "one run too many in a worker pool that was stopped for long": (it, planted) => {
      it.startMany(SHARE, { task: "render" });
      it.stopForLong();
      it.startMany(1, { task: "render", of: planted ? it.process : new Process() });
    },
    "one run too many beside one that has not ended": (it, planted) => {
      it.startMany(SHARE - 1, { task: "render" });
      it.stage("1");
      const end = it.start("1", { task: "render" });
      if (!planted) end();
      it.startMany(1, { task: "render" });
    },
    "runs in one worker pool long after another definition had lowered its share": (it, planted) => {
      it.change("second");
      it.pass(planted ? 4001 : 4000);
      it.startMany(SHARE, { task: "render" });
    },
    "runs past the share of a policy that was not off": (it, planted) => {
      it.judge.switchedOff(planted ? "work" : "render");
      it.startMany(SHARE + 1, { task: "render" });
    },
    "runs past the share that did not start while their policy was off": (it, planted) => {
      const before = 1_000_000 - 10_000;
      it.judge.switchedOff(planted ? "work" : "render");
      it.startMany(SHARE + 1, {
        task: "render",
        ...{ createdAt: before, admittedAt: before, lockedAt: before },
      });
    },
    "runs past the share in a worker with the package": (it, planted) => {
      it.startMany(SHARE + 1, { task: "render", outside: !planted });
    },
    "tokens at the rate of a definition that is gone": (it, planted) => {
      it.change("second");
      it.pass(1);
      const call = (n: number) => it.startMany(1, { task: "call", account: accounts[n % accounts.length]! });
      for (let n = 0; n < 20; n++) call(n);
      it.pass(1000);
      for (let n = 0; n < (planted ? 11 : 10); n++) call(n);
    },
    "tokens of a policy that was not off": (it, planted) => {
      it.judge.switchedOff(planted ? "work" : "call");
      it.startMany(Math.floor(RATES.account.capacity + RATES.account.rate * 0.502) + 1, { task: "call" });
    },
    "one token too many of a partition": (it, planted) => {
      const allowed = Math.floor(RATES.account.capacity + RATES.account.rate * 0.502);
      it.startMany(allowed + (planted ? 1 : 0), { task: "call" });
    },
    "one token too many of a policy": (it, planted) => {
      const allowed = Math.floor(RATES.all.capacity + RATES.all.rate * 0.502);
      for (let n = 0; n < allowed + (planted ? 1 : 0); n++)
        it.startMany(1, { task: "call", account: `a${n % 8}` });
    },
  },
  lost: {
    "a job that was staged and never ran": (it, planted) => {
      it.stage("1");
      if (!planted) it.start("1")();
      it.judge.conclude();
    },
    "the newest job of a key": (it, planted) => {
      it.stage("older", "newest");
      it.judge.newer("newest", ["older"]);
      if (!planted) it.start("newest", { key: "k" })();
      it.judge.conclude();
    },
    "a job whose newer one was rolled back": (it, planted) => {
      it.stage("older");
      it.judge.newer("newest", ["older"]);
      if (planted) it.judge.rolledBack(["newest"]);
      it.judge.conclude();
    },
    "a job whose only run was killed": (it, planted) => {
      it.stage("1");
      it.start("1");
      it.kill();
      if (!planted) it.start("1", { of: new Process(), attempt: 2 })();
      it.judge.conclude();
    },
    "a job group whose callback never came": (it, planted) => {
      it.stage("1", "then");
      it.judge.grouped("then", ["1"]);
      it.start("1")();
      if (!planted) it.start("then", { group: { ...COUNTS, total: 1, gone: 0 } })();
      it.judge.conclude();
    },
    "a job that failed and was not tried again": (it, planted) => {
      it.stage("1");
      it.start("1")("badly");
      if (!planted) it.start("1", { attempt: 2 })();
      it.judge.conclude();
    },
  },
  unasked: {
    "a job that nobody staged": (it, planted) => {
      if (!planted) it.stage("1");
      it.start("1")();
      it.judge.conclude();
    },
    "a job whose transaction rolled back": (it, planted) => {
      it.judge.intends(["1"]);
      if (planted) it.judge.rolledBack(["1"]);
      it.start("1")();
      it.judge.conclude();
    },
  },
  duplicate: {
    "a job that ran well, and again without a reason": (it, planted) => {
      it.runTwice(() => !planted && it.kill());
    },
    "a failed run that comes again as the same attempt, though nothing has cut it": (it, planted) => {
      it.stage("1");
      it.start("1")(planted ? "badly" : "cut");
      it.pass(100);
      it.start("1", { of: new Process() })();
      it.judge.conclude();
    },
    "a job that ran well, and whose process died only after its end was recorded": (it, planted) => {
      it.runTwice(() => {
        it.pass(planted ? 30_000 : 20_000);
        it.kill();
      });
    },
    "a job of a process whose pool did not count as dead": (it, planted) => {
      it.runTwice(() => !planted && it.bury());
    },
    "a job of a process whose pool counted as dead before it ran": (it, planted) => {
      if (planted) it.bury();
      it.pass(1);
      it.runTwice(() => !planted && it.bury());
    },
    "a job of a process that was stopped, though not for long": (it, planted) => {
      it.runTwice(() => (planted ? it.pass(1000) : it.stopForLong()));
    },
    "a job whose end was recorded": (it, planted) => {
      it.runTwice(() => !planted && it.process.unrecorded.push(1_000_150));
    },
    "the same attempt once more": (it, planted) => {
      it.runTwice(() => it.kill(), { attempt: planted ? 1 : 2 });
    },
    "a job that ran in two processes at once": (it, planted) => {
      it.stage("1");
      const end = it.start("1");
      it.pass(100);
      if (!planted) it.kill();
      it.start("1", { of: new Process(), attempt: 2 })();
      end();
      it.judge.conclude();
    },
    "a callback that came twice": (it, planted) => {
      it.group({ ends: ["1", "2"] });
      it.pass(100);
      if (planted) it.start("then", { job: "another job", staged: "another", group: COUNTS })();
      it.judge.conclude();
    },
    "another job, which was not unstaged": (it, planted) => {
      const off = () => {
        it.kill();
        if (!planted) it.judge.switchedOff("work");
      };
      it.runTwice(off, { ...COPY, staged: COPY.job });
    },
    "a copy of another job, which was not unstaged": (it, planted) => {
      const off = () => {
        it.kill();
        it.judge.switchedOff("work");
        it.pass(1);
        it.judge.switchedOn("work");
        it.wasCopied(COPY.job, COPY.staged, { createdAt: planted ? 1_000_102 : 1_000_101 });
      };
      it.runTwice(off, COPY);
    },
    "an adopted job, which was not unstaged": (it, planted) => {
      const off = () => {
        it.kill();
        it.judge.switchedOff("work");
        it.pass(1);
        it.judge.switchedOn("work");
        it.judge.adopted({ job: COPY.staged, createdAt: planted ? 1_000_102 : 1_000_101 });
      };
      it.runTwice(off, COPY);
    },
    "a copy that no copy explains": (it, planted) => {
      it.runTwice(() => {
        it.kill();
        if (!planted) it.wasCopied("job of 1", "copy");
      }, COPY);
    },
    "a copy of another job": (it, planted) => {
      it.runTwice(() => {
        it.kill();
        it.wasCopied(planted ? "job of 2" : "job of 1", "copy");
      }, COPY);
    },
    "a copy of a copy that does not lead back to the job": (it, planted) => {
      it.runTwice(() => {
        it.kill();
        it.wasCopied("job of 1", "first copy");
        it.wasCopied("job of the first copy", "copy", planted ? {} : { staged: "first copy" });
      }, COPY);
    },
    "a job that was requeued from another one's row": (it, planted) => {
      it.runTwice(() => {
        it.kill();
        it.wasCopied(planted ? "job of 2" : "job of 1", "staged 1", { staged: "staged 1" });
      }, REQUEUED);
    },
    "a job that was requeued twice, and had run well before": (it, planted) => {
      it.runTwice(() => {
        if (!planted) it.kill();
        for (const job of ["job of 1", "row between"]) it.wasCopied(job, "staged 1", { staged: "staged 1" });
      }, REQUEUED);
    },
    "an original that an outsider runs after its copy, though the worker that copied it was well": (
      it,
      planted,
    ) => {
      const by = new Process();
      it.stage("1");
      it.wasCopied("job", "copy", { by });
      it.pass(100);
      if (!planted) it.kill(by);
      it.start("1", { job: "job of the copy", staged: "copy" })();
      it.pass(100);
      it.start("1", { of: new Process(), job: "job", staged: "job", attempt: 2, outside: true })();
      it.judge.conclude();
    },
    "a copy of a job that ran well, by a process that was never stopped": (it, planted) => {
      it.runTwice(() => {
        const by = new Process();
        if (!planted) it.stopForLong(by);
        it.wasCopied("job of 1", "copy", { by });
      }, COPY);
    },
  },
  leak: {
    "a sweep that repaired a counter": (it, planted) => {
      const byDesign = { pools: 1, unlocked: 2, jobs: 2 };
      it.judge.swept({ ...nothing, ...byDesign, counters: planted ? 1 : 0 });
    },
    "a sweep that woke a partition": (it, planted) => {
      it.judge.swept({ ...nothing, asleep: planted ? 1 : 0 });
    },
    "a sweep that unblocked a partition": (it, planted) => {
      it.judge.swept({ ...nothing, blocked: planted ? 1 : 0 });
    },
    "a last sweep that repaired a job": (it, planted) => {
      it.judge.sweptAtTheEnd({ ...nothing, jobs: planted ? 1 : 0 });
    },
    "a job in flight that is left": (it, planted) => {
      it.judge.left({ "staged jobs": 0, "in-flight jobs": planted ? 1 : 0 });
    },
    "a counter below zero": (it, planted) => {
      it.judge.left({ "counted in flight": planted ? -1 : 0 });
    },
  },
  stalled: {
    "a job that waits and never moves": (it, planted) => {
      it.stage("1");
      if (planted) it.judge.stalled({ "staged jobs": 1 }, {});
    },
  },
  stale: {
    "limiters that took numbers of a lower version": (it, planted) => {
      it.change("second", 1);
      it.pass(1);
      it.change("first", planted ? 0 : 1);
    },
    "a run by limits of a lower version, long after those of a higher were worked out": (it, planted) => {
      it.resolve(1);
      it.pass(planted ? 20_000 : 19_999);
      it.startMany(1);
    },
    "a partition that never got the limits of the last definition": (it, planted) => {
      it.judge.late(planted ? ['work a0 has {"concurrency":4}'] : []);
    },
  },
  group: {
    "a callback that runs before a job of its group has ended": (it, planted) => {
      it.group({ ends: planted ? ["1"] : ["1", "2"] });
    },
    "a callback that counts another number of jobs": (it, planted) => {
      it.group({ ends: ["1", "2"], counts: planted ? { total: 3, gone: 2 } : {} });
    },
    "a callback that counts a job as failed which ended well": (it, planted) => {
      it.group({ ends: ["1", "2"], counts: planted ? { gone: 0, failed: 1 } : {} });
    },
    "a callback whose counts do not add up": (it, planted) => {
      it.group({ ends: ["1", "2"], counts: planted ? { succeeded: 2 } : {} });
    },
    "a callback without counts": (it, planted) => {
      it.group({ ends: ["1", "2"], counts: planted ? null : {} });
    },
    "a callback of a group that nobody added": (it, planted) => {
      it.stage("then");
      it.start("then", { group: planted ? COUNTS : null })();
      it.judge.conclude();
    },
  },
  failed: {
    "an error that nobody made on purpose": (it, planted) => {
      if (planted) it.judge.fail("failed", "40P01 deadlock detected");
    },
  },
  weak: {
    "too few kills that hit anything": (it, planted) => {
      it.judge.hit(planted ? 9 : 10, 10);
    },
    "no callback of a job group": (it, planted) => {
      if (!planted) it.group({ ends: ["1", "2"] });
      it.judge.groupsEnded();
    },
    "no job that a full worker pool has requeued": (it, planted) => {
      it.judge.requeued = planted ? 0 : 1;
      it.judge.sharesWereFull();
    },
    "no run that was cancelled": (it, planted) => {
      it.judge.newestWon(planted ? 0 : 1, 1);
    },
    "definitions that did not change": (it, planted) => {
      it.judge.changed(planted ? 0 : 1);
    },
  },
};

for (const [kind, plays] of Object.entries(FAULTS)) {
  for (const [fault, play] of Object.entries(plays)) {
    test(`${kind}: the judge reports ${fault}`, (t) => {
      t.deepEqual(problemsOf(play, false), [], "without the fault");
      const problems = problemsOf(play, true);
      t.is(problems.length, 1, problems.join("\n"));
      t.regex(problems[0]!, new RegExp(`^(\\d+ × )?${kind}: `));
    });
  }
}

function problemsOf(play: Play, planted: boolean): string[] {
  const course = new Course();
  play(course, planted);
  course.judge.judgeLimits();
  return course.judge.problems;
}

/** Four jobs staged in a real database, of which one pass has admitted a partition's cap. */
async function world(t: ExecutionContext) {
  const { url, pool } = await testDatabase(t);
  const { work, ...others } = policiesOf(FIRST_RELEASE);
  const policies = [work, ...Object.values(others)];
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  t.teardown(() => utils.release());
  await logLimits(pool);
  const payload = { account: "a0", id: "1", ms: 0, failures: 0 };
  await addPolicyJobs(pool, Array(CAPS.account + 1).fill({ policy: work, payload }));
  await utils.tick({ policy: "work" });
  return { url, pool, utils };
}

test("leak: the judge reports what a real database has left", async (t) => {
  const { pool, utils } = await world(t);
  const judge = new Judge();
  judge.left(await leftovers(pool));
  t.deepEqual(judge.problems, [
    "leak: 1 staged jobs left",
    `leak: ${CAPS.account} in-flight jobs left`,
    `leak: ${CAPS.account * 5} counted in flight left`, // by three gates, the shared limit and the ahead bound
    `leak: ${CAPS.account} jobs in Graphile Worker left`,
  ]);

  await utils.remove({ policy: "work", partition: "a0" });
  const { rows } = await pool.query("select job_id from dispatch_policy.in_flight_jobs");
  await utils.completeJobs(rows.map(({ job_id }) => job_id));
  const clean = new Judge();
  clean.swept((await utils.sweep()).repaired);
  clean.left(await leftovers(pool));
  t.deepEqual(clean.problems, [], "jobs that ended without their release are by design");
});

test("leak: the judge reports a counter that a real sweep repaired", async (t) => {
  const { pool, utils } = await world(t);
  await table(pool, "limiters").set({ in_flight: (its) => `${its} + 1` }, { gate: "region" });
  const judge = new Judge();
  judge.swept((await utils.sweep()).repaired);
  t.deepEqual(judge.problems, ["leak: a sweep repaired counters"]);
});

test("stale: the judge knows what a real database had in force", async (t) => {
  const { pool, utils } = await world(t);
  const release = nextRelease(FIRST_RELEASE, 1);
  const next = DEFINITIONS[release.limits];
  t.deepEqual(await otherLimits(pool, next), [
    'work a0 has {"all":24,"region":10,"together":26,"concurrency":4}',
  ]);
  const policies = Object.values(policiesOf(release));
  const others = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  t.teardown(() => others.release());
  await utils.tick({ policy: "work" });
  t.deepEqual(await otherLimits(pool, next), []);

  const { limits, gates, resolved, definitions } = await readLimits(pool);
  t.deepEqual(limits.map(({ gate, key, max, version }) => [gate, key, max, version]).sort(), [
    ["all", "", 12, 1],
    ["all", "", 24, 0],
    ["concurrency", "a0", 3, 1],
    ["concurrency", "a0", 4, 0],
    ["region", "r0", 10, 0],
    ["together", "", 10, 1],
    ["together", "", 26, 0],
  ]);
  t.deepEqual(
    gates.map((one) => [one.account, one.gates.toSorted()]),
    [
      ["a0", ["ahead", "all", "concurrency", "region", "together"]],
      ["a0", ["ahead", "all", "concurrency", "together"]],
    ],
  );
  t.deepEqual(resolved.map(({ task, version }) => [task, version]).sort(), [
    ["call", 1],
    ["render", 1],
    ["work", 1],
  ]);
  t.is(definitions, 4, "three policies and a shared limit");
});

test("failed: the judge reports an error of a real process", async (t) => {
  const { url } = await testDatabase(t, { migrated: false });
  const judge = new Judge();
  const fleet = new Fleet(url, judge, random(1), true);
  t.teardown(() => fleet.killAll());
  fleet.add("meddler", 0); // without the schemas whatever it does fails
  await until("the process has told its error", () => judge.problems.length > 0);
  t.regex(judge.problems[0]!, /^failed: meddler 0: (42P01|42883|3F000) /);
});
