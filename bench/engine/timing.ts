import { median } from "../harness/statistics.ts";
import { onProcessor } from "../harness/usage.ts";

export interface Timing {
  readonly ms: number;
  readonly cpu: number;
}

/** How long it took, and how long of that the server's process was on a processor: steadier on a busy machine. */
export async function timed<T>(pid: number, run: () => Promise<T>): Promise<Timing & { result: T }> {
  const before = onProcessor(pid);
  const start = performance.now();
  const result = await run();
  return { ms: performance.now() - start, cpu: onProcessor(pid) - before, result };
}

/** The medians of both, as in "12.3 ms (9.1 on a processor)". */
export function medians(timings: readonly Timing[]): string {
  const of = (pick: (timing: Timing) => number) => median(timings.map(pick)).toPrecision(3);
  return `${of((timing) => timing.ms)} ms (${of((timing) => timing.cpu)} cpu)`;
}

/** Times steps, however often each comes, and says the medians of each. */
export function timer<Step extends string>(
  { timed }: { timed<T>(run: () => Promise<T>): Promise<Timing & { result: T }> },
  steps: readonly Step[],
) {
  const timings = new Map<Step, Timing[]>(steps.map((step) => [step, []]));
  return {
    async time<T>(step: Step, run: () => Promise<T>): Promise<T> {
      const { result, ...timing } = await timed(run);
      timings.get(step)!.push(timing);
      return result;
    },
    ratio: (a: Step, b: Step) => ratio(timings.get(a)!, timings.get(b)!),
    figures: () => Object.fromEntries(steps.map((step) => [step, medians(timings.get(step)!)])),
  };
}

/** How many times as long `a` took as `b`, by processor time where it is known. */
export function ratio(a: readonly Timing[], b: readonly Timing[]): number {
  const of = (timings: readonly Timing[]) =>
    median(timings.map(({ ms, cpu }) => (Number.isNaN(cpu) ? ms : cpu)));
  return Number((of(a) / of(b)).toFixed(2));
}

/** One line of the pace table. */
export function say(what: string, figures: Record<string, unknown>): void {
  console.log(`${what}: ${JSON.stringify(figures)}`);
}
