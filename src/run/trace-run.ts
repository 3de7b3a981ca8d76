// The spans of a job's run: the run itself, and what the job waited for before it.
import type * as OpenTelemetry from "@opentelemetry/api";
import type { Attributes, Span } from "@opentelemetry/api";
import type { Job } from "graphile-worker";
import { errorText } from "../error-text.ts";
import type { DispatchPolicyHelpers } from "../policy/policy.ts";
import { ATTRIBUTES, OWN_ATTRIBUTES, PROCESS, SYSTEM, TRACER, WAITS } from "../trace-names.ts";
import { openTelemetry, spanContextOf, tracerOf } from "../traces.ts";
import { type Trace, traceOf } from "./fetched-job.ts";
import type { Outcome } from "./wrap-task.ts";

/** What a span says of a job that is about to run. */
export interface TracedRun {
  readonly job: Job;
  readonly own: DispatchPolicyHelpers;
  /** Its partition, if that is known without working it out. */
  readonly partition: string | undefined;
  /** How long it waited in Graphile Worker. Null: not known. */
  readonly lagMs: number | null;
}

/**
 * Runs a task within a span, if the application traces.
 *
 * The span begins a trace of its own, and links to the producer's span. As a child it would stretch that trace by the wait,
 * which may be hours. Waits are children of the run, although they began before it. Their times are the database's.
 */
export function traceRun<R extends TracedRun>(run: R, start: (run: R) => Promise<Outcome>): Promise<Outcome> {
  const api = openTelemetry();
  const tracer = api && tracerOf(api, TRACER);
  return api && tracer ? runInSpan(run, () => start(run), api, tracer) : start(run);
}

async function runInSpan(
  run: TracedRun,
  start: () => Promise<Outcome>,
  api: typeof OpenTelemetry,
  tracer: OpenTelemetry.Tracer,
): Promise<Outcome> {
  const trace = traceOf(run.job);
  const span = tracer.startSpan(`${PROCESS} ${run.job.task_identifier}`, {
    kind: api.SpanKind.CONSUMER,
    root: true,
    attributes: attributesOf(run),
    links: trace === null ? [] : [{ context: spanContextOf(trace.traceparent) }],
  });
  const inside = api.trace.setSpan(api.context.active(), span);
  if (span.isRecording())
    for (const { name, from, to } of waitsOf(run, trace))
      tracer.startSpan(name, { startTime: from, attributes: policyOf(run) }, inside).end(to);
  const outcome = await api.context.with(inside, start);
  if ("error" in outcome) {
    span.setStatus({ code: api.SpanStatusCode.ERROR, message: errorText(outcome.error) });
    record(span, outcome.error);
  }
  span.end();
  return outcome;
}

function attributesOf(run: TracedRun): Attributes {
  const { job, own, partition } = run;
  return {
    [ATTRIBUTES.system]: SYSTEM,
    [ATTRIBUTES.operationName]: PROCESS,
    [ATTRIBUTES.operationType]: PROCESS,
    [ATTRIBUTES.destination]: job.task_identifier,
    [ATTRIBUTES.messageId]: String(job.id),
    ...(partition === undefined ? {} : { [ATTRIBUTES.partition]: partition }),
    ...policyOf(run),
    ...(own.stagedId === "" ? {} : { [OWN_ATTRIBUTES.stagedId]: own.stagedId }),
    [OWN_ATTRIBUTES.attempt]: own.attempt,
  };
}

function policyOf({ own }: TracedRun) {
  return { [OWN_ATTRIBUTES.policy]: own.policy };
}

interface Wait {
  readonly name: string;
  readonly from: Date;
  readonly to: Date;
}

/** A retry's flag still has the times of the first attempt, so a retry only shows how long it was queued. */
function waitsOf({ job, own: { admittedAt }, lagMs }: TracedRun, trace: Trace | null): readonly Wait[] {
  if (admittedAt === null) return [];
  const waits: Wait[] = [];
  if (trace !== null && job.attempts === 1 && job.last_error === null) {
    const dueAt = earlier(trace.dueAt ?? trace.stagedAt, admittedAt);
    if (trace.dueAt !== null) waits.push({ name: WAITS.scheduled, from: trace.stagedAt, to: dueAt });
    waits.push({ name: WAITS.staged, from: dueAt, to: admittedAt });
  }
  if (lagMs !== null) {
    waits.push({ name: WAITS.queued, from: admittedAt, to: new Date(admittedAt.getTime() + lagMs) });
  }
  return waits;
}

function earlier(one: Date, other: Date): Date {
  return one < other ? one : other;
}

function record(span: Span, error: unknown): void {
  try {
    span.setAttribute(ATTRIBUTES.errorType, error instanceof Error ? error.name : "_OTHER");
    span.recordException(error instanceof Error ? error : errorText(error));
  } catch {
    span.recordException(errorText(error)); // it throws when it is read
  }
}
