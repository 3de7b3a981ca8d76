/** Milliseconds of a clock that all processes of a machine share, and that nobody sets. */
export const moment = (): number => Number(process.hrtime.bigint()) / 1e6;
