import { parameters } from "./parameters.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

/** How long jobs waited, as the histories of their policies say. */
export function waits({ schema, rowsAsIs }: Statements) {
  return {
    /** How long the jobs that ended since waited for each gate of their policy, and for which keys of it. */
    gateWaits: <Row>(client: Queryable, policy: string, since: Date) =>
      rowsAsIs<Row>(client, `select * from ${schema}.gate_waits(${parameters("text", "time")})`, [
        policy,
        since,
      ]),

    /** How long its jobs waited, in all and by partition: of one, or of the worst. */
    partitionWaits: <Row>(
      client: Queryable,
      policy: string,
      since: Date,
      minutes: number,
      partition: string | null,
    ) =>
      rowsAsIs<Row>(
        client,
        `select * from ${schema}.partition_waits(${parameters("text", "time", "interval", "text")})`,
        [policy, since, interval(minutes * 60_000), partition],
      ),
  };
}
