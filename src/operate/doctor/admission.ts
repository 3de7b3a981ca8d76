import { counted } from "../../counted.ts";
import { argument, COMMAND, commandLine, literal, name } from "../quoted.ts";
import { ago, type Check, type Finding, firstLine, upTo } from "./finding.ts";
import { HAS_WAITING } from "./waiting.ts";

/** How many rows are counted, at most. */
const MOST = 1000;

/** Jobs that were staged before are still there: those that are not due, or that nobody has ticked. */
const policyOff: Check = async ({ ask, schema }) => {
  const rows = await ask<{ policy: string }>(
    `select p.name as policy from :DISPATCH_POLICY_INTERNAL.policies p
     where not p.enabled and ${HAS_WAITING} order by 1 limit 20`,
  );
  return rows.map(({ policy }) => ({
    id: "policy-off",
    policy,
    severity: "warning",
    sentence: `Policy "${policy}" is switched off while jobs wait for it, so no gate applies to them.`,
    mend: `select * from ${name(schema)}.switch_policy(${literal(policy)}, true);
-- or unstage its jobs: ${COMMAND} unstage --policy ${argument(policy)}`,
  }));
};

interface Paused {
  policy: string;
  who: string | null;
  why: string | null;
  until: Date | number | null;
  all: boolean;
}

/** A pause is what somebody wants. That all are paused may have been forgotten. */
const paused: Check = async ({ ask, schema }) => {
  const rows = await ask<Paused>(
    `select p.name as policy, p.paused_by as who, p.pause_reason as why, nullif(p.paused_until, 'infinity') as until,
       not exists (select from :DISPATCH_POLICY_INTERNAL.policies x where x.paused_until <= clock_timestamp()) as all
     from :DISPATCH_POLICY_INTERNAL.policies p
     where p.paused_until > clock_timestamp() order by 1 limit 20`,
  );
  const [first] = rows;
  const resume = (what: string) => `select * from ${name(schema)}.resume(${what});`;
  const said = ({ who, why, until }: Paused) =>
    `${who ? `, by ${who}` : ""}${why ? ` (${why})` : ""}${until instanceof Date ? `, until ${until.toISOString()}` : ""}`;
  if (first?.all)
    return [
      {
        id: "everything-paused",
        severity: "warning",
        sentence: `Every policy is paused, the first is "${first.policy}"${said(first)}.`,
        mend: resume('"all" => true'),
      },
    ];
  return rows.map(
    (row): Finding => ({
      id: "policy-paused",
      policy: row.policy,
      severity: "info",
      sentence: `Policy "${row.policy}" is paused${said(row)}.`,
      mend: resume(literal(row.policy)),
    }),
  );
};

/** What its jobs call keeps failing. */
const breakerOpen: Check = async ({ ask, schema }) => {
  const rows = await ask<{ policy: string; partitions: number; key: string }>(
    `select p.name as policy, count(*)::int as partitions, min(q.key) as key
     from :DISPATCH_POLICY_INTERNAL.policies p
     cross join lateral (
       select x.key from :DISPATCH_POLICY_INTERNAL.partitions x
       where x.policy_id = p.id and x.breaker_until > clock_timestamp() and x.breaker_until > '-infinity'
       limit ${MOST}) q
     where p.breaker_failures is not null group by 1 order by 1 limit 20`,
  );
  return rows.map(({ policy, partitions, key }) => ({
    id: "breaker-open",
    policy,
    severity: "warning",
    sentence: `The breaker of policy "${policy}" holds ${upTo(partitions, MOST, "partition")}, one is ${JSON.stringify(key)}.`,
    mend: `-- when the cause is mended:
select * from ${name(schema)}.resume(${literal(policy)}, partition => ${literal(key)});`,
  }));
};

