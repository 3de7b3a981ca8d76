import type { Case } from "./case.ts";
import type { PeerResult } from "./report.ts";
import type { PeerSizes } from "./sizes.ts";
import { SYSTEMS } from "./systems/index.ts";

/** A case and a system that takes part in it. */
export interface Entry {
  readonly name: string;
  readonly what: string;
  measure(): Promise<PeerResult>;
}

export function entriesOf(cases: readonly Case[], sizes: PeerSizes): Entry[] {
  return cases.flatMap((it) =>
    SYSTEMS.filter((system) => !system.cannot(it.limit)).map((system) => ({
      name: `${it.name}, ${system.name}`,
      what: it.what,
      async measure() {
        const start = performance.now();
        const figures = await it.run(system, sizes);
        return { case: it, system, figures, seconds: Math.round((performance.now() - start) / 1000) };
      },
    })),
  );
}
