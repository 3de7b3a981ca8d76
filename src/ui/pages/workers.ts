import { rowsOf } from "../../operate/view-rows.ts";
import { badge } from "../parts/badge.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import type { Page } from "./visit.ts";

interface Row {
  readonly poolId: string;
  readonly host: string | null;
  readonly pid: number | null;
  readonly slots: number;
  readonly tasks: readonly string[];
  readonly policies: readonly string[];
  readonly alive: boolean;
  readonly heartbeatAt: Date;
}

/** Worker pools that have this package. */
export const workers: Page = async ({ looking }) => {
  const found = await rowsOf<Row>(looking, "workers", "order by alive desc, host, pool_id");
  return {
    title: "Workers",
    body: table(
      "Worker pools with this package",
      found,
      [
        { title: "Alive", cell: ({ alive }) => (alive ? badge("yes", "good") : badge("no", "bad")) },
        { title: "Pool", cell: ({ poolId }) => poolId },
        { title: "Host", cell: ({ host, pid }) => (host === null ? null : `${host}, process ${pid}`) },
        { title: "Slots", isNumber: true, cell: ({ slots }) => grouped(slots) },
        { title: "Heartbeat", cell: ({ heartbeatAt }) => moment(heartbeatAt) },
        { title: "Policies", cell: ({ policies }) => policies.join(", ") },
        { title: "Tasks", cell: ({ tasks }) => tasks.join(", ") },
      ],
      "No worker pool is known: start a worker with the preset. Until one runs, nothing is admitted.",
    ),
  };
};
