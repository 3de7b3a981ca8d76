import { Logger } from "graphile-worker";

/** Says what goes wrong, and nothing else. */
export const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(`# ${message}`);
});
