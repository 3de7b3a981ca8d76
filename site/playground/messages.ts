// What the page and its worker say to each other.

import type { Setup } from "./setup.ts";
import type { Frame } from "./simulation.ts";

/** The first instant of a run. Its day does not matter. */
export const BEGIN = Date.UTC(2030, 0, 1);

export interface Order {
  readonly setup: Setup;
}

export type Said =
  | { readonly says: "loading"; readonly loaded: number; readonly total: number }
  | { readonly says: "starting" }
  | { readonly says: "frame"; readonly frame: Frame }
  | { readonly says: "done"; readonly passes: number; readonly startMs: number; readonly runMs: number }
  | { readonly says: "failed"; readonly message: string };
