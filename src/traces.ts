// OpenTelemetry's API, if the application has it.
import { createRequire } from "node:module";
import type * as OpenTelemetry from "@opentelemetry/api";
import { ownFile } from "./own-files.ts";

let found: typeof OpenTelemetry | null | undefined;

/**
 * The package `@opentelemetry/api`. Null: it is not installed.
 *
 * It is an optional peer. The danger: an import of a missing package would fail with the whole module. The cure: it is
 * required when it is first needed. All copies of the package share what an application registers in one of them.
 */
export function openTelemetry(): typeof OpenTelemetry | null {
  if (found === undefined) found = load();
  return found;
}

function load(): typeof OpenTelemetry | null {
  try {
    return createRequire(ownFile("package.json"))("@opentelemetry/api");
  } catch {
    return null;
  }
}

/** The trace context, in W3C's form, of the span in which the caller runs. Undefined: nobody traces it. */
export function currentTraceparent(): string | undefined {
  const api = openTelemetry();
  const span = api?.trace.getSpanContext(api.context.active());
  if (!api || !span || !api.isSpanContextValid(span)) return undefined;
  const { traceId, spanId, traceFlags } = span;
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, "0")}`;
}

/** A tracer of this name. Null: the application has set none up, so that a span would cost time and lead nowhere. */
export function tracerOf(api: typeof OpenTelemetry, name: string): OpenTelemetry.Tracer | null {
  const provider = api.trace.getTracerProvider();
  const isIdle = provider instanceof api.ProxyTracerProvider && !provider.getDelegateTracer(name);
  return isIdle ? null : provider.getTracer(name);
}

/** The span context of a trace context that was checked before. It is of another process. */
export function spanContextOf(traceparent: string): OpenTelemetry.SpanContext {
  const [, traceId, spanId, flags] = traceparent.split("-") as [string, string, string, string];
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}
