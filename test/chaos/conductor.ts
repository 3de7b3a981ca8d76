// Makes trouble, as its random numbers say.
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import type { Random } from "../helpers/random.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { type Fleet, type Member, SIZES } from "./fleet.ts";
import type { Role } from "./messages.ts";
import { LONG_STOP_MS, nextRelease, SHORT_STOP_MS } from "./world.ts";

const LONGEST_PAUSE_MS = 900;
/** How long it waits for the chosen process to be at work, so that the kill hits. */
const LOOKS_FOR_MS = 400;
/** Between two processes that a deploy replaces. */
const SHORTEST_STEP_MS = 50;
const LONGEST_STEP_MS = 1500;
/** What a worker asks before a job starts. */
const STARTS = "_start_attempt|_catch_unadmitted|_keeps_job";
const KILLED = [...repeated("worker", 5), ...repeated("ticker", 4), ...repeated("enqueuer", 2)];
const STOPPED: readonly Role[] = ["worker", "worker", "ticker", "enqueuer"];
/** Those that declare policies. */
const DEPLOYED: readonly Role[] = ["worker", "ticker", "enqueuer"];

export interface Stage {
  readonly fleet: Fleet;
  readonly random: Random;
  /** The server's, in a database of its own, for cutting others' connections. */
  readonly admin: pg.Pool;
  /** The database's. */
  readonly pool: pg.Pool;
  readonly restart: () => Promise<void>;
  readonly say: (what: string) => void;
}

/** What was done; `hits`: kills that hit a running job or an open tick. */
export type Deeds = Record<
  | "kills"
  | "hits"
  | "stops"
  | "longStops"
  | "restarts"
  | "cuts"
  | "cutStarts"
  | "starvations"
  | "hogs"
  | "floods"
  | "deploys",
  number
>;

export class Conductor {
  readonly deeds: Deeds = {
    ...{ kills: 0, hits: 0, stops: 0, longStops: 0 },
    ...{ restarts: 0, cuts: 0, cutStarts: 0, starvations: 0 },
    ...{ hogs: 0, floods: 0, deploys: 0 },
  };
  readonly #stage: Stage;
  /** What goes on while other trouble is made. */
  readonly #pending = new Set<Promise<void>>();
  #isOver = () => false;

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  /** Begins a deploy, so that a short run has one as well. Resolves once a worker has declared the other definition. */
  async begin(): Promise<void> {
    const { fleet } = this.#stage;
    await this.#deploy();
    const isDeclared = () => fleet.of("worker").some(({ release }) => release === fleet.release);
    await until("a worker has the other definition", isDeclared, { withinMs: 60_000 });
  }

