// Random policies and what happens to them, each also in words.
import fc from "fast-check";
import { adaptive, concurrency, type TestGate, throttle } from "../helpers/engine.ts";
import type { Settings } from "./model.ts";

/** A gate with the numbers of the policy and those of a later definition. */
export interface GateCase {
  readonly kind: TestGate["kind"];
  readonly scope: TestGate["scope"];
  readonly numbers: readonly [Numbers, Numbers];
  readonly sliding: readonly [boolean, boolean];
  /** Calendar windows, if it has some. */
  readonly calendar?: readonly [string | undefined, string | undefined];
  /** Whether it holds nothing back, by the policy and by the later definition. */
  readonly shadow?: readonly [boolean, boolean];
  /** Whether its `max` is the share of each worker pool, by the policy and by the later definition. */
  readonly perWorker?: readonly [boolean, boolean];
  /** Jobs take several slots of it. */
  readonly byCost?: true;
}

type Numbers = Readonly<Record<string, number | null>>;

export interface Case {
  readonly settings: Settings;
  readonly gates: readonly GateCase[];
  readonly steps: readonly Step[];
}

/** A value in the context of partitions, for limits by context. */
export type Plan = "free" | "pro";

export type Step =
  | {
      readonly do: "add";
      readonly partitions: readonly string[];
      readonly cost: number;
      readonly priority: number;
      /** Milliseconds from now; null: due long since. */
      readonly delayMs: number | null;
      readonly weight: number;
      /** 0: the policy's numbers; 1: the later ones. */
      readonly definition: 0 | 1;
      /** Which keys these jobs name. */
      readonly group: number;
      /** What their context has from now on; undefined: nothing. */
      readonly plan?: Plan;
      /** Milliseconds from when it is due to when it expires; undefined: never. */
      readonly lastsMs?: number;
      /** Milliseconds from now to its deadline; undefined: it has none. */
      readonly deadlineMs?: number;
      /** How many slots each takes of gates by cost; undefined: one. */
      readonly takes?: number;
      /** Each job is added in a call and a transaction of its own, in half of the cases once all has come to rest. */
      readonly alone?: "at rest" | "at any time";
    }
  | { readonly do: "tick" | "settle" | "look again" }
  | { readonly do: "wait"; readonly ms: number }
  | {
      readonly do: "finish";
      readonly jobs: readonly {
        nth: number;
        ok: boolean | null;
        lagMs: number;
        seconds: number;
        /** What the run says that it cost; undefined: nothing. */
        settled?: number;
      }[];
      /** Nothing is left to route or to admit before. */
      readonly atRest?: boolean;
    }
  | {
      readonly do: "admit";
      readonly partition: string | null;
      readonly count: number;
      readonly settles: boolean;
    }
  | { readonly do: "pause" | "hold"; readonly partition: string; readonly ms: number }
  | { readonly do: "pause policy"; readonly ms: number }
  | { readonly do: "resume"; readonly partition: string }
  | { readonly do: "resume policy" }
  /** A worker pool comes, stops, or dies without a word. */
  | { readonly do: "pool"; readonly name: string; readonly how: "comes" | "stops" | "dies" }
  /** A worker pool that runs its share does not run a job. */
  | { readonly do: "requeue"; readonly nth: number }
  | {
      readonly do: "override";
      readonly gate: number;
      readonly partition: string | null;
      readonly inMs: number;
      readonly ms: number | null;
      /** For the partitions whose context has it, if the gate is over the partition. */
      readonly plan?: Plan;
    }
  | {
      readonly do: "clear override";
      readonly gate: number;
      readonly partition: string | null;
      readonly plan?: Plan;
    };

/** The gate as the engine's helper knows it. Keyed scopes: each gate groups the partitions in its own way. */
export function gateOf(gate: GateCase, index: number, definition: 0 | 1, group: number): TestGate {
  const numbers = gate.numbers[definition];
  const scope = gate.scope === "key" ? (partition: string) => groupOf(partition, index, group) : gate.scope;
  const made = { throttle: throttle(1), concurrency: concurrency(1), adaptive_concurrency: adaptive(1) }[
    gate.kind
  ];
  const named = concurrency(1, { name: nameOf(gate, index), scope });
  return {
    ...made,
    name: named.name,
    scope: named.scope,
    keyOf: named.keyOf,
    numbers: { ...made.numbers, ...numbers },
    sliding: gate.sliding[definition],
    ...(gate.calendar?.[definition] && { calendar: gate.calendar[definition] }),
    smooth: isSmooth(gate, definition),
    ...(gate.shadow?.[definition] && { shadow: true }),
    ...(gate.perWorker?.[definition] && { perWorker: true }),
    ...(gate.byCost && { byCost: true }),
  };
}

