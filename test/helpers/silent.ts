import { Logger } from "graphile-worker";

/** A logger that says nothing. */
export const silent = new Logger(() => () => {});