/** A limit may be there before the first job of its key. But not if jobs have the same key in other letters. */
const misspelt: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; gate: string; key: string; meant: string }>(
    `select p.name as policy, o.gate, o.scope_key as key, m.scope_key as meant
     from :DISPATCH_POLICY_INTERNAL.overrides o
     join :DISPATCH_POLICY_INTERNAL.policies p on p.id = o.policy_id
     cross join lateral (
       select l.scope_key from :DISPATCH_POLICY_INTERNAL.limiters l
       where l.policy_id = o.policy_id and l.gate = o.gate and l.scope_key = any(
         :DISPATCH_POLICY_INTERNAL._same_texts(:DISPATCH_POLICY_INTERNAL._trimmed(o.scope_key), o.scope_key)) limit 1) m
     where o.scope_key is not null and not o.taken_back and o.until_at > clock_timestamp()
       and not exists (select from :DISPATCH_POLICY_INTERNAL.limiters l
         where l.policy_id = o.policy_id and l.gate = o.gate and l.scope_key = o.scope_key)
     order by 1, 2, 3 limit 20`,
  );
  return rows.map(({ policy, gate, key, meant }) => ({
    id: "misspelt-limit",
    policy,
    severity: "warning",
    sentence: `Somebody has set a limit of gate "${gate}" of policy "${policy}" for ${JSON.stringify(key)}, which no job has: they have ${JSON.stringify(meant)}.`,
    mend: `${commandLine("clear-limit", [], { policy, gate, key })}
# then set it for the other: ${commandLine("set-limit", [], { policy, gate, key: meant })} …`,
  }));
};

/**
 * Graphile Worker, or a function of the policy, refuses them. A job that another session has locked is quarantined as well,
 * but for a second at most.
 */
const quarantined: Check = async ({ ask, schema }) => {
  const [row] = await ask<{ jobs: number; id: string; error: string | null }>(
    `select (x.jobs + k.jobs) as jobs, coalesce(x.id, k.id) as id, s.error
     from (select count(*)::int as jobs, min(y.id) as id from (
       select s.id from :DISPATCH_POLICY_INTERNAL.staged_jobs s
       where s.retry_at is not null and s.waits_for is null and (s.failures > 4 or s.retry_at > clock_timestamp() + interval '1 second')
       limit ${MOST}) y) x
     cross join (select count(*)::int as jobs, min(y.staged_id) as id from (
       select k.staged_id from :DISPATCH_POLICY_INTERNAL.policies p
       join :DISPATCH_POLICY_INTERNAL.keyless_jobs k on k.policy = p.name and k.retry_at > '-infinity'
       limit ${MOST}) y) k
     join :DISPATCH_POLICY_INTERNAL.staged_jobs s on s.id = coalesce(x.id, k.id)`,
  );
  if (!row) return [];
  return [
    {
      id: "quarantined",
      severity: "warning",
      sentence: `${upTo(row.jobs, MOST, "job")} ${row.jobs === 1 ? "is" : "are"} quarantined, the first is ${row.id}: ${firstLine(row.error ?? "it was locked")}`,
      mend: `select id, task_identifier, error from ${name(schema)}.staged_jobs where error is not null;
-- correct what refuses them: they are tried again by themselves. Or remove them:
select * from ${name(schema)}.remove(ids => array[${row.id}]);`,
    },
  ];
};

/** The most jobs in flight that are looked at. */
const LOOKED_AT = 1000;

/** They may keep a gate full, and nothing else tells of them. */
const hungRun: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; jobs: number; ids: string[]; seconds: number; usual: number }>(
    `select p.name as policy, count(*)::int as jobs, (array_agg(f.job_id order by j.locked_at))[1:5] as ids,
       extract(epoch from clock_timestamp() - min(j.locked_at))::float8 as seconds, max(p.usual) as usual
     from (select x.job_id, x.policy_id from :DISPATCH_POLICY_INTERNAL.in_flight_jobs x order by x.job_id limit ${LOOKED_AT}) f
     join (   -- once for each policy, not for each job
       select x.id, x.name, :DISPATCH_POLICY_INTERNAL._usual_seconds(x.id) as usual
       from :DISPATCH_POLICY_INTERNAL.policies x offset 0) p on p.id = f.policy_id
     cross join lateral (
       select x.locked_at from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
     where :DISPATCH_POLICY_INTERNAL._is_long_run(extract(epoch from clock_timestamp() - j.locked_at)::float8, p.usual)
     group by 1 order by 4 desc limit 20`,
  );
  return rows.map(({ policy, jobs, ids, seconds, usual }) => ({
    id: "hung-run",
    policy,
    severity: "warning",
    sentence: `${counted(jobs, "job")} of policy "${policy}" ${jobs === 1 ? "has" : "have"} run far longer than its jobs do, the first for ${ago(seconds)} (job ${ids[0]}): 95 of 100 run ${usual < 1 ? "less than 1 s" : ago(usual)} at most.`,
    mend: `# if they hang: ${commandLine("cancel", ids, { yes: true })}
# and of one that does not heed that: ${commandLine("release-slots", ids.slice(0, 1), { yes: true })}`,
  }));
};

