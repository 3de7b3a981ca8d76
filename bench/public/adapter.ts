import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { jobMaker } from "./jobs.ts";
import { writeDescriptor } from "./lines.ts";
import { produce } from "./producer.ts";
import { sample } from "./sampler.ts";
import { Seen } from "./seen.ts";
import type { Settings } from "./settings.ts";
import type { System } from "./system.ts";

/** Adds jobs, runs them, and writes what is measured, until the signal. */
export async function runAdapter(system: System, settings: Settings, signal: AbortSignal): Promise<void> {
  const { url, instance, limits, payloadBytes, workMs } = settings;
  const db = new pg.Pool({ connectionString: url, max: 2 });
  db.on("error", (error) => console.error(`# ${error.message}`));
  const seen = new Seen(limits);
  const jobs = jobMaker(payloadBytes);

  const running = await system.start(settings, async (job) => {
    seen.started(job);
    if (workMs > 0) await delay(workMs);
    seen.ended(job);
  });
  await writeDescriptor(system, instance, db);

  async function add(count: number): Promise<void> {
    await running.add(jobs(count));
    seen.added(count);
  }

  async function depth(): Promise<number> {
    const { rows } = await db.query({ text: system.depth, rowMode: "array" });
    return Number(rows[0]![0]);
  }

  const producing = produce({ settings: settings.producer, add, depth, signal });
  await Promise.all([producing, sample(system, { seen, settings, depth, signal })]);
  await running.stop();
  await db.end();
}
