import type { Figure } from "../db/rolling-up.ts";
import { METRICS, PREFIX } from "./catalogue.ts";

/** The media type of Prometheus's text format. */
export const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** Figures in Prometheus's text format, with the type and the meaning of each metric. */
export function asText(figures: readonly Figure[]): string {
  const byMetric = Map.groupBy(figures, ({ name }) => metricOf(name));
  return Object.entries(METRICS)
    .map(([metric, { type, help }]) => {
      const lines = (byMetric.get(metric) ?? []).map(lineOf);
      return [`# HELP ${PREFIX}${metric} ${help}`, `# TYPE ${PREFIX}${metric} ${type}`, ...lines]
        .map((line) => `${line}\n`)
        .join("");
    })
    .join("");
}

/** A summary's sum and count have names of their own. */
function metricOf(name: string): string {
  return METRICS[name] ? name : name.replace(/_(sum|count)$/, "");
}

function lineOf({ name, labels, value }: Figure): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
  return `${PREFIX}${name}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${value}`;
}

function escaped(text: string): string {
  return text.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n");
}
