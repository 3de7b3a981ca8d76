// A calendar window: the calendar of a time zone says when what was spent returns.
import test, { type ExecutionContext } from "ava";
import { calendar, type Engine, engine, MONTH, sliding, type TestGate, throttle } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";

const NEW_YORK = "America/New_York";

/** A world with jobs of partition `a` under this gate. Its passes go at given times, of any order. */
async function world(t: ExecutionContext, gate: TestGate, jobs = 100): Promise<Engine> {
  const it = await engine(t, { batchSize: 1000, halfLifeSeconds: null, gates: [gate] });
  await it.stage(Array(jobs).fill("a"));
  await it.route();
  return it;
}

async function admittedAt(it: Engine, ...times: string[]): Promise<number[]> {
  const admitted = [];
  for (const time of times) admitted.push((await it.admit({ now: new Date(time) })).admitted);
  return admitted;
}

/** Adds a job that brings this gate, and admits what goes. */
async function admittedUnder(it: Engine, gate: TestGate, time: string): Promise<number> {
  const now = new Date(time);
  await it.stage("a", { gates: [gate] });
  await it.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [now]);
  return (await it.admit({ now })).admitted;
}

async function nextTime(it: Engine): Promise<string> {
  return (await it.partition("a")).denied_until.toISOString();
}

for (const [title, unit, times, ends] of [
  [
    "a day of 23 hours",
    `day ${NEW_YORK}`,
    ["2083-03-14T04:59:59.999Z", "2083-03-14T05:00:00Z", "2083-03-15T03:59:59.999Z", "2083-03-15T04:00:00Z"],
    "2083-03-16T04:00:00.000Z",
  ],
  [
    "a day of 25 hours",
    `day ${NEW_YORK}`,
    ["2083-11-07T03:59:59.999Z", "2083-11-07T04:00:00Z", "2083-11-08T04:59:59.999Z", "2083-11-08T05:00:00Z"],
    "2083-11-09T05:00:00.000Z",
  ],
  [
    "a day without midnight, and the day before",
    "day Africa/Cairo",
    ["2083-04-28T22:00:00Z", "2083-04-29T22:00:00Z", "2083-04-30T20:59:59Z", "2083-04-30T21:00:00Z"],
    "2083-05-01T21:00:00.000Z",
  ],
  [
    "a day that has two midnights begins with the second",
    "day America/Havana",
    ["2083-11-06T04:00:00Z", "2083-11-07T05:00:00Z", "2083-11-08T04:59:59Z", "2083-11-08T05:00:00Z"],
    "2083-11-09T05:00:00.000Z",
  ],
  [
    "hours of a zone half an hour beside",
    "hour Asia/Kolkata",
    ["2083-05-01T10:29:59Z", "2083-05-01T10:30:00Z", "2083-05-01T11:29:59Z", "2083-05-01T11:30:00Z"],
    "2083-05-01T12:30:00.000Z",
  ],
  [
    "minutes",
    "minute UTC",
    ["2083-05-01T10:29:59Z", "2083-05-01T10:30:00Z", "2083-05-01T10:30:59Z", "2083-05-01T10:31:00Z"],
    "2083-05-01T10:32:00.000Z",
  ],
  [
    "weeks begin on Monday, whatever the clocks did on Sunday",
    `week ${NEW_YORK}`,
    ["2083-03-08T04:59:59Z", "2083-03-08T05:00:00Z", "2083-03-15T03:59:59Z", "2083-03-15T04:00:00Z"],
    "2083-03-22T04:00:00.000Z",
  ],
  [
    "months",
    `month ${NEW_YORK}`,
    ["2083-02-01T05:00:00Z", "2083-03-01T05:00:00Z", "2083-04-01T03:59:59Z", "2083-04-01T04:00:00Z"],
    "2083-05-01T04:00:00.000Z",
  ],
] as const) {
  test(`${title}: the rate goes, then none until the boundary, to the instant`, async (t) => {
    const it = await world(t, calendar(3, unit));
    t.deepEqual(await admittedAt(it, times[0], times[1], times[2]), [3, 3, 0]);
    t.is(await nextTime(it), new Date(times[3]).toISOString());
    t.deepEqual(await admittedAt(it, times[3]), [3]);
    t.is(await nextTime(it), ends);
  });
}

