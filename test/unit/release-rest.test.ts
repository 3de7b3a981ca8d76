import test from "ava";
import { restUntil, type Waiting } from "../../src/run/release-rest.ts";

const FLUSHED = { flushedAt: 1000, mayRestUntil: 0, mayEnd: 10, isWaitedFor: false, hurriedAt: 0 };

const CASES: Record<string, { since: Partial<Waiting>; ended?: number; until: number }> = {
  "nobody waits": { since: {}, until: 1020 },
  "nobody waits, and somebody has come": { since: { hurriedAt: 1001 }, until: 0 },
  "nobody waits, and somebody had come before the flush": { since: { hurriedAt: 999 }, until: 1020 },
  "a gate is waited for": { since: { isWaitedFor: true }, until: 0 },
  "workers have enough to do": { since: { isWaitedFor: true, mayRestUntil: 1500 }, until: 1250 },
  "workers have enough to do, and somebody has come": {
    since: { isWaitedFor: true, mayRestUntil: 1500, hurriedAt: 1001 },
    until: 1050,
  },
  "workers have enough to do, and nine of ten jobs have ended": {
    since: { isWaitedFor: true, mayRestUntil: 1500 },
    ended: 9,
    until: 1250,
  },
  "workers had enough to do for ten jobs, which have ended": {
    since: { isWaitedFor: true, mayRestUntil: 1500 },
    ended: 10,
    until: 0,
  },
  "workers had enough to do for ten jobs, and nobody waits": {
    since: { mayRestUntil: 1500 },
    ended: 10,
    until: 1020,
  },
  "workers had enough to do": { since: { isWaitedFor: true, mayRestUntil: 1000 }, until: 0 },
  "workers had enough to do, and nobody waits": { since: { mayRestUntil: 1000 }, until: 1020 },
};

for (const [when, { since, ended = 0, until }] of Object.entries(CASES)) {
  test(`a flush after one at 1000 rests until ${until} when ${when}`, (t) => {
    t.is(restUntil({ ...FLUSHED, ...since }, ended), until);
  });
}
