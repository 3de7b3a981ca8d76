import test, { type ExecutionContext } from "ava";

/** As `test.serial` registers one. */
export type Register = (title: string, run: (t: ExecutionContext) => Promise<void>) => void;

/** Registers tests of the long lane, one after the other: `npm run test:long` sets TEST_ALL=1. */
export const atLength: Register = process.env.TEST_ALL === "1" ? test.serial : test.serial.skip;