/** Every bucket of one is. */
function isSmooth({ numbers, sliding }: GateCase, definition: 0 | 1): boolean {
  return numbers[definition].burst === 1 && !sliding[definition];
}

export function nameOf({ kind, scope }: GateCase, index: number): string {
  return `${kind} ${index + 1} by ${scope}`;
}

function groupOf(partition: string, gate: number, group: number): string {
  return `group ${((partition.charCodeAt(0) >> (gate % 3)) + group) % 2}`;
}

const PARTITIONS = ["a", "b", "c", "d", "e"];

const partition = fc.constantFrom(...PARTITIONS);
const rates = fc.constantFrom(1, 2, 3.5, 5, 0.5, 0.3, 0);
const caps = fc.constantFrom(2, 1, 3, 5, 12, 0);

const numbersOf = {
  throttle: fc.record({
    rate: rates,
    per: fc.constantFrom(1, 10, 60, 3600),
    burst: fc.constantFrom(null, 1, 2.5, 4, 0, 10),
  }),
  concurrency: fc.record({ max: caps }),
  adaptive_concurrency: fc
    .record({
      initial_max: fc.constantFrom(3, 1, 2, 6, 20),
      min: fc.constantFrom(1, 0, 2),
      max: fc.constantFrom(null, 8, 3),
      target_lag_ms: fc.constantFrom(100, 10, 1000),
    })
    .map((numbers) => ({ ...numbers, initial_max: Math.max(numbers.initial_max, numbers.min) })),
};

const windows = fc.constantFrom<[boolean, boolean]>(
  [false, false],
  [false, false],
  [true, true],
  [false, true],
  [true, false],
);

function gate(scopes: readonly TestGate["scope"][]): fc.Arbitrary<GateCase> {
  return fc
    .tuple(
      fc.constantFrom(...(["throttle", "concurrency", "adaptive_concurrency"] as const)),
      fc.constantFrom(...scopes),
    )
    .chain(([kind, scope]) => {
      const numbers: fc.Arbitrary<Numbers> = numbersOf[kind];
      return fc.tuple(numbers, numbers, windows).map(([first, later, sliding]): GateCase => {
        if (kind !== "throttle") return { kind, scope, numbers: [first, later], sliding: [false, false] };
        const pair = [first, later].map((values, index) =>
          sliding[index] ? { ...values, burst: null } : values,
        );
        return { kind, scope, numbers: pair as [Numbers, Numbers], sliding };
      });
    });
}

const UNIT_SECONDS = { minute: 60, hour: 3600, day: 86_400, week: 604_800, month: 2_592_000 };
type Unit = keyof typeof UNIT_SECONDS;
type Window = "calendar" | "sliding" | "bucket";

const unit = fc.constantFrom<Unit>("minute", "minute", "hour", "day", "week", "month");
const zone = fc.constantFrom("UTC", "Asia/Kolkata");
const rate = fc.constantFrom(2, 1, 3.5, 5, 0);

/** A throttle with a calendar window, and often with another one, a sliding window or a bucket by the later definition. */
const calendarGate: fc.Arbitrary<GateCase> = fc
  .record({
    scope: fc.constantFrom("partition" as const, "policy" as const),
    windows: fc.constantFrom<readonly [Window, Window]>(
      ["calendar", "calendar"],
      ["calendar", "sliding"],
      ["calendar", "bucket"],
      ["sliding", "calendar"],
      ["bucket", "calendar"],
    ),
    units: fc.tuple(unit, unit),
    zones: fc.tuple(zone, zone),
    rates: fc.tuple(rate, rate),
  })
  .map(({ scope, windows, units, zones, rates }): GateCase => {
    const numbers = ([0, 1] as const).map((index): Numbers => {
      const per = windows[index] === "calendar" ? UNIT_SECONDS[units[index]] : 60;
      return { rate: rates[index], per, burst: null };
    });
    const calendar = ([0, 1] as const).map((index) =>
      windows[index] === "calendar" ? `${units[index]} ${zones[index]}` : undefined,
    );
    return {
      ...{ kind: "throttle", scope, numbers: numbers as [Numbers, Numbers] },
      sliding: [windows[0] === "sliding", windows[1] === "sliding"],
      calendar: [calendar[0], calendar[1]],
    };
  });

