import { counted } from "../../counted.ts";
import { argument, COMMAND, literal, name } from "../quoted.ts";
import { type Check, type Finding, firstLine, upTo } from "./finding.ts";
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
    severity: "warning",
    sentence: `The breaker of policy "${policy}" holds ${upTo(partitions, MOST, "partition")}, one is ${JSON.stringify(key)}.`,
    mend: `-- when the cause is mended:
select * from ${name(schema)}.resume(${literal(policy)}, partition => ${literal(key)});`,
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
    severity: "warning",
    sentence: `Policy "${policy}": ${counted(times, "admission")} took the long way within a day, because of an error in this package: ${reason.slice("failed: ".length)}.`,
    mend: "// please report it, with the line of the log that says so: a job was left to the next pass",
  }));
};

export const admissionChecks: readonly Check[] = [
  policyOff,
  paused,
  breakerOpen,
  quarantined,
  lostSlots,
  smallWayFailed,
];
