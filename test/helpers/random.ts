import type { ExecutionContext } from "ava";
import { TURN } from "../../scripts/run-tests/turn.ts";

/** Repeats the random choices of tests; without TEST_SEED it comes from the commit. */
const SEED = Number(process.env.TEST_SEED ?? TURN);

/** The seed of a test's random choices; the test logs it. `TEST_SEED` sets it. */
export function seedOf(t: ExecutionContext): number {
  t.log(`TEST_SEED=${SEED}`);
  return SEED;
}

/** Numbers that a seed repeats. */
export interface Random {
  /** 0 ≤ n < 1. */
  unit(): number;
  /** A whole number, 0 ≤ n < below. */
  below(below: number): number;
  between(from: number, to: number): number;
  chance(probability: number): boolean;
  pick<T>(list: readonly T[]): T;
}

/** mulberry32: 32 bits of state, enough to choose whom to kill next. */
export function random(seed: number): Random {
  let state = seed | 0;
  const unit = () => {
    state = (state + 0x6d2b79f5) | 0;
    let n = Math.imul(state ^ (state >>> 15), 1 | state);
    n = (n + Math.imul(n ^ (n >>> 7), 61 | n)) ^ n;
    return ((n ^ (n >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    unit,
    below: (below) => Math.floor(unit() * below),
    between: (from, to) => from + unit() * (to - from),
    chance: (probability) => unit() < probability,
    pick: (list) => list[Math.floor(unit() * list.length)]!,
  };
}