const smallCap: fc.Arbitrary<GateCase> = fc.constantFrom(1, 2).map((max) => {
  return { kind: "concurrency", scope: "key", numbers: [{ max }, { max }], sliding: [false, false] };
});

/** A small cap of each partition's own, and at most one more gate. */
const ownCap: fc.Arbitrary<GateCase> = fc
  .constantFrom<[number, number]>([1, 1], [2, 2], [2, 1], [1, 3])
  .map(([max, later]) => {
    return {
      kind: "concurrency",
      scope: "partition",
      numbers: [{ max }, { max: later }],
      sliding: [false, false],
    };
  });

/** Slots of which jobs take several, one gate or two. */
const slots: fc.Arbitrary<GateCase> = fc
  .record({
    scope: fc.constantFrom(...(["partition", "key", "policy", "policy"] as const)),
    max: fc.tuple(fc.constantFrom(4, 2, 3, 6, 12, 0), fc.constantFrom(4, 1, 3, 7)),
  })
  .map(({ scope, max: [max, later] }): GateCase => {
    return {
      ...{ kind: "concurrency", scope, numbers: [{ max }, { max: later }], sliding: [false, false] },
      byCost: true,
    };
  });

const scopeOfCap = fc.constantFrom("partition" as const, "policy" as const);

/** A share of each worker pool; a later definition may make it one cap over all. */
const share: fc.Arbitrary<GateCase> = fc
  .record({
    scope: fc.constantFrom("partition" as const, "policy" as const, "policy" as const),
    max: fc.tuple(fc.constantFrom(1, 1, 2), fc.constantFrom(1, 2, 0)),
    perWorker: fc.constantFrom<[boolean, boolean]>([true, true], [true, false]),
  })
  .map(({ scope, max: [max, later], perWorker }): GateCase => {
    return {
      ...{ kind: "concurrency", scope, numbers: [{ max }, { max: later }], sliding: [false, false] },
      perWorker,
    };
  });

/** What strict order brings. */
const oneAtATime: GateCase = {
  kind: "concurrency",
  scope: "partition",
  numbers: [{ max: 1 }, { max: 1 }],
  sliding: [false, false],
};

const settings: fc.Arbitrary<Settings> = fc.record({
  halfLifeSeconds: fc.constantFrom(60, 7.3, null),
  fairBy: fc.constantFrom(...(["jobs", "work"] as const)),
  batchSize: fc.constantFrom(100, 1, 2, 3),
  budget: fc.constantFrom(null, 1, 2, 3, 5),
});

const busyDelay = fc.constantFrom(1, 3, 2.5, 600);

const finished = fc.record({
  nth: fc.nat(20),
  ok: fc.constantFrom(true, true, false, null), // null: nobody saw it
  lagMs: fc.constantFrom(0, 5, 50, 150, 2000),
  seconds: fc.constantFrom(1, 0.25, 3.5, 100, 0),
});

const add: fc.Arbitrary<Step> = fc.record({
  do: fc.constant("add" as const),
  partitions: fc.array(partition, { minLength: 1, maxLength: 7, size: "max" }),
  cost: fc.constantFrom(1, 1, 1, 2, 0.5, 0, 7),
  priority: fc.constantFrom(0, 0, 0, -1, 5),
  delayMs: fc.constantFrom(null, null, 0, 400, 5000),
  weight: fc.constantFrom(1, 1, 2, 0.5, 5),
  definition: fc.constantFrom(...([0, 0, 1] as const)),
  group: fc.constantFrom(0, 0, 0, 1),
});

