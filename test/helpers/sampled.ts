import test, { type ExecutionContext } from "ava";

/** Which of its costly tests a run takes. Another run takes others; TEST_ALL=1 takes all, and TEST_TURN the same ones again. */
const TURN = Number(process.env.TEST_TURN ?? Math.floor(Date.now() / 60_000));

/** As `test.serial` registers one. */
export type Register = (title: string, run: (t: ExecutionContext) => Promise<void>) => void;

/** Registers tests, one after the other, of which a run takes one of `of`. */
export function sampled(of: number): Register {
  let nth = 0;
  return (title, run) => {
    const isTaken = process.env.TEST_ALL === "1" || nth++ % of === TURN % of;
    (isTaken ? test.serial : test.serial.skip)(title, run);
  };
}
