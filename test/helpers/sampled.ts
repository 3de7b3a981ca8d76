/** Which of its costly tests a run takes. Another run takes others; TEST_ALL=1 takes all, and TEST_TURN the same ones again. */
const TURN = Number(process.env.TEST_TURN ?? Math.floor(Date.now() / 60_000));

/** Whether this run takes the nth of a file's tests, if a run takes one of `of`. */
export function isSampled(nth: number, of: number): boolean {
  return process.env.TEST_ALL === "1" || nth % of === TURN % of;
}
