import { parseArgs } from "node:util";
import { PARTS, type PartName } from "./parts.ts";
import type { Ratio } from "./ratio.ts";
import { LARGE, RATIOS } from "./ratios/index.ts";
import { SIZES, type Sizes } from "./sizes.ts";

export interface Options {
  readonly ratios: readonly Ratio[];
  readonly mode: keyof typeof SIZES;
  readonly sizes: Sizes;
  /** What is measured in place of the ratios. */
  readonly part: PartName | undefined;
  /** Where the figures go as JSON. */
  readonly json: string | undefined;
}

export const USAGE =
  "npm run bench -- [--quick] [--large | --backlog | --limits | --soak] [--only NAME,...] [--json FILE]";

/** @throws what is wrong with the arguments, in words */
export function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: "boolean", default: false },
      large: { type: "boolean", default: false },
      backlog: { type: "boolean", default: false },
      limits: { type: "boolean", default: false },
      soak: { type: "boolean", default: false },
      only: { type: "string", multiple: true },
      json: { type: "string" },
      sizes: { type: "string" }, // for the test of this bench: --sizes smallest
    },
  });
  const mode = values.sizes ?? (values.quick ? "quick" : "full");
  if (!isMode(mode)) throw new Error(`--sizes must be one of ${Object.keys(SIZES).join(", ")}; got ${mode}`);
  const all = [...RATIOS, ...(values.large ? LARGE : [])];
  const names = values.only?.flatMap((list) => list.split(","));
  const part = (Object.keys(PARTS) as PartName[]).find((name) => values[name]);
  return { ratios: names ? pick(all, names) : all, part, mode, sizes: SIZES[mode], json: values.json };
}

function isMode(mode: string): mode is keyof typeof SIZES {
  return Object.hasOwn(SIZES, mode);
}

function pick(all: readonly Ratio[], names: readonly string[]): Ratio[] {
  const known = all.map(({ name }) => name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0)
    throw new Error(`--only knows ${known.join(", ")}; got ${unknown.map((name) => `"${name}"`).join(", ")}`);
  return all.filter(({ name }) => names.includes(name));
}