const until = fc.constantFrom(500, 3000, 100_000);
const inMs = fc.constantFrom(0, 0, 500, 3000);
const overridden = { gate: fc.nat(3), partition: fc.option(partition) };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 7, arbitrary: add },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("tick" as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("settle" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("look again" as const) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("wait" as const),
      ms: fc.oneof(
        { weight: 5, arbitrary: fc.integer({ min: 1, max: 4000 }) },
        { weight: 3, arbitrary: fc.integer({ min: 4000, max: 120_000 }) },
        { weight: 2, arbitrary: fc.integer({ min: -900, max: -1 }) },
        { weight: 1, arbitrary: fc.constantFrom(-5000, 3_600_000, 86_400_000 * 400) },
      ),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("finish" as const),
      jobs: fc.array(finished, { minLength: 1, maxLength: 6, size: "max" }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constantFrom("pause" as const, "hold" as const), partition, ms: until }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("resume" as const), partition }) },
  {
    weight: 1,
    arbitrary: fc.oneof(
      fc.record({ do: fc.constant("pause policy" as const), ms: until }),
      fc.record({ do: fc.constant("resume policy" as const) }),
    ),
  },
  {
    weight: 4,
    arbitrary: fc.oneof(
      fc.record({ do: fc.constant("override" as const), ...overridden, inMs, ms: fc.option(until) }),
      fc.record({ do: fc.constant("clear override" as const), ...overridden }),
    ),
  },
);

const all: fc.Arbitrary<string | null> = fc.option(partition);
const forced: fc.Arbitrary<Step> = fc.record({
  do: fc.constant("admit" as const),
  partition: all,
  count: fc.constantFrom(1, 1, 2, 5),
  settles: fc.boolean(),
});

/** Ends, and passes that make partitions wait again. */
const turning: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant("finish" as const), jobs: fc.array(finished, { minLength: 1, maxLength: 2 }) }),
  fc.record({ do: fc.constant("tick" as const) }),
);

/** Ends, mostly while nothing is left to route or to admit, so that their slots go to the next jobs at once. */
const turn: fc.Arbitrary<Step> = fc.record({
  do: fc.constant("finish" as const),
  jobs: fc.array(finished, { minLength: 1, maxLength: 3, size: "max" }),
  atRest: fc.constantFrom(true, true, false),
});

/** Jobs that may go in the call that adds them, and ends. */
const goingAtOnce: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(
        add,
        fc.array(fc.constantFrom("a", "b", "c"), { minLength: 1, maxLength: 2 }),
        fc.constantFrom(null, null, null, 400),
        fc.constantFrom("at rest", "at rest", "at rest", "at any time"),
      )
      .map(
        ([one, partitions, delayMs, alone]): Step =>
          ({ ...one, partitions, delayMs, weight: 1, alone }) as Step,
      ),
  },
  { weight: 3, arbitrary: turning },
);

/** Often enough, and short enough, that cases have probes. */
const shortHold: fc.Arbitrary<Step> = fc.record({
  do: fc.constant("hold" as const),
  partition: fc.constantFrom("a", "b"),
  ms: fc.constantFrom(1, 500),
});

/** Partitions that change their context, and limits that go by it. */
const plan = fc.constantFrom("free" as const, "pro" as const);
const planned: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.tuple(add, plan).map(([one, its]): Step => ({ ...one, plan: its }) as Step) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("override" as const),
      ...overridden,
      inMs,
      ms: fc.option(until),
      plan,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("clear override" as const), ...overridden, plan }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("override" as const),
      gate: fc.nat(3),
      partition: fc.constant(null),
      inMs,
      ms: fc.option(until),
    }),
  },
);

const expiring: fc.Arbitrary<Step> = fc
  .tuple(add, fc.constantFrom(1, 500, 3000, 60_000))
  .map(([one, lastsMs]): Step => ({ ...one, lastsMs }) as Step);

/** Runs that say what they cost. */
const settling: fc.Arbitrary<Step> = fc
  .array(fc.tuple(finished, fc.constantFrom(0, 1, 2, 3.5, 12, 1000)), {
    minLength: 1,
    maxLength: 6,
    size: "max",
  })
  .map((jobs): Step => ({ do: "finish", jobs: jobs.map(([one, settled]) => ({ ...one, settled })) }));
const urgent: fc.Arbitrary<Step> = fc
  .tuple(add, fc.constantFrom(500, 3000, 1, 60_000, -500))
  .map(([one, deadlineMs]): Step => ({ ...one, deadlineMs }) as Step);