/** Those who wait for them see no error. */
const dropped: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; jobs: number }>(
    `select p.name as policy, sum(m.dropped - m.expired)::int as jobs
     from :DISPATCH_POLICY_INTERNAL.policies p
     join (
       select x.policy_id, x.dropped, x.expired from :DISPATCH_POLICY_INTERNAL.minutes x
       where x.minute > clock_timestamp() - interval '1 hour'
       union all
       select a.policy_id, a.dropped, a.expired from :DISPATCH_POLICY_INTERNAL.activity a) m on m.policy_id = p.id
     where p.definition #>> '{maxPending,whenFull}' in ('drop_oldest', 'drop_newest')
     group by 1 having sum(m.dropped - m.expired) > 0 order by 1 limit 20`,
  );
  return rows.map(({ policy, jobs }) => ({
    id: "dropped",
    policy,
    severity: "info",
    sentence: `Policy "${policy}" has dropped ${counted(jobs, "job")} within an hour, because as many waited as its maxPending allows.`,
    mend: '// raise maxPending or the limits, or let whenFull be "reject": then whoever adds a job learns of it',
  }));
};
/** As a sweep waits. */
const GRACE_SECONDS = 1;

/** A finished job's own process frees its slots within moments, so only those count that a second look finds too. */
const lostSlots: Check = async ({ ask }) => {
  const look = () =>
    ask<{ job_id: string; policy: string; slot: string }>(
      `select l.job_id, p.name as policy, concat_ws(' ', l.job_id, l.admission, l.attempt) as slot
       from :DISPATCH_POLICY_INTERNAL._lost_slots(array(
         select f.job_id from :DISPATCH_POLICY_INTERNAL.in_flight_jobs f order by f.job_id limit ${LOOKED_AT})) l
       join :DISPATCH_POLICY_INTERNAL.policies p on p.id = l.policy_id order by l.job_id`,
    );
  const suspects = new Set((await look()).map(({ slot }) => slot));
  if (suspects.size === 0) return [];
  await ask(`select pg_sleep(${GRACE_SECONDS})`);
  const lost = (await look()).filter(({ slot }) => suspects.has(slot));
  const [first] = lost;
  if (!first) return [];
  return [
    {
      id: "lost-slots",
      severity: "critical",
      sentence: `${counted(lost.length, "slot")} ${lost.length === 1 ? "is" : "are"} occupied by jobs that Graphile Worker has no more, the first is job ${first.job_id} of policy "${first.policy}".`,
      mend: "await utils.sweep(); // a live worker's leader does it by itself, every sweepInterval",
    },
  ];
};

/** Nothing is lost by it: a pass does what the small way could not, only later. So it would be slow, and nobody would see why. */
const smallWayFailed: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; reason: string; times: number }>(
    `select p.name as policy, r.reason, sum(r.times::bigint)::int as times
     from (
       select m.policy_id, m.left_to_pass from :DISPATCH_POLICY_INTERNAL.minutes m
       where m.minute > clock_timestamp() - interval '1 day' and m.left_to_pass <> '{}'
       union all
       select a.policy_id, a.left_to_pass from :DISPATCH_POLICY_INTERNAL.activity a where a.left_to_pass <> '{}'
     ) l
     join :DISPATCH_POLICY_INTERNAL.policies p on p.id = l.policy_id
     cross join lateral jsonb_each_text(l.left_to_pass) r (reason, times)
     where r.reason like 'failed: %' group by 1, 2 order by 1, 2 limit 20`,
  );
  return rows.map(({ policy, reason, times }) => ({
    id: "small-way-failed",
    policy,
    severity: "warning",
    sentence: `Policy "${policy}": ${counted(times, "admission")} took the long way within a day, because of an error in this package: ${reason.slice("failed: ".length)}.`,
    mend: "// please report it, with the line of the log that says so: a job was left to the next pass",
  }));
};

/** Those that find what is about one policy. */
export const admissionOfPolicies: readonly Check[] = [
  policyOff,
  paused,
  breakerOpen,
  misspelt,
  hungRun,
  dropped,
  smallWayFailed,
];
export const admissionChecks: readonly Check[] = [...admissionOfPolicies, quarantined, lostSlots];
