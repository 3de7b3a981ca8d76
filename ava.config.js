// Code, and no part of package.json, because of the order of the files.
import { createHash } from "node:crypto";
import path from "node:path";
import { LONG } from "./test/lanes.js";

/** The files that load the machine most. Each begins beside short ones, because two of them at once disturb each other. */
const HEAVIEST = [
  ...["chaos/chaos", "features/ahead", "bench/quick", "model/model", "races/race", "features/diff"],
  ...["fuzz/fuzz", "pages/start", "host/host-matrix", "features/concurrency", "races/hard"],
  ...["crash/scenario-24", "pages/policies", "failover/failover"],
];

/** Where a file stands in the order, from 0 to 1: the heaviest at even distances in the first part, the others at random. */
function placeOf(file) {
  const name = path.relative(path.join(import.meta.dirname, "test"), file).replace(/\.test\.ts$/, "");
  const nth = HEAVIEST.indexOf(name);
  if (nth !== -1) return (nth / HEAVIEST.length) * 0.7;
  return createHash("sha256").update(name).digest().readUInt32BE() / 2 ** 32;
}

export default {
  files: ["test/**/*.test.ts", ...(process.env.TEST_LANE === "everyday" ? LONG.map((one) => `!${one}`) : [])],
  extensions: ["ts"],
  concurrency: 3,
  workerThreads: false, // a file whose process dies must not end those of the others
  timeout: "2m",
  sortTestFiles: (one, other) => placeOf(one) - placeOf(other),
};