const sharing: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("pool" as const),
      name: fc.constantFrom("first", "second", "third"),
      how: fc.constantFrom(...(["comes", "comes", "comes", "dies", "dies", "stops"] as const)),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("requeue" as const), nth: fc.nat(20) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("settle" as const) }) },
);

/** A job of a partition that is known, mostly with the limits that it has. */
const adding: fc.Arbitrary<Step> = fc
  .tuple(add, partition, fc.constantFrom(...([0, 0, 1] as const)))
  .map(([one, partition, definition]): Step => ({ ...one, partitions: [partition], definition }) as Step);
/** Jobs that take several slots, of few partitions: dear ones beside cheap ones. */
const taking: fc.Arbitrary<Step> = fc
  .tuple(
    add,
    fc.array(fc.constantFrom("a", "b", "c"), { minLength: 1, maxLength: 4, size: "max" }),
    fc.constantFrom(2, 3, 1, 4, 5),
    fc.constantFrom(undefined, undefined, "at rest", "at any time"),
  )
  .map(
    ([one, partitions, takes, alone]): Step =>
      ({ ...one, partitions, takes, ...(alone && { alone }) }) as Step,
  );
/** Jobs of two partitions, which name one key or another. */
const naming: fc.Arbitrary<Step> = fc
  .tuple(add, fc.array(fc.constantFrom("a", "b"), { minLength: 1, maxLength: 4 }), fc.constantFrom(0, 1))
  .map(([one, partitions, group]): Step => ({ ...one, partitions, group }) as Step);

const BEFORE_KNOWN: readonly Step[] = [
  {
    ...{ do: "add", partitions: PARTITIONS, cost: 1, priority: 0, delayMs: null, weight: 1 },
    ...{ definition: 0, group: 0 },
  },
  { do: "tick" },
];

/** Without a pool there is one share, so the first pool changes nothing. */
const BEFORE_SHARES: readonly Step[] = [{ do: "pool", name: "first", how: "comes" }];

export interface CaseOptions {
  /** A gate counts by worker pool; pools come and go, and requeue jobs. */
  readonly shares?: boolean;
  /** Partitions wait at caps of their own, so that releases pass their slots on. */
  readonly passing?: boolean;
  /** Partitions wait at small caps, and jobs end while nothing is left to route: most slots are passed on. */
  readonly turns?: boolean;
  /** Jobs that nothing goes before go in the call that adds them. */
  readonly atOnce?: boolean;
  /** All partitions are known, and few jobs are added at a time: passes route them. */
  readonly known?: boolean;
  /** Partitions keep strict order, and failed jobs are tried again. */
  readonly strict?: boolean;
  /** Jobs go by their deadlines, and failed ones are tried again. */
  readonly deadlines?: boolean;
  /** Some jobs expire. */
  readonly expiring?: boolean;
  /** Throttles have calendar windows. */
  readonly calendar?: boolean;
  /** Partitions have a context that changes, and some limits go by it. */
  readonly byContext?: boolean;
  /** Several keyed gates may overlap, and then keep slots for those that need two: which job goes is not determined. */
  readonly overlapping?: boolean;
  /** Two small caps by key overlap, and nothing else limits: so slots are often kept. Goes with `overlapping`. */
  readonly keeping?: boolean;
  /** A gate is by key, and more jobs of a partition name different ones. */
  readonly lanes?: boolean;
  /** Jobs take several slots of one gate or two. */
  readonly slots?: boolean;
  /** An operator admits past the gates, too. */
  readonly forced?: boolean;
  /** Partitions are held more often, so that probes go and end. */
  readonly held?: boolean;
  /** Jobs that gates deny are postponed. */
  readonly delaying?: boolean;
  /** Runs say what they cost. */
  readonly settling?: boolean;
  /** Some gates are shadows, and some become real, or a shadow, by the later definition. */
  readonly shadow?: boolean;
}

