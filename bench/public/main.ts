// node bench/public/main.ts graphile-worker | graphile-worker-dispatch-policy
// An adapter of the public benchmark of job queues on PostgreSQL: README.md beside this file says how it is run.
import { runAdapter } from "./adapter.ts";
import { readSettings } from "./settings.ts";
import { governed } from "./systems/governed.ts";
import { plain } from "./systems/plain.ts";

const SYSTEMS = [plain, governed];
/** The harness kills an adapter that takes longer to end. */
const ENDS_WITHIN_MS = 4500;

const [wanted = ""] = process.argv.slice(2);
const over = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, end);

try {
  const system = SYSTEMS.find(({ name }) => name === wanted);
  if (!system) throw new Error(`Name one of ${SYSTEMS.map(({ name }) => name).join(", ")}; got "${wanted}"`);
  await runAdapter(system, readSettings(process.env), over.signal);
} catch (error) {
  console.error(`# ${(error as Error).message}`);
  process.exit(1);
}
process.exit(0); // the harness holds standard input open

function end(): void {
  over.abort();
  setTimeout(() => {
    console.error(`# still ending after ${ENDS_WITHIN_MS} ms: jobs that run are left`);
    process.exit(0);
  }, ENDS_WITHIN_MS);
}
