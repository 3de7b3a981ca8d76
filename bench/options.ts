import { parseArgs } from "node:util";
import { PARTS, type PartName } from "./harness/parts.ts";
import type { Ratio } from "./harness/ratio.ts";
import { SIZES, type Sizes } from "./harness/sizes.ts";
import type { Case } from "./peers/case.ts";
import { CASES } from "./peers/cases/index.ts";
import { PEER_SIZES, type PeerSizes } from "./peers/sizes.ts";
import { FIGURES, LARGE, RATIOS } from "./ratios/index.ts";

export interface Options {
  /** What is measured in place of the ratios. */
  readonly part: PartName | undefined;
  /** Whether other job queues are, in place of them. */
  readonly peers: boolean;
  readonly ratios: readonly Ratio[];
  readonly cases: readonly Case[];
  readonly mode: keyof typeof SIZES;
  readonly sizes: Sizes;
  readonly peerSizes: PeerSizes;
  /** Where the figures go as JSON. */
  readonly json: string | undefined;
}

export const USAGE =
  "npm run bench -- [--quick] [--large | --adoption | --ahead | --backlog | --bloat | --drill | --estimate | --fairness | --limits | --open | --rollout | --scaling | --soak | --peers] [--only NAME,...] [--json FILE]";

/** @throws what is wrong with the arguments, in words */
export function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: "boolean", default: false },
      large: { type: "boolean", default: false },
      adoption: { type: "boolean", default: false },
      ahead: { type: "boolean", default: false },
      backlog: { type: "boolean", default: false },
      bloat: { type: "boolean", default: false },
      drill: { type: "boolean", default: false },
      estimate: { type: "boolean", default: false },
      fairness: { type: "boolean", default: false },
      limits: { type: "boolean", default: false },
      open: { type: "boolean", default: false },
      rollout: { type: "boolean", default: false },
      scaling: { type: "boolean", default: false },
      soak: { type: "boolean", default: false },
      peers: { type: "boolean", default: false },
      only: { type: "string", multiple: true },
      json: { type: "string" },
      sizes: { type: "string" }, // for the test of this bench: --sizes smallest
    },
  });
  const mode = values.sizes ?? (values.quick ? "quick" : "full");
  if (!isMode(mode)) throw new Error(`--sizes must be one of ${Object.keys(SIZES).join(", ")}; got ${mode}`);
  const { large, peers, json } = values;
  const all = [...RATIOS, ...FIGURES, ...(large ? LARGE : [])];
  const names = values.only?.flatMap((list) => list.split(","));
  return {
    part: (Object.keys(PARTS) as PartName[]).find((name) => values[name]),
    peers,
    ratios: peers ? [] : pick(all, names),
    cases: peers ? pick(CASES, names) : [],
    mode,
    sizes: SIZES[mode],
    peerSizes: PEER_SIZES[mode],
    json,
  };
}

function isMode(mode: string): mode is keyof typeof SIZES {
  return Object.hasOwn(SIZES, mode);
}

function pick<Named extends { name: string }>(
  all: readonly Named[],
  names?: readonly string[],
): readonly Named[] {
  if (!names) return all;
  const known = all.map(({ name }) => name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0)
    throw new Error(`--only knows ${known.join(", ")}; got ${unknown.map((name) => `"${name}"`).join(", ")}`);
  return all.filter(({ name }) => names.includes(name));
}