export function cases(options: CaseOptions & { steps: number }): fc.Arbitrary<Case> {
  const gates = options.shares
    ? fc.tuple(
        share.map((one) => [one]),
        fc.array(gate(["partition", "policy"]), { maxLength: 1, size: "max" }),
      )
    : options.slots
      ? fc.tuple(
          fc.array(slots, { minLength: 1, maxLength: 2, size: "max" }),
          fc.array(gate(["partition", "policy"]), { maxLength: 1, size: "max" }),
        )
      : options.calendar
        ? fc.tuple(
            fc.array(calendarGate, { minLength: 1, maxLength: 2, size: "max" }),
            fc.array(gate(["policy"]), { maxLength: 1, size: "max" }),
          )
        : options.passing || options.turns || options.delaying || options.strict
          ? fc.tuple(
              (options.strict
                ? fc.constant(oneAtATime)
                : options.turns
                  ? fc.tuple(ownCap, scopeOfCap).map(([one, scope]): GateCase => ({ ...one, scope }))
                  : ownCap
              ).map((one) => [one]),
              fc.array(gate(["partition", "policy", "key"]), { maxLength: 1, size: "max" }),
            )
          : options.keeping
            ? fc.tuple(fc.array(smallCap, { minLength: 2, maxLength: 2 }), fc.constant<GateCase[]>([]))
            : options.byContext
              ? fc.tuple(
                  fc.array(gate(["partition"]), { minLength: 1, maxLength: 2, size: "max" }),
                  fc.array(gate(["policy"]), { maxLength: 1, size: "max" }),
                )
              : options.overlapping
                ? fc.tuple(
                    fc.array(gate(["key"]), { minLength: 2, maxLength: 3, size: "max" }),
                    fc.array(gate(["partition", "policy"]), { maxLength: 1, size: "max" }),
                  )
                : fc.tuple(
                    fc.array(gate(["partition", "policy"]), { maxLength: 3, size: "max" }),
                    fc.array(gate(["key"]), { maxLength: 1, size: "max" }),
                  );
  const beside = [
    ...(options.forced ? [forced] : []),
    ...(options.held ? [shortHold] : []),
    ...(options.passing || options.strict || options.deadlines ? [turning, turning, turning] : []),
    ...(options.turns ? Array<typeof turn>(12).fill(turn) : []),
    ...(options.atOnce ? Array<typeof goingAtOnce>(24).fill(goingAtOnce) : []),
    ...(options.slots ? [...Array<typeof taking>(8).fill(taking), ...Array<typeof turn>(6).fill(turn)] : []),
    ...(options.lanes ? Array<typeof naming>(6).fill(naming) : []),
    ...(options.known ? Array<typeof adding>(20).fill(adding) : []),
    ...(options.expiring ? [expiring, expiring] : []),
    ...(options.shares ? Array<typeof sharing>(6).fill(sharing) : []),
    ...(options.settling ? [settling, settling] : []),
    ...(options.deadlines ? [urgent, urgent, urgent] : []),
    ...(options.byContext ? [planned, planned, planned, planned] : []),
  ];
  const any =
    beside.length === 0
      ? step
      : fc.oneof({ weight: 6, arbitrary: step }, ...beside.map((arbitrary) => ({ weight: 1, arbitrary })));
  const steps = fc
    .tuple(add, fc.array(any, { minLength: 3, maxLength: options.steps, size: "max" }))
    .map(([first, others]) => [
      ...(options.shares ? BEFORE_SHARES : []),
      ...(options.known ? BEFORE_KNOWN : [first]),
      ...others,
    ]);
  const all = fc
    .tuple(gates, options.lanes ? gate(["key"]).map((one) => [one]) : fc.constant<GateCase[]>([]))
    .map(([[some, others], more]) => [...some, ...others, ...more]);
  const its =
    options.passing || options.turns
      ? settings.map((one): Settings => ({ ...one, budget: null, fairBy: "jobs" }))
      : options.delaying
        ? fc
            .tuple(settings, busyDelay)
            .map(([one, busyDelaySeconds]): Settings => ({ ...one, busyDelaySeconds }))
        : options.strict || options.deadlines
          ? settings.map((one): Settings => ({ ...one, order: options.strict ? "strict" : "deadline" }))
          : settings;
  const mayGo = options.atOnce ? its.map((one): Settings => ({ ...one, budget: null })) : its;
  return fc.record({ settings: mayGo, gates: options.shadow ? all.chain(withShadows) : all, steps });
}

/** At least one of them is a shadow at first. */
function withShadows(gates: readonly GateCase[]): fc.Arbitrary<GateCase[]> {
  const pairs = fc.constantFrom<[boolean, boolean]>(
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  );
  return fc.array(pairs, { minLength: gates.length, maxLength: gates.length }).map((shadows) =>
    gates.map((gate, n) => ({
      ...gate,
      shadow: n === 0 ? ([true, shadows[0]![1]] as const) : shadows[n]!,
    })),
  );
}

