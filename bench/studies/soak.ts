// npm run bench -- --soak: half an hour at a part of what --limits finds, while partitions come and go. What is to stay
// flat: latency, the size of the tables, dead rows, memory.
import { type Heard, openLoad } from "../harness/load.ts";
import { readTables } from "../harness/tables.ts";

export interface SoakSize {
  readonly minutes: number;
  readonly secondsPerMinute: number;
  readonly tenants: number;
  /** Of the knee. */
  readonly part: number;
}

export interface Minute extends Heard {
  /** MiB of tables and indexes. */
  readonly tables: number;
  readonly deadRows: number;
}

export async function measureSoak(knee: number, size: SoakSize): Promise<readonly Minute[]> {
  const load = await openLoad("governed");
  const minutes: Minute[] = [];
  for (let n = 0; n < size.minutes; n++) {
    const heard = await load.run({
      rate: knee * size.part,
      seconds: size.secondsPerMinute,
      tenants: size.tenants,
    });
    const { size: tables, deadRows } = await readTables(load.pool, [
      "dispatch_policy_internal",
      "graphile_worker",
    ]);
    minutes.push({ ...heard, tables, deadRows });
  }
  await load.drained();
  await load.close();
  return minutes;
}
