import { setTimeout as delay } from "node:timers/promises";

interface Patience {
  readonly withinMs?: number;
  readonly everyMs?: number;
  readonly seen?: () => unknown;
}

/**
 * Resolves to a fact once it holds (is neither false, null nor undefined); fails when it does not come true in time, with
 * what `seen` tells of what was there instead.
 */
export async function until<T>(
  fact: string,
  look: () => Promise<T> | T,
  { withinMs = 45_000, everyMs = 10, seen }: Patience = {},
): Promise<NonNullable<T>> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const found = await look();
    if (found !== false && found != null) return found;
    if (performance.now() > deadline) {
      const instead = seen ? `; ${JSON.stringify(await seen())}` : "";
      throw new Error(`Not within ${withinMs} ms: ${fact}${instead}`);
    }
    await delay(everyMs);
  }
}
