// The verdict, from the log alone.
import fs from "node:fs";
import type { Event, Fact } from "./events.ts";
import { accountOf, CAPS, RATE, WINDOW } from "./policies.ts";

export interface Verdict {
  /** What went wrong; empty: nothing. */
  readonly problems: readonly string[];
  readonly rounds: number;
  readonly acknowledged: number;
  readonly runs: number;
  /** What is printed: names and values. */
  readonly table: readonly (readonly [string, string])[];
}

/** What ends so shortly before a failure may not be recorded yet. What starts so shortly after it was fetched before. */
const SLACK_MS = 400;
/** An admission is dated so much after its tokens at most, more or less. */
const CHARGED_BEFORE_MS = 100;
/** For so long after a promotion rates are judged apart. */
const AROUND_MS = 6000;

type Of<K extends Fact["k"]> = Extract<Event, { k: K }>;

interface Run extends Of<"start"> {
  to: number;
}

interface Round extends Of<"round"> {
  /** From when the next primary lacks what happens. Undefined: it has all. */
  readonly cut: number | undefined;
  readonly down: number;
  readonly promoted: number;
  /** When the last process had the new primary. */
  readonly over: number;
  readonly back: Of<"back"> | undefined;
}

export function judge(file: string, mode: "sync" | "async"): Verdict {
  const lines = fs.readFileSync(file, "utf8").trim().split("\n");
  const events = lines.map((line) => JSON.parse(line) as Event).sort((one, other) => one.t - other.t);
  const of = <K extends Fact["k"]>(k: K) => events.filter((event) => event.k === k) as Of<K>[];
  const rounds = of("round").map((round) => roundOf(round, events));
  const runs = runsOf(events);
  const byId = Map.groupBy(runs, ({ id }) => id);

  const acked = of("ack").flatMap(({ t, ids, staged }) =>
    ids.map((id, n) => ({ t, id, staged: staged[n]! })),
  );
  const lost = acked
    .filter(({ id }) => !byId.has(id))
    .map((job) => ({ ...job, when: whenOf(job.t, rounds) }));
  const unknown = of("unknown").flatMap(({ ids }) => ids);
  const again = [...byId.values()].flatMap((all) =>
    all.slice(1).map((run, n) => {
      const before = all[n]!;
      return {
        ...run,
        why: whyAgain(before, run, rounds, mode),
        beside: run.t < before.to ? ", beside the first" : "",
      };
    }),
  );
  const work = runs.filter(({ task }) => task === "work");
  const overruns = [
    ...overrunsOf("tenant", CAPS.tenant, work, ({ key }) => key),
    ...overrunsOf("account", CAPS.account, work, ({ key }) => accountOf(key)),
  ].map((one) => ({ ...one, round: rounds.findLast(({ begins }) => begins <= one.from) }));
  const twice = {
    "in staging": idsOfTwo([...acked, ...runs]),
    "in Graphile Worker": idsOfTwo(runs.map(({ id, row }) => ({ id, staged: row }))),
  };
  const left = of("left")[0]?.counts;
  const exits = of("exit");

  const problems = [
    ...lost
      .filter(
        ({ when }) => !(mode === "async" && when === "in the lost window") && when !== "beside two primaries",
      )
      .map(({ id, when }) => `Job ${id} was acknowledged ${when}, and never ran`),
    ...again
      .filter(({ why }) => why !== "in flight" && !(mode === "async" && why === "ended in the lost window"))
      .map(({ id, row, t, why }) => `Job ${id} ran again at ${t} as ${row}: ${why ?? "nothing explains it"}`),
    ...overruns
      .filter(({ round }) => round?.how !== "zombie")
      .map(
        ({ name, most, ms, round }) =>
          `${most} ran at once, over the cap of a ${name}, for ${ms} ms (round ${round?.n})`,
      ),
    ...Object.entries(twice).flatMap(([where, ids]) =>
      ids.map(([id, jobs]) => `${id} is the id of two jobs ${where}: ${jobs.join(" and ")}`),
    ),
    ...rounds.flatMap(({ n, back }) =>
      (back?.silent ?? ["nobody"]).map(
        (name) => `${name} has started nothing after the promotion of round ${n}`,
      ),
    ),
    ...Object.entries(left ?? { "the end": 1 }).flatMap(([what, count]) =>
      count > 0 ? [`left: ${count} ${what}`] : [],
    ),
    ...exits.map(({ w, code }) => `${w} ended by itself (${code})`),
  ];
  const steadyAnd = (most: (admitted: number[]) => number[], task: string) => {
    const admitted = runs.filter((run) => run.task === task && run.admitted > 0).map((run) => run.admitted);
    const sorted = admitted.sort((one, other) => one - other);
    const over = most(sorted);
    const isAround = (t: number) =>
      rounds.some(({ cut, down, over }) => (cut ?? down) <= t && t < over + AROUND_MS);
    const mostOf = (around: boolean) =>
      Math.max(0, ...over.filter((_, n) => isAround(sorted[n]!) === around)).toFixed(1);
    return `${mostOf(false)}, around failures ${mostOf(true)}`;
  };
  const firstAfter = (t: number, list: readonly { t: number }[]) =>
    list.find((one) => one.t > t)?.t ?? Number.POSITIVE_INFINITY;
  const seconds = (list: readonly number[]) => list.map((ms) => (ms / 1000).toFixed(1)).join(" ");
  return {
    ...{ problems, rounds: rounds.length, acknowledged: acked.length, runs: runs.length },
    table: [
      ["failures", rounds.map(({ how }) => how).join(" ")],
      ["acknowledged", String(acked.length)],
      ["acknowledged, never run", tally(lost.map(({ when }) => when))],
      [
        "adds with an unknown outcome",
        `${unknown.length}, of which ran: ${unknown.filter((id) => byId.has(id)).length}`,
      ],
      ["runs", String(runs.length)],
      ["run again", tally(again.map(({ why, beside }) => (why ?? "nothing explains it") + beside))],
      ["over a cap", tally(overruns.map(({ name, most }) => `${name}: ${most}`))],
      ["calls admitted over 20 + 20/s", steadyAnd(overBucket, "call")],
      ["slides admitted over 30 in 3 s", steadyAnd(overWindow, "slide")],
      [
        "ids of two jobs",
        Object.entries(twice)
          .map(([where, ids]) => `${where} ${ids.length}`)
          .join(", "),
      ],
      ["outage, s", seconds(rounds.map(({ down, promoted }) => promoted - down))],
      [
        "promotion to first start, s",
        seconds(rounds.map(({ promoted }) => firstAfter(promoted, runs) - promoted)),
      ],
      [
        "promotion to first add, s",
        seconds(rounds.map(({ promoted }) => firstAfter(promoted, of("ack")) - promoted)),
      ],
      ["promotion to full pace, s", rounds.map(({ back }) => back?.seconds?.toFixed(1) ?? "never").join(" ")],
      ["workers that ended by themselves", String(exits.length)],
      ["left at the end", JSON.stringify(left ?? null)],
      ["workers said", tally(of("said").map(({ message }) => message.replace(/\d+/g, "#").slice(0, 100)))],
    ],
  };
}

