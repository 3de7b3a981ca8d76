import { parameter, parameters } from "./parameters.ts";
import type { Figure } from "./rolling-up.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

/** Which part of the partitions of a context is asked for. */
export interface PageOfContext {
  /** Null: from the beginning. */
  readonly after: string | null;
  readonly most: number;
  /** How many partitions are looked at, those of others among them. */
  readonly mostRead: number;
}

/**
 * Sums and lists over views and by the SQL functions of the room `pages`, for pages that show the state of everything. They
 * count no jobs beyond a given number. It is long because it is a list: a method a statement.
 */
export function overview({ schema, internal, rowsAsIs }: Statements) {
  return {
    /** How many jobs each policy has admitted since its partitions were made. */
    admittedTotals: (client: Queryable) =>
      rowsAsIs<{ policy: string; admitted: number }>(
        client,
        `select policy, pg_catalog.sum(admitted_total)::pg_catalog.float8 as admitted
         from ${schema}.partitions group by policy`,
      ),

    /** The payload of a job in staging as a text: as a value, integers beyond 2^53 would lose digits. */
    payloadText: async (client: Queryable, id: string) => {
      const given = parameter(1, "id");
      const [row] = await rowsAsIs<{ payload: string }>(
        client,
        `select payload::pg_catalog.text as payload from ${schema}.staged_jobs where id = ${given} or job_id = ${given}`,
        [id],
      );
      return row?.payload;
    },

    now: async (client: Queryable) => {
      const [row] = await rowsAsIs<{ now: Date }>(
        client,
        "select pg_catalog.statement_timestamp() as now",
        [],
      );
      return (row as { now: Date }).now;
    },

    /** The rows of the audit that a form has left, or a step of it, in order. Each has the ids of its jobs: the first will do. */
    formRows: (client: Queryable, from: string, below: string) =>
      rowsAsIs<object>(
        client,
        `select id, at, verb, policy, partition, gate, scope_key, reason, by, matched, changed, form,
           case when pg_catalog.row_number() over (order by id) = 1 then detail else detail operator(pg_catalog.-) 'ids'::pg_catalog.text end as detail
         from ${schema}.audit where form operator(pg_catalog.>=) ${parameter(1, "text")} and form operator(pg_catalog.<) ${parameter(2, "text")} order by id`,
        [from, below],
      ),

    /**
     * How many rows of a view there are. Its clause has a limit: to count all of a million takes seconds. It has no order:
     * PostgreSQL would sort the million first.
     */
    countRows: async (client: Queryable, view: string, clause: string, values: unknown[] = []) => {
      const [row] = await rowsAsIs<{ rows: number }>(
        client,
        `select pg_catalog.count(*)::pg_catalog.int4 as rows from (select from ${schema}.${view} ${clause}) counted`,
        values,
      );
      return row?.rows ?? 0;
    },

    /**
     * Rows of the view `staged_jobs` in the columns of `jobs`, all but the payload, which a role that only looks may not read.
     * Asked for by themselves: beside Graphile Worker's in `jobs`, a million of them are sorted before the first is known.
     */
    stagedPage: <T>(client: Queryable, where: string, values: unknown[]) =>
      rowsAsIs<T>(
        client,
        `select id, 'staged' as state, task_identifier, policy, partition, queue_name, priority, run_at, 0 as attempts,
           coalesce(max_attempts, 25) as max_attempts, error as last_error, created_at, job_key as key, id as staged_id, failures, retry_at
         from ${schema}.staged_jobs ${where}`,
        values,
      ),

    /** Graphile Worker's of the view `jobs`, whose order by id an index has. */
    workerJobs: (client: Queryable, where: string, values: unknown[]) =>
      rowsAsIs<object>(client, `select * from ${internal}.worker_jobs ${where}`, values),

    /**
     * The same, those that were added last first, without the rest of their errors, which have the stacks of JavaScript: a thousand
     * are some megabytes. The offset keeps PostgreSQL from sorting all that match: it expects few.
     */
    newestJobs: (client: Queryable, where: string, values: unknown[]) =>
      rowsAsIs<object>(
        client,
        `select id, state, task_identifier, policy, partition, run_at, attempts, max_attempts, staged_id, failed_at, error_pattern,
           pg_catalog.left(pg_catalog.split_part(last_error, E'\\n', 1), 300) as last_error
         from (select * from ${internal}.worker_jobs order by id desc offset 0) newest ${where}`,
        values,
      ),

    /**
     * How many jobs wait in staging, parked ones among them: the numbers that are kept by policy and by partition. Null: there is no
     * such policy or partition yet.
     */
    keptCount: async (client: Queryable, policy?: string, partition?: string) => {
      const [POLICY, PARTITION] = [parameter(1, "text"), parameter(2, "text")];
      const ofPolicies = `select policy, staged from ${schema}.policies
        union all select policy, staged from ${schema}.undeclared_policies`;
      const kept =
        partition === undefined
          ? `(${ofPolicies}) kept where (${POLICY} is null or policy = ${POLICY}) and ${PARTITION} is null`
          : `${schema}.partitions where policy = ${POLICY} and partition = ${PARTITION}`;
      const [row] = await rowsAsIs<{ staged: number | null }>(
        client,
        `select pg_catalog.sum(staged)::pg_catalog.float8 as staged from ${kept}`,
        [policy ?? null, partition ?? null],
      );
      return row?.staged ?? null;
    },

    /** How many of the first parked jobs there are, at most so many, and how many of these match. An index has them. */
    parkedCount: async (client: Queryable, most: number, policy?: string, partition?: string) => {
      const [POLICY, PARTITION] = [parameter(2, "text"), parameter(3, "text")];
      const [row] = await rowsAsIs<{ found: number; matching: number }>(
        client,
        `select pg_catalog.count(*)::pg_catalog.int4 as found, pg_catalog.count(*) filter (
             where (${POLICY} is null or policy = ${POLICY}) and (${PARTITION} is null or partition = ${PARTITION})
           )::pg_catalog.int4 as matching
         from (select policy, partition from ${schema}.staged_jobs where job_id is not null limit ${parameter(1, "int")}) parked`,
        [most, policy ?? null, partition ?? null],
      );
      return row ?? { found: 0, matching: 0 };
    },

    /** Of the tasks that policies govern, and of those that live worker pools run. */
    taskNames: async (client: Queryable) => {
      const rows = await rowsAsIs<{ task: string }>(
        client,
        `select pg_catalog.jsonb_array_elements_text(definition -> 'tasks') as task from ${schema}.policies
         union select pg_catalog.unnest(tasks) from ${schema}.workers where alive order by task`,
        [],
      );
      return rows.map(({ task }) => task);
    },

    /** The least and the greatest id that a partition and its lanes may have in views, also before its first job has come. */
    partitionIds: async (client: Queryable, policy: string, partition: string) => {
      const [row] = await rowsAsIs<{ ids: string[] }>(
        client,
        `select array[${internal}._marked_id(i.mark, '0'), ${internal}._marked_id(i.mark, 'f')] as ids
         from (select ${internal}._mark_of(${internal}._partition_id(${parameters("text", "text")})) as mark) i`,
        [policy, partition],
      );
      return (row as { ids: string[] }).ids;
    },

    /**
     * The partitions of the jobs that have been due for longest, those of the oldest job first. It looks at a thousand jobs, or as
     * many as there are tasks: an index has those of a task in this order.
     */
    longestWaiting: (client: Queryable, most: number) =>
      rowsAsIs<{ policy: string; partition: string }>(
        client,
        `with task as materialized (
           select pg_catalog.jsonb_array_elements_text(definition -> 'tasks') as name from ${schema}.policies
         )
         select s.policy, s.partition from task t
         cross join lateral (
           select policy, partition, greatest(run_at, created_at) as since from ${schema}.staged_jobs
           where task_identifier = t.name order by greatest(run_at, created_at)
           limit (select 1000 / pg_catalog.count(*) + 1 from task)
         ) s
         where s.since <= pg_catalog.statement_timestamp() and s.policy is not null and s.partition is not null
         group by s.policy, s.partition order by pg_catalog.min(s.since) limit ${parameter(1, "int")}`,
        [most],
      ),

    /**
     * Rows of the view `partitions`, which first are found by their ids alone: with all columns, it takes several times as long to sort
     * 100,000.
     */
    partitionsPage: (client: Queryable, where: string, order: string, most: number, values: unknown[]) =>
      rowsAsIs<object>(
        client,
        `select * from ${schema}.partitions where id = any(array(
           select id from ${schema}.partitions ${where} order by ${order} limit ${parameter(values.length + 1, "int")}
         )) order by ${order}`,
        [...values, most],
      ),

    /** Rows of the view `partitions`: of a policy those that wait with the most staged jobs, or that were admitted most. */
    topPartitions: (client: Queryable, policy: string, waiting: number, admitted: number) =>
      rowsAsIs<object>(
        client,
        `select v.*, t.waits, t.admitted_most from ${schema}.top_partitions(${parameters("text", "int", "int")}) t join ${schema}.partitions v on v.id = t.id`,
        [policy, waiting, admitted],
      ),

    /** How many partitions have staged jobs, by what they wait for. */
    partitionsByReason: (client: Queryable, policy: string | undefined) =>
      rowsAsIs<{ reason: string; partitions: number }>(
        client,
        `select * from ${schema}.partitions_by_reason(${parameter(1, "text")})`,
        [policy ?? null],
      ),

    /** How full the narrowest cap of each of these partitions is. */
    partitionCaps: (client: Queryable, ids: readonly string[]) =>
      rowsAsIs<object>(client, `select * from ${schema}.partition_caps(${parameter(1, "uuids")})`, [ids]),

    /** Whether the context of a partition has these values. */
    hasContext: async (client: Queryable, policy: string | null, partition: string | null, where: object) => {
      const [row] = await rowsAsIs<{ has: boolean }>(
        client,
        `select ${schema}.has_context(${parameters("text", "text", "jsonb")}) as has`,
        [policy, partition, JSON.stringify(where)],
      );
      return row?.has === true;
    },

    /** The keys of partitions whose context has these values, page by page. */
    partitionsWith: async (client: Queryable, policy: string, where: object, page: PageOfContext) => {
      const { after, most, mostRead } = page;
      type Row = { keys: string[]; goes_on: string | null; read: number };
      const [row] = await rowsAsIs<Row>(
        client,
        `select * from ${schema}.partitions_with(${parameters("text", "jsonb", "uuid", "int", "int")})`,
        [policy, JSON.stringify(where), after, most, mostRead],
      );
      const { keys, goes_on: goesOn, read } = row as Row;
      return { keys, goesOn, read };
    },

    /** The figures of these names, of all policies or of one. */
    figuresNamed: <Name extends string>(client: Queryable, names: readonly Name[], policy?: string) =>
      rowsAsIs<Figure & { readonly name: Name }>(
        client,
        `select name, labels, value
         from ${schema}.${policy === undefined ? `metrics(${parameter(1, "texts")})` : `policy_metrics(${parameter(2, "text")}, ${parameter(1, "texts")})`}`,
        policy === undefined ? [names] : [names, policy],
      ),

    /** What a policy did, in steps of so many minutes. Null: all policies together. */
    minutesInSteps: <Row>(client: Queryable, policy: string | null, since: Date, minutes: number) =>
      rowsAsIs<Row>(
        client,
        `select * from ${schema}.minutes_in_steps(${parameters("text", "time", "interval")})`,
        [policy, since, interval(minutes * 60_000)],
      ),

    /** The caps of a policy's adaptive gates over time, in the same steps. */
    adaptiveCaps: <Row>(client: Queryable, policy: string, since: Date, minutes: number) =>
      rowsAsIs<Row>(
        client,
        `select * from ${schema}.adaptive_caps(${parameters("text", "time", "interval")})`,
        [policy, since, interval(minutes * 60_000)],
      ),

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
