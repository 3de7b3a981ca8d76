import type { PeerSizes } from "./sizes.ts";
import type { Limit, System } from "./system.ts";

/** By name; the names say the unit. */
export type Figures = Readonly<Record<string, number>>;

export interface Case {
  readonly name: string;
  readonly what: string;
  readonly limit: Limit;
  /** Which of the sizes are its own. */
  readonly size: keyof PeerSizes;
  run(system: System, sizes: PeerSizes): Promise<Figures>;
}