function roundOf(round: Of<"round">, events: readonly Event[]): Round & { begins: number } {
  const at = (k: Fact["k"]) =>
    events.find((event) => event.k === k && "n" in event && event.n === round.n)?.t;
  const never = Number.POSITIVE_INFINITY;
  const down = at("down") ?? never;
  return {
    ...{ ...round, begins: round.t, down, promoted: at("promoted") ?? never },
    cut: at("lagging") ?? (round.how === "zombie" ? down : undefined),
    over: at("allSwitched") ?? at("switched") ?? never,
    back: events.find((event) => event.k === "back" && event.n === round.n) as Of<"back"> | undefined,
  };
}

/** A run ends with its process at the latest. */
function runsOf(events: readonly Event[]): Run[] {
  const runs: Run[] = [];
  const open = new Map<string, Run>();
  for (const event of events) {
    if (event.k === "start") {
      const run = { ...event, to: Number.POSITIVE_INFINITY };
      runs.push(run);
      open.set(`${event.w} ${event.id} ${event.row}`, run);
    } else if (event.k === "end") {
      const run = open.get(`${event.w} ${event.id} ${event.row}`);
      if (run) run.to = event.t;
    } else if (event.k === "exit") {
      for (const run of open.values()) if (run.w === event.w) run.to = Math.min(run.to, event.t);
    }
  }
  return runs;
}

