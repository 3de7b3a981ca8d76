import { execFileSync } from "node:child_process";

/** Chooses which costly tests a run takes, and their seeds. Each commit has another one, and TEST_TURN repeats one. */
export const TURN = Number(process.env.TEST_TURN ?? turnOfCommit());

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
