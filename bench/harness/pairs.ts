import { type Summary, summary } from "./statistics.ts";

/** Figures of two things measured in turn; those of one place were measured one after the other. */
export interface Pairs {
  readonly subject: readonly number[];
  readonly baseline: readonly number[];
}

export interface Rounds {
  readonly runs: number;
  /** Pairs that are measured first and not counted: plans, caches and compiled code are new to them. */
  readonly warmUps: number;
}

/** Measures both by turns. Which goes first changes from pair to pair, so that neither has always the quieter place. */
export async function measurePairs(
  { runs, warmUps }: Rounds,
  sides: { subject: () => Promise<number>; baseline: () => Promise<number> },
): Promise<Pairs> {
  const subject: number[] = [];
  const baseline: number[] = [];
  for (let round = -warmUps; round < runs; round++) {
    const pair = round % 2 === 0 ? await inOrder(sides) : await inReverse(sides);
    if (round < 0) continue;
    subject.push(pair.subject);
    baseline.push(pair.baseline);
  }
  return { subject, baseline };
}

type Sides = Parameters<typeof measurePairs>[1];

async function inOrder(sides: Sides) {
  const subject = await sides.subject();
  return { subject, baseline: await sides.baseline() };
}

async function inReverse(sides: Sides) {
  const baseline = await sides.baseline();
  return { subject: await sides.subject(), baseline };
}

/** The ratios of the pairs: what both met at the time, a busy disk say, is not in them. */
export function ratioOf({ subject, baseline }: Pairs): Summary {
  return summary(subject.map((figure, place) => figure / (baseline[place] ?? Number.NaN)));
}
