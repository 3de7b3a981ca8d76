/**
 * A storm of requests over 200 endpoints, each behind a server that allows 10 per second and 5 at once: first with a
 * policy, then the same storm on plain Graphile Worker.
 * With --ui a page adds jobs of ten policies, beside the admin pages of their database. Otherwise it exits with 1 if a run with the
 * policy broke a limit or lost a job. USAGE has the options.
 */
import { constants } from "node:os";
import { PortTaken } from "../../scripts/listen.ts";
import { readOptions, readPort, readWhole } from "../../scripts/read-options.ts";
import { killAll } from "./children.ts";
import { measure } from "./measure.ts";
import { failures, showNextSteps, showTable, showVerdict, whySlow } from "./report.ts";
import { runStorm } from "./run.ts";
import { type Burst, MOST, makeStorm } from "./storm.ts";

const USAGE = `./scripts/demo [--endpoints 200] [--loudest 250]   a storm with a policy, then without
./scripts/demo --ui [--port 4181]                  ten jobs and storms of them, beside admin pages, until ctrl-c`;

const values = readOptions(
  {
    endpoints: { type: "string" },
    loudest: { type: "string" },
    ui: { type: "boolean", default: false },
    port: { type: "string", default: "4181" },
  },
  USAGE,
);
const port = readPort(values.port);
const endpoints = readWhole("endpoints", values.endpoints ?? "200", 1, MOST.endpoints);
const loudest = readWhole("loudest", values.loudest ?? "250", 1, MOST.loudest);
if (values.ui && (values.endpoints ?? values.loudest) !== undefined) {
  console.error("--endpoints and --loudest are not for --ui: its page has a form for storms.");
  process.exit(2);
}
/** For one run: with two of them the demo stays under two minutes on a slow machine. */
const MOST_SECONDS = 50;

// The first signal ends the run in order, a second one at once; no child outlives this process either way.
const interrupted = new AbortController();
process.on("exit", killAll);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    process.exitCode = 128 + constants.signals[signal];
    if (interrupted.signal.aborted) process.exit();
    interrupted.abort();
  });
}

try {
  if (values.ui) {
    const { serveJobs } = await import("./serve.ts");
    await serveJobs(port, interrupted.signal);
  } else await compare(makeStorm(endpoints, loudest));
} catch (error) {
  if (interrupted.signal.aborted) console.log("\nInterrupted.");
  else if (error instanceof PortTaken) {
    console.error(error.message);
    process.exitCode = 2;
  } else throw error;
}

async function compare(storm: readonly Burst[]): Promise<void> {
  console.log(
    `${storm.length} endpoints, each of which allows 10 requests per second and 5 at once. The loudest gets ` +
      `${storm[0]!.visits.length} jobs, four in five get at most 5. Two worker processes with 50 slots each.\n` +
      "First with the policy, then the same storm on plain Graphile Worker.\n",
  );
  const governed = await runStorm("governed", storm, MOST_SECONDS, interrupted.signal);
  // without the policy it gets as long as it took with it
  const plain = await runStorm("plain", storm, Math.max(governed.seconds, 5), interrupted.signal);
  const measured = measure(governed);
  showTable(measured, measure(plain));
  const found = failures(measured);
  showVerdict(found);
  showNextSteps();
  const slow = whySlow(measured);
  if (slow) console.log(`\n${slow}`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
