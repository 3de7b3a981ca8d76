import type { Figure } from "../db/rolling-up.ts";
import { ArgumentError } from "../errors.ts";
import { METRICS, PREFIX } from "./catalogue.ts";

/** What {@link observeMetrics} takes of a `Meter` of `@opentelemetry/api`. */
export interface FiguresMeter {
  createObservableGauge(name: string, options: { description: string }): object;
  createObservableCounter(name: string, options: { description: string }): object;
  addBatchObservableCallback(callback: Observer, instruments: object[]): void;
  removeBatchObservableCallback(callback: Observer, instruments: object[]): void;
}

type Observer = (result: {
  observe(instrument: never, value: number, labels: Record<string, string>): void;
}) => Promise<void>;

/**
 * Gives the metrics to OpenTelemetry, under the names that Prometheus has: docs/production.md#metrics lists them.
 *
 * Each collection is one question to the database, and none is asked before. Call it in one process: it tells the figures of the
 * whole database. The sum and the count of a summary are counters. If the database does not answer, the collection has the other
 * metrics of the application, and OpenTelemetry logs the error.
 *
 * @returns what ends it
 * @throws {ArgumentError} unless `meter` is a `Meter` of `@opentelemetry/api`
 * @example const end = observeMetrics(utils, meter); // metrics.getMeter("graphile-worker-dispatch-policy")
 */
export function observeMetrics(
  utils: { figures(): Promise<readonly Figure[]> },
  meter: FiguresMeter,
): () => void {
  if (typeof meter?.addBatchObservableCallback !== "function")
    throw new ArgumentError("observeMetrics: expected a Meter of @opentelemetry/api");
  const instruments = new Map(
    Object.entries(METRICS).flatMap(([metric, { type, help: description }]) => {
      const counter = (name: string) =>
        [name, meter.createObservableCounter(PREFIX + name, { description })] as const;
      if (type === "counter") return [counter(metric)];
      const gauge = [metric, meter.createObservableGauge(PREFIX + metric, { description })] as const;
      return type === "gauge" ? [gauge] : [gauge, counter(`${metric}_sum`), counter(`${metric}_count`)];
    }),
  );
  const observe: Observer = async (result) => {
    for (const { name, labels, value } of await utils.figures()) {
      const instrument = instruments.get(name);
      if (instrument) result.observe(instrument as never, value, labels);
    }
  };
  const all = [...instruments.values()];
  meter.addBatchObservableCallback(observe, all);
  return () => meter.removeBatchObservableCallback(observe, all);
}
