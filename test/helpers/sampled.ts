import test, { type ExecutionContext } from "ava";
import { TURN } from "../../scripts/run-tests/turn.ts";

/** As `test.serial` registers one. */
export type Register = (title: string, run: (t: ExecutionContext) => Promise<void>) => void;

/** Registers tests, one after the other, of which a run takes one of `of`: by its commit. TEST_ALL=1 takes all. */
export function sampled(of: number): Register {
  let nth = 0;
  return (title, run) => {
    const isTaken = process.env.TEST_ALL === "1" || nth++ % of === TURN % of;
    (isTaken ? test.serial : test.serial.skip)(title, run);
  };
}
