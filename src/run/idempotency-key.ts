import { createHash } from "node:crypto";
import type { Job } from "graphile-worker";
import { ticketOf } from "./fetched-job.ts";

/**
 * A UUID of the job's task, id and payload, in RFC 9562's version 8. The payload counts too: an id may come again where a database
 * is copied or restored, and there it names another job.
 */
export function idempotencyKeyOf(job: Job, stagedId: string | null): string {
  const id = stagedId ?? ticketOf(job)?.stagedId ?? String(job.id);
  const text = JSON.stringify([job.task_identifier, id, job.payload], sorted);
  const hash = createHash("sha256").update(text).digest();
  hash.writeUInt8(0x80 | (hash.readUInt8(6) & 0x0f), 6);
  hash.writeUInt8(0x80 | (hash.readUInt8(8) & 0x3f), 8);
  const hex = hash.toString("hex", 0, 16);
  return [0, 8, 12, 16, 20].map((from, n, all) => hex.slice(from, all[n + 1])).join("-");
}

/** Its way through staging may change the order of a payload's keys. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}