  async play(isOver: () => boolean): Promise<void> {
    this.#isOver = isOver;
    const { random } = this.#stage;
    const programme = [
      ...repeated(this.#kill, 46),
      ...repeated(this.#stop, 12),
      ...repeated(this.#stopForLong, 2),
      ...repeated(this.#cut, 14),
      ...repeated(this.#cutStarts, 8),
      ...repeated(this.#starve, 4),
      ...repeated(this.#hog, 6),
      ...repeated(this.#flood, 2),
      ...repeated(this.#restart, 3),
      ...repeated(this.#deploy, 2),
    ];
    while (!isOver()) {
      await delay(random.between(0, LONGEST_PAUSE_MS));
      await random.pick(programme)();
    }
    await Promise.all(this.#pending);
  }

  readonly #kill = async (): Promise<void> => {
    const { fleet, random, say } = this.#stage;
    const role = random.pick(KILLED);
    if (fleet.of(role).length <= SIZES[role] / 2) return; // on a slow machine new ones take their time
    const member = await this.#choose([role], (one) => one.role === "enqueuer" || fleet.isBusy(one));
    if (!member) return;
    const hits = fleet.isBusy(member);
    this.deeds.kills++;
    if (hits) this.deeds.hits++;
    say(`kill ${nameOf(member)}${hits ? ", at work" : ""}`);
    fleet.kill(member);
  };

  readonly #stop = async (): Promise<void> => {
    const { fleet, random, say } = this.#stage;
    const member = await this.#choose([random.pick(STOPPED)], () => true);
    if (!member) return;
    const ms = random.between(50, SHORT_STOP_MS * 0.9);
    this.deeds.stops++;
    say(`stop ${nameOf(member)} for ${Math.round(ms)} ms`);
    fleet.stop(member);
    this.#meanwhile(async () => {
      await delay(ms);
      fleet.goOn(member);
    });
  };

  readonly #stopForLong = async (): Promise<void> => {
    const { fleet, random, say } = this.#stage;
    const member = await this.#choose(["worker"], (one) => fleet.isBusy(one));
    if (!member) return;
    const ms = random.between(LONG_STOP_MS, LONG_STOP_MS * 1.4);
    this.deeds.longStops++;
    say(`stop ${nameOf(member)} for ${Math.round(ms)} ms`);
    fleet.stop(member);
    this.#meanwhile(async () => {
      await delay(SHORT_STOP_MS);
      fleet.countsAsDead(member);
      await delay(ms - SHORT_STOP_MS);
      fleet.goOn(member);
    });
  };

  readonly #cut = async (): Promise<void> => {
    const { admin, random, say } = this.#stage;
    const many = random.chance(0.1);
    this.deeds.cuts++;
    say(many ? "cut half of the connections" : "cut a connection");
    const text = `select pg_terminate_backend(pid) from (
      select pid from pg_stat_activity where datname like 'test\\_%' order by md5(pid::text || $1)
      limit case when $2 then (select count(*) / 2 from pg_stat_activity where datname like 'test\\_%') else 1 end) x`;
    await admin.query(text, [random.unit(), many]).catch(() => {});
  };

  /** The connections that asked last whether a job may start: on many of them an answer is under way. */
  readonly #cutStarts = async (): Promise<void> => {
    const { admin, random, say } = this.#stage;
    this.deeds.cutStarts++;
    say("cut connections that start jobs");
    const text = `select pg_terminate_backend(pid) from (
      select pid from pg_stat_activity where datname like 'test\\_%' and query ~ $2
      order by state = 'active' desc, md5(pid::text || $1) limit 3) x`;
    await admin.query(text, [random.unit(), STARTS]).catch(() => {});
  };

  /** Nobody can write a heartbeat meanwhile. It is over before a worker may count as dead. */
  readonly #starve = async (): Promise<void> => {
    const { pool, random, say } = this.#stage;
    const ms = random.between(300, SHORT_STOP_MS * 0.9);
    this.deeds.starvations++;
    say(`lock what heartbeats write for ${Math.round(ms)} ms`);
    this.#meanwhile(async () => {
      const holder = await pool.connect().catch(() => null);
      if (!holder) return;
      const locks = holder
        .query("set idle_in_transaction_session_timeout = '3 s'; begin")
        .then(() => table(holder, "workers").lock())
        .then(() => delay(ms));
      await locks.catch(() => {}); // it was cut
      holder.release(true);
    });
  };

  readonly #hog = async (): Promise<void> => {
    const { random, say } = this.#stage;
    const member = await this.#choose(["worker"], () => true);
    if (!member) return;
    const ms = random.between(100, 1500);
    this.deeds.hogs++;
    say(`take the pool of ${nameOf(member)} for ${Math.round(ms)} ms`);
    member.send({ hog: ms });
  };

  readonly #flood = async (): Promise<void> => {
    const { fleet, random, say } = this.#stage;
    const ms = random.between(500, 1500);
    this.deeds.floods++;
    say(`take all connections of the server for ${Math.round(ms)} ms`);
    const hoarder = fleet.add("hoarder", 0);
    this.#meanwhile(async () => {
      for (let waited = 0; !hoarder.ready && waited < 5000; waited += 20) await delay(20);
      await delay(ms);
      await fleet.end([hoarder]);
    });
  };

  readonly #restart = async (): Promise<void> => {
    this.deeds.restarts++;
    this.#stage.say("restart the server");
    await this.#stage.restart();
  };

  /**
   * Replaces one process after the other by one with the other definition, of a higher version, the same or a lower one. Meanwhile
   * those that are killed may come back with the release before. The next deploy may begin before the last one is through.
   */
  readonly #deploy = async (): Promise<void> => {
    const { fleet, random, say } = this.#stage;
    const release = nextRelease(fleet.release, random.pick([1, 1, 0, -1]));
    const stepMs = random.between(SHORTEST_STEP_MS, LONGEST_STEP_MS);
    this.deeds.deploys++;
    say(`deploy the ${release.limits} definition, version ${release.version}`);
    fleet.deploys(release);
    this.#meanwhile(async () => {
      for (let old = fleet.before(release, DEPLOYED); old.length > 0; old = fleet.before(release, DEPLOYED)) {
        const ready = old.find((one) => one.ready);
        if (ready) await fleet.replace(ready);
        await delay(stepMs);
        if (fleet.release !== release || this.#isOver()) return; // the next deploy goes on
      }
      fleet.deployed();
      say(`deployed the ${release.limits} definition, version ${release.version}`);
    });
  };

  /** A process that is not in trouble yet; if one can be found soon, one of which `wanted` holds. */
  async #choose(roles: Role[], wanted: (member: Member) => boolean): Promise<Member | undefined> {
    const { fleet, random } = this.#stage;
    const until = performance.now() + LOOKS_FOR_MS;
    for (;;) {
      const free = fleet.of(...roles).filter(({ stopped }) => !stopped);
      const found = free.filter(wanted);
      if (found.length > 0) return random.pick(found);
      if (performance.now() > until) return free.length > 0 ? random.pick(free) : undefined;
      await delay(5);
    }
  }

  #meanwhile(act: () => Promise<void>): void {
    const pending = act().finally(() => this.#pending.delete(pending));
    this.#pending.add(pending);
  }
}

function repeated<const T>(one: T, times: number): T[] {
  return Array<T>(times).fill(one);
}

function nameOf({ role, place, child }: Member): string {
  return `${role} ${place} (${child.pid})`;
}