export function inWords({ settings, gates, steps }: Case): string {
  const { halfLifeSeconds, fairBy, batchSize, budget, busyDelaySeconds, order } = settings;
  return [
    `policy: fair by ${fairBy}, half-life ${halfLifeSeconds ?? "none"}, batch ${batchSize}, budget ${budget ?? "none"}${busyDelaySeconds === undefined ? "" : `, postpones by ${busyDelaySeconds} s`}${order ? `, ${order} order` : ""}`,
    ...gates.map((gate, index) => {
      const [numbers, later] = gate.numbers.map(
        (values, index) =>
          `${JSON.stringify(values)}${gate.sliding[index] ? ", sliding" : ""}${gate.calendar?.[index] ? `, ${gate.calendar[index]}` : ""}${isSmooth(gate, index as 0 | 1) ? ", smooth" : ""}${gate.shadow?.[index] ? ", shadow" : ""}${gate.perWorker?.[index] ? ", per worker" : ""}${gate.byCost ? ", by cost" : ""}`,
      );
      return `gate: ${nameOf(gate, index)} ${numbers}${steps.some((it) => it.do === "add" && it.definition) ? `, later ${later}` : ""}`;
    }),
    ...steps.map((it, index) => `${index + 1}. ${stepInWords(it, gates)}`),
  ].join("\n");
}

export function stepInWords(step: Step, gates: readonly GateCase[]): string {
  switch (step.do) {
    case "add": {
      const due = step.delayMs === null ? "" : `, due in ${step.delayMs} ms`;
      const urgency = step.deadlineMs === undefined ? "" : `, deadline in ${step.deadlineMs} ms`;
      const lasts = step.lastsMs === undefined ? "" : `, expiring ${step.lastsMs} ms later`;
      const definition = step.definition === 0 ? "" : ", with the later numbers";
      const group = step.group === 0 ? "" : ", in the other groups";
      const plan = step.plan === undefined ? "" : `, on plan ${step.plan}`;
      const takes = step.takes === undefined ? "" : `, ${step.takes} slots`;
      return `add ${step.alone ? `${step.alone}, one by one ` : ""}to ${step.partitions.join(" ")}: cost ${step.cost}, priority ${step.priority}, weight ${step.weight}${takes}${due}${urgency}${lasts}${definition}${group}${plan}`;
    }
    case "wait":
      return step.ms < 0 ? `the clock goes back ${-step.ms} ms` : `wait ${step.ms} ms`;
    case "finish":
      return `finish ${step.atRest ? "at rest " : ""}${step.jobs.map(({ nth, ok, lagMs, seconds, settled }) => `#${nth} ${howEnded(ok)} after ${lagMs} ms and ${seconds} s${settled === undefined ? "" : `, at ${settled}`}`).join(", ")}`;
    case "admit":
      return `admit ${step.count} of ${step.partition ?? "all"} past the gates${step.settles ? ", and settle" : ""}`;
    case "pause":
    case "hold":
      return `${step.do} ${step.partition} for ${step.ms} ms`;
    case "pause policy":
      return `pause the policy for ${step.ms} ms`;
    case "pool":
      return `the ${step.name} worker pool ${step.how}`;
    case "requeue":
      return `a worker pool sends #${step.nth} back`;
    case "resume":
      return `resume ${step.partition}`;
    case "override":
    case "clear override": {
      const gate =
        gates.length === 0 ? "nothing" : nameOf(gates[step.gate % gates.length]!, step.gate % gates.length);
      const when =
        step.do === "override" ? ` in ${step.inMs} ms${step.ms === null ? "" : `, for ${step.ms} ms`}` : "";
      return `${step.do}: ${gate}${whom(step)}${when}`;
    }
    default:
      return step.do;
  }
}

function whom({ partition, plan }: Step & { do: "override" | "clear override" }): string {
  const where = partition === null ? "" : `, where ${partition} is`;
  return plan === undefined ? where : `, on plan ${plan} if over the partition, else${where || " all"}`;
}

function howEnded(ok: boolean | null): string {
  if (ok === null) return "unseen";
  return ok ? "well" : "badly";
}
