// The tables of the study "scaling": plain Graphile Worker and governed side by side.
import type { SideName } from "../harness/sides.ts";
import type { Adding, Draining } from "../studies/scaling.ts";
import { columns, short } from "./report.ts";

export function workersTable({ plain, governed }: Record<SideName, readonly Draining[]>): string {
  const rows = plain.map((one, n) => {
    const other = governed[n]!;
    return [
      ...[String(one.workers), String(one.ms), String(one.jobs)],
      ...[short(one.pace), short(other.pace), (other.pace / one.pace).toFixed(2)],
      ...[String(one.connections), String(other.connections)],
    ];
  });
  const head = [
    ...["workers", "job ms", "jobs", "plain jobs/s", "governed jobs/s", "governed / plain"],
    ...["plain connections", "governed connections"],
  ];
  return columns([head, ...rows]);
}

export function producersTable({ plain, governed }: Record<SideName, readonly Adding[]>): string {
  const figures = ({ pace, p95, started, notifications }: Adding) => [
    ...[short(pace), short(p95)],
    notifications === "a worker listens" ? short(started) : "-",
  ];
  const rows = plain.map((one, n) => {
    const other = governed[n]!;
    return [
      ...[String(one.connections), one.notifications],
      ...[...figures(one), ...figures(other), (other.pace / one.pace).toFixed(2)],
    ];
  });
  const ofSide = (name: SideName) => [`${name} adds/s`, "p95 ms", "started/s"];
  const head = [
    ...["connections add", "notifications", ...ofSide("plain"), ...ofSide("governed")],
    "governed / plain",
  ];
  return columns([head, ...rows]);
}
