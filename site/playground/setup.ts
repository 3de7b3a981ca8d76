// What a visitor of the playground sets: a load, limits, and what goes wrong. Times are in seconds.

export interface Setup {
  readonly tenants: number;
  /** Of all tenants together. */
  readonly jobs: number;
  /** 0: each tenant has as many jobs. 1: the first has twice as many as the second, three times as many as the third. */
  readonly skew: number;
  /** At once, over a time, in bursts of ten over a time, or beforehand with a time at which each is due. */
  readonly arrival: "burst" | "stream" | "bursts" | "scheduled";
  /** Over which time jobs come, or are due. */
  readonly over: number;
  /** How long a job runs, on average. */
  readonly run: number;
  /** Jobs a second. 0: no throttle. */
  readonly rate: number;
  /** Jobs that a full bucket lets go at once. 0: as many as the rate. */
  readonly burst: number;
  /** Jobs in flight. 0: no cap. */
  readonly max: number;
  /** Whether the cap is fixed, or follows how long jobs wait for a worker. */
  readonly cap: "fixed" | "adaptive";
  /** How many slots of a fixed cap each job of the last tenant takes: at most all of them. */
  readonly cost: number;
  /** What the gates count over. */
  readonly scope: "tenant" | "account" | "policy";
  /** The last tenant's share beside 1 of each other. */
  readonly weight: number;
  /** The class of the last tenant's jobs. */
  readonly later: number;
  /** What is kept for that class, in percent. */
  readonly share: number;
  readonly shards: number;
  /** How many policies the tenants are of, in turn. Two share their limits. */
  readonly policies: number;
  /** Whether a job cancels the run of its tenant's older one: never, at once, or once that has run for a second. */
  readonly newest: "keep" | "cancel" | "later";
  /** Worker slots, of all processes together. */
  readonly workers: number;
  /** The rate between a third and two thirds of the time. 0: it stays. */
  readonly night: number;
  /** For how long the first tenant's partner answers 429. */
  readonly refused: number;
  /** The share of runs that fail, in percent. */
  readonly failing: number;
  /** How long the run lasts. */
  readonly seconds: number;
}

export const DEFAULTS: Setup = {
  ...{ tenants: 4, jobs: 80, skew: 1, arrival: "burst", over: 30, run: 2 },
  ...{
    rate: 0,
    burst: 0,
    max: 0,
    cap: "fixed",
    cost: 1,
    scope: "tenant",
    weight: 1,
    later: 0,
    share: 0,
    shards: 1,
    policies: 1,
    newest: "keep",
  },
  ...{ workers: 50, night: 0, refused: 0, failing: 0, seconds: 60 },
};

interface Labelled {
  readonly key: keyof Setup;
  readonly label: string;
}

/** A slider. `off` says what its lowest value means. */
export interface Slider extends Labelled {
  readonly from: number;
  readonly to: number;
  readonly step: number;
  readonly unit?: string;
  readonly off?: string;
}

export interface Choice extends Labelled {
  readonly choices: Readonly<Record<string, string>>;
}

export type Field = Slider | Choice;

export interface Group {
  readonly title: string;
  readonly fields: readonly Field[];
}

export const GROUPS: readonly Group[] = [
  {
    title: "Load",
    fields: [
      { key: "tenants", label: "Tenants", from: 2, to: 8, step: 1 },
      { key: "jobs", label: "Jobs, of all tenants", from: 10, to: 400, step: 10 },
      {
        key: "skew",
        label: "Skew: how much louder the first is",
        from: 0,
        to: 3,
        step: 0.5,
        off: "0, all equal",
      },
      {
        key: "arrival",
        label: "Jobs come",
        choices: {
          burst: "all at once",
          stream: "over a time",
          bursts: "in bursts of ten, over a time",
          scheduled: "beforehand, due over a time",
        },
      },
      { key: "over", label: "That time", from: 5, to: 60, step: 5, unit: "s" },
      { key: "run", label: "A job runs for about", from: 0.5, to: 10, step: 0.5, unit: "s" },
    ],
  },
  {
    title: "Limits",
    fields: [
      { key: "rate", label: "Rate", from: 0, to: 10, step: 0.5, unit: "a second", off: "no throttle" },
      { key: "burst", label: "Burst", from: 0, to: 20, step: 1, unit: "at once", off: "as the rate" },
      { key: "max", label: "At once", from: 0, to: 20, step: 1, off: "no cap" },
      { key: "cap", label: "The cap", choices: { fixed: "is fixed", adaptive: "adapts to the workers" } },
      { key: "cost", label: "Slots of the cap that a job of the last tenant takes", from: 1, to: 8, step: 1 },
      {
        key: "scope",
        label: "Limits count over",
        choices: {
          tenant: "each tenant",
          account: "an account of two tenants",
          policy: "all tenants together",
        },
      },
      { key: "weight", label: "Weight of the last tenant", from: 1, to: 5, step: 1 },
      { key: "later", label: "Class of the last tenant", from: 0, to: 2, step: 1, off: "0, as all" },
      { key: "share", label: "Share of that class", from: 0, to: 50, step: 5, unit: "%", off: "none" },
      { key: "shards", label: "Shards", from: 1, to: 2, step: 1 },
      { key: "policies", label: "Policies that share the limits", from: 1, to: 2, step: 1 },
      {
        key: "newest",
        label: "A tenant's newer job",
        choices: {
          keep: "cancels no run",
          cancel: "cancels the older one's run",
          later: "does so after a second of it",
        },
      },
    ],
  },
  {
    title: "What happens",
    fields: [
      {
        key: "refused",
        label: "The first one's partner answers 429 for",
        from: 0,
        to: 30,
        step: 1,
        unit: "s",
        off: "never",
      },
      { key: "failing", label: "Runs that fail", from: 0, to: 60, step: 5, unit: "%", off: "none" },
      {
        key: "night",
        label: "Night tariff: the rate meanwhile",
        from: 0,
        to: 10,
        step: 0.5,
        unit: "a second",
        off: "none",
      },
      { key: "workers", label: "Worker slots", from: 1, to: 50, step: 1 },
      { key: "seconds", label: "Time to look at", from: 30, to: 180, step: 30, unit: "s" },
    ],
  },
];

export const FIELDS: readonly Field[] = GROUPS.flatMap(({ fields }) => fields);

export const isChoice = (field: Field): field is Choice => "choices" in field;

/** A value as the page shows it. */
export function shown(field: Field, value: string | number): string {
  if (isChoice(field)) return field.choices[value] ?? String(value);
  if (field.off !== undefined && Number(value) === field.from) return field.off;
  return field.unit === "%" ? `${value} %` : [value, field.unit].filter(Boolean).join(" ");
}

/** Reads values that came from a form or an address. A value that a field does not have becomes the nearest, or the default. */
export function readSetup(values: Readonly<Record<string, unknown>>): Setup {
  const read = FIELDS.map((field) => [field.key, fitted(field, values[field.key])]);
  return { ...DEFAULTS, ...Object.fromEntries(read) };
}

function fitted(field: Field, value: unknown): string | number {
  const byDefault = DEFAULTS[field.key];
  if (isChoice(field)) return Object.hasOwn(field.choices, String(value)) ? String(value) : byDefault;
  const number = Number(value ?? byDefault);
  if (!Number.isFinite(number)) return byDefault;
  return Math.min(field.to, Math.max(field.from, Math.round(number / field.step) * field.step));
}

/** The tenants' names, the loudest first. */
export const TENANTS = ["acme", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbor"] as const;

export const tenantsOf = ({ tenants }: Setup): readonly string[] => TENANTS.slice(0, tenants);