test("an hour that the clocks repeat is two", async (t) => {
  const it = await world(t, calendar(1, `hour ${NEW_YORK}`));
  const times = [
    "2083-11-07T05:30:00Z",
    "2083-11-07T05:59:59Z",
    "2083-11-07T06:00:00Z",
    "2083-11-07T06:59:59Z",
  ];
  t.deepEqual(await admittedAt(it, ...times), [1, 0, 1, 0]);
});

test("the hour before the second midnight belongs to the day before", async (t) => {
  const it = await world(t, calendar(2, "day America/Havana"));
  t.deepEqual(await admittedAt(it, "2083-11-06T20:00:00Z", "2083-11-07T04:30:00Z"), [2, 0]);
  t.is(await nextTime(it), "2083-11-07T05:00:00.000Z");
});

test("boundaries are a session's time zone's business in no way", async (t) => {
  const it = await engine(t, { gates: [] });
  const rows = await inside(
    it.pool,
    `
    select count(distinct (b, e))::int as n from (values ('UTC'), ('Asia/Tokyo'), ('America/Sao_Paulo')) z (zone)
    cross join lateral set_config('TimeZone', z.zone, false)
    cross join unnest(array['minute', 'hour', 'day', 'week', 'month']) u (unit)
    cross join lateral (select
      extract(epoch from dispatch_policy_internal._calendar_begins_at(u.unit || ' America/New_York', '2083-03-14 12:34:56+00')) as b,
      extract(epoch from dispatch_policy_internal._calendar_ends_at(u.unit || ' America/New_York', '2083-03-14 12:34:56+00', 2)) as e) x`,
  );
  t.is(rows[0].n, 5);
});

/** Every quarter of an hour around changes of clocks, in zones of all sorts. */
test("windows follow each other without gap or overlap, and have each time in them", async (t) => {
  const it = await engine(t, { gates: [] });
  const rows = await inside(
    it.pool,
    `
    select c, x.at, b, e from unnest(array['day America/New_York', 'day America/Havana', 'day America/Sao_Paulo',
      'day Africa/Cairo', 'day Asia/Beirut', 'week America/Havana', 'month Asia/Amman', 'hour Asia/Kathmandu', 'day Pacific/Apia']) c
    cross join unnest(array[timestamptz '2011-12-01Z', '2018-10-01Z', '2024-03-01Z']) start
    cross join generate_series(start, start + interval '70 days', '15 minutes') x (at)
    cross join lateral (select dispatch_policy_internal._calendar_begins_at(c, x.at) as b, dispatch_policy_internal._calendar_ends_at(c, x.at, 0) as e) w
    where not (b <= x.at and x.at < e)
      or dispatch_policy_internal._calendar_begins_at(c, e) <> e
      or dispatch_policy_internal._calendar_ends_at(c, b, 0) <> e
      -- a day that a zone left out has no length
      or c <> 'day Pacific/Apia' and dispatch_policy_internal._calendar_ends_at(c, x.at, 1) <> dispatch_policy_internal._calendar_ends_at(c, e, 0)
    limit 5`,
  );
  t.deepEqual(rows, []);
});

test("many small spendings in a day count to the last, and their memory stays small", async (t) => {
  const it = await world(t, calendar(500, "day UTC"), 0);
  const entries = async () => (await it.limiter("throttle")).spent.length;
  let admitted = 0;
  for (let minute = 0; minute < 1440; minute += 7) {
    const now = new Date(Date.UTC(2083, 4, 1, 0, minute));
    await it.stage(["a", "a", "a"]);
    await it.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [now]);
    admitted += (await it.admit({ now })).admitted;
  }
  t.is(admitted, 500);
  t.true((await entries()) <= 66, `${await entries()}`);
  t.deepEqual(await admittedAt(it, "2083-05-01T23:59:59.999999Z", "2083-05-02T00:00:00Z"), [0, 118]);
});

