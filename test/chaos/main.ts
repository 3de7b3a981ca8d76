// npm run test:chaos -- [--seconds 600] [--seed S] [--fault NAME] [--out | --no-out] [--verbose]
// With --out it ends with an uninstall, and plain Graphile Worker runs what is left. Without either flag an even seed does.
// Else some calls have callbacks: an uninstall would refuse while a group is open.
// Prints its seed first and one JSON line of totals last; exits with 1 when anything went wrong.
import { parseArgs } from "node:util";
import { FAULTS, type FaultName } from "../races/race/faults.ts";
import { chaos } from "./run.ts";

const { values } = parseArgs({
  allowNegative: true,
  options: {
    seconds: { type: "string", default: "600" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) },
    fault: { type: "string" },
    out: { type: "boolean" },
    verbose: { type: "boolean", default: false },
  },
});
const seconds = wholeNumber("seconds", values.seconds);
const seed = wholeNumber("seed", values.seed);
const { out = seed % 2 === 0 } = values;
const fault = values.fault as FaultName | undefined;
if (fault !== undefined && !(fault in FAULTS)) {
  throw new Error(`--fault must be one of ${Object.keys(FAULTS).join("; ")}; got ${fault}`);
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => process.exit(130));

const started = performance.now();
console.error(`# chaos for ${seconds} s, --seed ${seed} ${out ? "--out" : "--no-out"}`);
const verdict = await chaos({
  ...{ seconds, seed, fault, out },
  say: (what) => {
    if (values.verbose) console.error(`# ${((performance.now() - started) / 1000).toFixed(1)} ${what}`);
  },
});
for (const problem of verdict.problems) console.error(`# ${problem}`);
console.log(JSON.stringify(verdict));
process.exitCode = verdict.problems.length > 0 ? 1 : 0;

function wholeNumber(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 0)
    throw new Error(`--${name} must be a whole number, got ${text}`);
  return number;
}
