import { execFileSync } from "node:child_process";

/** The seed of random choices. It is the same in each everyday run, another for each commit with TEST_ALL=1, and TEST_TURN's. */
export const TURN = Number(process.env.TEST_TURN ?? (process.env.TEST_ALL === "1" ? turnOfCommit() : 1));

/** Outside a git checkout it is always the same. */
function turnOfCommit(): number {
  try {
    const stdio = ["ignore", "pipe", "ignore"] as const;
    const hash = execFileSync("git", ["rev-parse", "HEAD"], { encoding: "utf8", stdio: [...stdio] });
    return Number.parseInt(hash.slice(0, 7), 16);
  } catch {
    return 0; // a tarball has no commit
  }
}