test("a clock that goes back over the boundary gives neither window anything", async (t) => {
  const it = await world(t, calendar(3, "day UTC"));
  const passAt = async (time: string, budget: number | null) => {
    await it.table("policies").set({ admission_budget: budget });
    await it.table("partitions").set({ denied_until: "-infinity", blocked_on: null });
    return (await it.admit({ now: new Date(time) })).admitted;
  };
  t.is(await passAt("2083-05-01T23:59:59.500Z", null), 3);
  t.is(await passAt("2083-05-02T00:00:00Z", 1), 1);
  t.is(await passAt("2083-05-01T23:59:59.700Z", null), 0, "the first day knows its three");
  t.is(await passAt("2083-05-02T00:00:00.500Z", null), 2);
  t.is(await passAt("2083-05-03T00:00:00Z", null), 3);
});

test("a job dearer than the rate goes alone, at a window's beginning", async (t) => {
  const it = await engine(t, { gates: [calendar(5, "day UTC")] });
  await it.stage(["a", "a"], { cost: 7 });
  await it.stage("a", { cost: 1 });
  await it.route();
  const times = [
    "2083-05-01T10:00:00Z",
    "2083-05-01T23:59:59Z",
    "2083-05-02T00:00:00Z",
    "2083-05-02T12:00:00Z",
  ];
  t.deepEqual(await admittedAt(it, ...times, "2083-05-03T00:00:00Z"), [1, 0, 1, 0, 1]);
});

test("a rate below one is one job in a window, and as little of cheaper ones as it says", async (t) => {
  const it = await world(t, calendar(0.5, "day UTC"), 3);
  t.deepEqual(
    await admittedAt(it, "2083-05-01T10:00:00Z", "2083-05-01T11:00:00Z", "2083-05-02T00:00:00Z"),
    [1, 0, 1],
  );
  const cheap = await engine(t, { gates: [calendar(0.5, "day UTC")] });
  await cheap.stage(Array(9).fill("a"), { cost: 0.25 });
  await cheap.route();
  t.deepEqual(await admittedAt(cheap, "2083-05-01T10:00:00Z", "2083-05-02T00:00:00Z"), [2, 2]);
});

test("a rate of zero is looked at again after about a window", async (t) => {
  const it = await world(t, calendar(0, "month UTC"), 1);
  t.deepEqual(await admittedAt(it, "2083-05-01T10:00:00Z"), [0]);
  t.is(await nextTime(it), "2083-05-31T10:00:00.000Z");
});

test("what a definition's change leaves: another unit, another zone, a bucket, a sliding window, and back", async (t) => {
  const day = calendar(10, "day UTC");
  const it = await world(t, day, 0);
  const at = (gate: TestGate, time: string) => admittedUnder(it, gate, `2083-05-${time}Z`);
  await it.stage(Array(60).fill("a"));
  await it.table("policies").set({ admission_budget: 4 });
  t.is(await at(day, "01T10:00:00"), 4);
  t.is(await at(calendar(10, "hour UTC"), "01T10:30:00"), 4, "4 of this hour are known");
  t.is(await at(calendar(10, "hour UTC"), "01T11:00:00"), 4);
  t.is(await at(day, "01T12:00:00"), 0, "12 of this day, those before the hour among them");
  t.is(await at(calendar(15, "month UTC"), "01T13:00:00"), 3);
  t.is(await at(calendar(15, "month UTC"), "02T13:00:00"), 0, "the whole month's are known");
  t.is(await at(calendar(4, "day Pacific/Kiritimati"), "02T10:00:00"), 4, "a new day there, 14 hours ahead");
  t.is(
    await at(throttle(10, { per: 36_000 }), "02T10:00:00"),
    0,
    "the bucket begins with what the window had left",
  );
  t.is(await at(throttle(10, { per: 36_000 }), "02T12:00:00"), 2);
  t.is(await at(calendar(10, "day UTC"), "02T12:00:01"), 0, "what the bucket lacked counts as spent");
  t.is(await at(calendar(10, "day UTC"), "03T00:00:00"), 4);
  t.is(await at(sliding(5, { per: 60 }), "03T00:00:30"), 1, "4 are less than a minute old");
  t.is(await at(sliding(5, { per: 60 }), "03T00:02:00"), 4);
  t.is(await at(calendar(10, "day UTC"), "03T09:00:00"), 1, "9 went today");
});