/** When a job was added that never ran. */
function whenOf(t: number, rounds: readonly Round[]): string {
  const round = rounds.findLast(({ cut, down }) => (cut ?? down - SLACK_MS) <= t);
  if (!round) return "before any failure";
  if (t <= round.promoted) return "in the lost window";
  return t <= round.over ? "beside two primaries" : "after the promotion";
}

/** Any failure before the second run may be the cause: a job that comes back may wait until after the next one. */
function whyAgain(before: Run, again: Run, rounds: readonly Round[], mode: "sync" | "async"): string | null {
  for (const { t, cut, down, over } of rounds.toReversed()) {
    if (t > again.t || before.t > over) continue;
    // without its standby a synchronous primary commits no start and no end
    const fails = mode === "sync" ? (cut ?? down) : down;
    const isLate = mode === "sync" && before.t > fails + SLACK_MS;
    if (before.to >= fails - SLACK_MS && !isLate) return "in flight";
    if (cut !== undefined && before.to >= cut - SLACK_MS) return "ended in the lost window";
  }
  return null;
}

/** Stretches of time in which more ran than the cap allows. */
function overrunsOf(name: string, max: number, runs: readonly Run[], keyOf: (run: Run) => string) {
  const found: { name: string; from: number; most: number; ms: number }[] = [];
  for (const all of Map.groupBy(runs, keyOf).values()) {
    const points = all.flatMap(({ t, to }) => [
      { t, by: 1 },
      { t: to, by: -1 },
    ]);
    let count = 0;
    let over: { name: string; from: number; most: number; ms: number } | null = null;
    for (const { t, by } of points.sort((one, other) => one.t - other.t || one.by - other.by)) {
      count += by;
      if (over) {
        over.most = Math.max(over.most, count);
        over.ms = Math.round(t - over.from);
      }
      if (count <= max) over = null;
      else if (!over) {
        over = { name, from: t, most: count, ms: 0 };
        found.push(over);
      }
    }
  }
  return found;
}

function idsOfTwo(pairs: readonly { id: string; staged: string }[]): [string, string[]][] {
  const byId = Map.groupBy(
    pairs.filter(({ staged }) => staged !== ""),
    ({ staged }) => staged,
  );
  return [...byId].flatMap(([id, all]) => {
    const jobs = [...new Set(all.map((one) => one.id))];
    return jobs.length > 1 ? [[id, jobs] as [string, string[]]] : [];
  });
}

/** By how many tokens each admission overdraws the bucket. */
function overBucket(admitted: readonly number[]): number[] {
  let level = 0;
  return admitted.map((t, n) => {
    level = Math.max(0, level - ((t - (admitted[n - 1] ?? t)) / 1000) * RATE) + 1;
    return level - RATE;
  });
}

/** By how many each admission exceeds what a window may have. */
function overWindow(admitted: readonly number[]): number[] {
  let first = 0;
  return admitted.map((t, n) => {
    while (admitted[first]! <= t - WINDOW.ms + CHARGED_BEFORE_MS) first++;
    return n - first + 1 - WINDOW.rate;
  });
}

function tally(list: readonly string[]): string {
  const counts = [...Map.groupBy(list, (one) => one)].map(([one, all]) => `${all.length} × ${one}`);
  return counts.join("; ") || "0";
}
