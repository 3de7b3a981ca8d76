// Plants what the fuzz must find in what its judge hears. Beside each fault stands the same course without it.
import test from "ava";
import { type Cap, type Charged, type Judge, makeJudge, type Rate, type Run } from "./judge.ts";
import { Done } from "./ledger.ts";

const cap = { gate: "all", max: 1, keyOf: () => "" };
const capOfSome: Cap = { gate: "own", max: 0, isFor: (key) => key === "limited", keyOf: (key) => key };
const bucket: Rate = { gate: "bucket", rate: 10, capacity: 2, windowMs: null, keyOf: () => "" };
const bucketOfSome: Rate = {
  ...{ gate: "own", rate: 10, capacity: 0, windowMs: null },
  ...{ isFor: (key) => key === "limited", keyOf: (key) => key },
};
const window: Rate = { gate: "window", rate: 2, capacity: 2, windowMs: 1000, keyOf: () => "" };

const run = (id: string, admission = "1"): Run => ({ id, admission, partition: "a", counts: true });
const charges = (of: Rate, ...times: number[]) =>
  times.map((at): Charged => ({ from: at, to: at, keyOf: (rate) => (rate === of ? "" : null) }));

/** Adds a job in a call of its own, or in one that rolls back. */
function add({ ledger }: Judge, key: string | null = null, committed = true): string {
  const done = new Done();
  const id = ledger.adds(key, false);
  done.added.push(id);
  ledger.settle(done, committed);
  return id;
}

function drop({ ledger }: Judge, key: string): void {
  const done = new Done();
  done.dropped.push(ledger.adds(key, false));
  ledger.settle(done, true);
}

function finish({ ledger }: Judge, id: string, how: "well" | "given up" = "well"): void {
  ledger.starts(id);
  ledger.finishes(id, how);
}

function end({ ledger }: Judge, ended: Partial<Pick<Done, "ended" | "endedKeys">>, committed = true): void {
  const done = new Done();
  done.ended.push(...(ended.ended ?? []));
  done.endedKeys.push(...(ended.endedKeys ?? []));
  ledger.settle(done, committed);
}

type Play = (judge: Judge, planted: boolean) => void;

const FAULTS: Record<string, Play> = {
  "a run too many": (judge, planted) => {
    judge.starts(run("1"));
    if (!planted) judge.excuse("1");
    judge.starts(run("2"));
  },
  "a run in a slot that a sweep freed, of another admission": (judge, planted) => {
    judge.excuseAdmission({ id: "1", admission: planted ? "1" : "2" });
    judge.starts(run("1", "2"));
    judge.starts(run("2"));
  },
  "a run too many of a partition with a limit by context": (judge, planted) => {
    judge.starts({ ...run("1"), partition: planted ? "limited" : "a" });
  },
  "a run too many of the key that a moved job names": (judge, planted) => {
    judge.starts({ ...run("1"), keys: { own: planted ? "limited" : "a" } });
  },
  "a token too many of a partition with a limit by context": (judge, planted) => {
    const key = planted ? "limited" : "a";
    judge.judgeRates([{ from: 0, to: 0, keyOf: (rate) => (rate === bucketOfSome ? key : null) }]);
  },
  "a token too many of a bucket": (judge, planted) => {
    judge.judgeRates(charges(bucket, 0, 0, planted ? 50 : 100));
  },
  "a token too many of a bucket, whose jobs cost less in the end": (judge, planted) => {
    const [before, ...during] = charges(bucket, 0, 100, 100, 100) as [Charged, ...Charged[]];
    judge.judgeRates([{ ...before, cost: 0, returnedAt: planted ? 50 : 100 }, ...during]);
  },
  "a job too many in a window, though one cost less in the end": (judge, planted) => {
    const [first, ...others] = charges(window, 0, 500, 900) as [Charged, ...Charged[]];
    judge.judgeRates([{ ...first, cost: planted ? 0.5 : 0, returnedAt: 600 }, ...others]);
  },
  "a job too many in a window": (judge, planted) => {
    judge.judgeRates(charges(window, 0, 500, planted ? 999 : 1000));
  },
  "a job that never ran": (judge, planted) => {
    const id = add(judge);
    if (!planted) finish(judge, id, "given up");
  },
  "a job that failed and was not tried again": (judge, planted) => {
    const id = add(judge);
    judge.ledger.starts(id);
    if (!planted) finish(judge, id);
  },
  "a job that another job's verb did not end": (judge, planted) => {
    const [one, other] = [add(judge), add(judge)];
    finish(judge, other);
    end(judge, { ended: [planted ? other : one] });
  },
  "a job whose end was rolled back": (judge, planted) => {
    end(judge, { ended: [add(judge)] }, !planted);
  },
  "the newest job of a key, in whose place an older one ran": (judge, planted) => {
    const [older, newest] = [add(judge, "k"), add(judge, "k")];
    finish(judge, planted ? older : newest);
  },
  "the newest job of a key, added after another was removed": (judge, planted) => {
    add(judge, "k");
    if (planted) end(judge, { endedKeys: ["k"] });
    add(judge, "k");
    if (!planted) end(judge, { endedKeys: ["k"] });
  },
  "an add that was dropped although a job of its key waited": (judge, planted) => {
    finish(judge, add(judge, "k"));
    const newest = add(judge, "k");
    if (planted) drop(judge, "k");
    finish(judge, newest);
    if (!planted) drop(judge, "k");
  },
  "an add that was dropped although no job of its key ran well": (judge, planted) => {
    finish(judge, add(judge, "k"), planted ? "given up" : "well");
    drop(judge, "k");
  },
  "a job whose transaction rolled back": (judge, planted) => {
    finish(judge, add(judge, null, !planted));
  },
  "a job that runs again after it ran well": (judge, planted) => {
    const id = add(judge);
    finish(judge, id, planted ? "well" : "given up");
    finish(judge, id);
  },
};

for (const [fault, play] of Object.entries(FAULTS)) {
  test(`the fuzz reports ${fault}`, (t) => {
    t.deepEqual(problemsOf(play, false), [], "without the fault");
    t.is(problemsOf(play, true).length, 1);
  });
}

function problemsOf(play: Play, planted: boolean): string[] {
  const judge = makeJudge([cap, capOfSome], [bucket, bucketOfSome, window]);
  play(judge, planted);
  return [...judge.problems, ...judge.ledger.lost()];
}