test("an operator raises the rate within a window, and lowers it again", async (t) => {
  const it = await engine(t, { batchSize: 1000, gates: [calendar(3, MONTH)] });
  await it.stage(Array(50).fill("a"));
  t.is(await it.passes(), 3);
  const set = async (rate: number) => {
    await it.pool.query("select dispatch_policy.set_limit('p', 'throttle', $1)", [{ rate }]);
    return it.passes();
  };
  t.is(await set(7.5), 4, "at once the difference");
  t.is(await set(2), 0);
  t.is(await set(9), 2);
  await it.pool.query("select dispatch_policy.clear_limit('p', 'throttle')");
  t.is(await it.passes(), 0);
  await t.throwsAsync(it.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"per": 60}')`), {
    message: /throttle has no value 'per'; it has rate/,
  });
});

test("draws from a calendar window, and from one shared by partitions", async (t) => {
  const it = await engine(t, { gates: [calendar(3, `day ${NEW_YORK}`, { scope: "policy" })] });
  const take = async (cost: number, time: string) =>
    (
      await it.pool.query("select * from dispatch_policy.take('p', 'throttle', cost => $1, now => $2)", [
        cost,
        new Date(time),
      ])
    ).rows[0];
  t.true((await take(2, "2083-03-14T12:00:00Z")).taken);
  t.deepEqual(await take(2, "2083-03-14T13:00:00Z"), {
    taken: false,
    retry_at: new Date("2083-03-15T04:00:00Z"),
  });
  await it.stage(["a", "b", "c"]);
  await it.route();
  t.deepEqual(await admittedAt(it, "2083-03-14T14:00:00Z"), [1]);
  t.deepEqual((await it.limiter("throttle")).wake_at, new Date("2083-03-15T04:00:00Z"));
});

test("a sweep leaves those that wait for the boundary, and wakes those whose clock was ahead", async (t) => {
  const it = await engine(t, { gates: [calendar(1, MONTH)] });
  await it.stage(["a", "a"]);
  t.is(await it.passes(2), 1);
  const sweep = async () =>
    (await it.pool.query("select * from dispatch_policy_internal._sweep_partitions(clock_timestamp())"))
      .rows[0];
  t.deepEqual(await sweep(), { woken: 0, unblocked: 0 });
  await it.table("partitions").set({ denied_until: (its) => `${its} + interval '40 days'` });
  t.deepEqual(await sweep(), { woken: 0, unblocked: 1 });
});

test("a policy with a time zone that the server does not know is not declared, and the error names it", async (t) => {
  const it = await engine(t, { gates: [] });
  const definition = {
    ...{ name: "q", tasks: ["q"], version: 0 },
    gates: [{ name: "quota", constants: { calendar: "day Mars/Olympus_Mons" } }],
  };
  await t.throwsAsync(
    it.pool.query("select dispatch_policy_internal._declare_policy($1, 'h', '{}', now())", [definition]),
    {
      message:
        "dispatch_policy: policy 'q': gate 'quota': timeZone is 'Mars/Olympus_Mons', expected a zone of this server's pg_timezone_names: update its time zone data, or name another zone",
    },
  );
  await it.stage("a", { gates: [calendar(1, "day Mars/Olympus_Mons")] });
  await it.stage("b", { gates: [calendar(1, "day UTC")] });
  t.is(await it.passes(2), 1, "its arrival waits, and no other");
});
