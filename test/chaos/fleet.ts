// The processes of a run: started, killed, stopped and started again.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../helpers/random.ts";
import { until } from "../helpers/until.ts";
import type { Judge, Suspect } from "./judge.ts";
import type { Command, News, Orders, Role } from "./messages.ts";
import { FIRST_RELEASE, type Release } from "./world.ts";

export const SIZES = { worker: 4, ticker: 3, enqueuer: 3, meddler: 1, outsider: 1 } as const;
const ENDS_WITHIN_MS = 8000;
const READY_WITHIN_MS = 5000;
/** How many of those that are started again while a deploy goes through still have the release before. */
const STILL_BEFORE = 0.3;

export class Member implements Suspect {
  readonly role: Role;
  readonly place: number;
  readonly release: Release;
  readonly child: ChildProcess;
  readonly gone: Promise<unknown>;
  readonly bornAt = Date.now();
  diedAt: number | undefined;
  longStops: { from: number; to: number | undefined }[] = [];
  readonly unrecorded: number[] = [];
  readonly buried: number[] = [];
  ready = false;
  stopped = false;
  openTicks = 0;
  /** It ends, and nobody takes its place. */
  leaves = false;
  /** A deploy has started another process in its place. */
  replaced = false;

  constructor({ role, place, release }: Orders, child: ChildProcess) {
    this.role = role;
    this.place = place;
    this.release = release;
    this.child = child;
    this.gone = once(child, "exit");
  }

  send(command: Command): void {
    if (this.child.connected) this.child.send(command, () => {}); // it may be dying
  }
}

export class Fleet {
  readonly #url: string;
  readonly #judge: Judge;
  readonly #random: Random;
  readonly members = new Set<Member>();
  /** Every process there ever was: a process's life is its place here. */
  readonly lives: Member[] = [];
  /** What processes met: lost connections, refused serializations … */
  readonly met: Record<string, number> = {};
  /** The ids by which outsiders locked jobs. */
  readonly outsiders: string[] = [];
  readonly #groups: boolean;
  #respawns = true;
  #release = FIRST_RELEASE;
  /** While a deploy goes through. */
  #before: Release | undefined;

  constructor(url: string, judge: Judge, random: Random, groups: boolean) {
    this.#groups = groups;
    this.#url = url;
    this.#judge = judge;
    this.#random = random;
  }

  async start(): Promise<void> {
    for (const [role, count] of Object.entries(SIZES)) {
      for (let place = 0; place < count; place++) this.add(role as Role, place);
    }
    await until("all are ready", () => [...this.members].every(({ ready }) => ready), { withinMs: 60_000 });
  }

  add(role: Role, place: number): Member {
    const seed = this.#random.below(2 ** 31);
    const isBefore = this.#before !== undefined && this.#random.chance(STILL_BEFORE);
    const release = isBefore ? this.#before! : this.#release;
    const life = this.lives.length;
    const orders: Orders = { role, place, life, url: this.#url, seed, release, groups: this.#groups };
    const child = fork(new URL(`${role}.ts`, import.meta.url), [JSON.stringify(orders)], {
      execArgv: [],
      stdio: ["ignore", "ignore", process.env.CHAOS_LOG ? "inherit" : "ignore", "ipc"],
      env: { ...process.env, NO_LOG_SUCCESS: "1" },
    });
    const member = new Member(orders, child);
    this.members.add(member);
    this.lives.push(member);
    child.on("message", (news) => this.#hear(member, news as News));
    child.on("error", () => {});
    child.on("exit", () => this.#exited(member));
    return member;
  }

  get release(): Release {
    return this.#release;
  }

  /** Processes that start from now on have this release. Until `deployed` is called some still have the one before. */
  deploys(release: Release): void {
    this.#before = this.#release;
    this.#release = release;
  }

  /** Those that do not have this release. */
  before(release: Release, roles: readonly Role[]): Member[] {
    return [...this.members].filter(
      (one) => roles.includes(one.role) && one.release !== release && !one.leaves && !one.replaced,
    );
  }

  deployed(): void {
    this.#before = undefined;
  }

  /** Starts another process in its place, and ends it gently once that one is ready, or has had its time. */
  async replace(member: Member): Promise<void> {
    member.replaced = true; // also if it dies before its end, or the next deploy begins before
    const next = this.add(member.role, member.place);
    for (let waited = 0; !next.ready && next.diedAt === undefined && waited < READY_WITHIN_MS; waited += 20)
      await delay(20);
    await this.end([member]);
  }

  of(...roles: Role[]): Member[] {
    return [...this.members].filter((one) => roles.includes(one.role) && one.ready && !one.leaves);
  }

  /** Whether a kill now would hit a running job or an open tick. */
  isBusy(member: Member): boolean {
    return member.openTicks > 0 || this.#judge.running(member) > 0;
  }

  kill(member: Member): void {
    member.child.kill("SIGKILL");
    this.#died(member);
  }

  stop(member: Member): void {
    member.stopped = true;
    member.child.kill("SIGSTOP");
  }

  /** It has been stopped for so long that others may soon count it as dead. */
  countsAsDead(member: Member): void {
    if (member.diedAt !== undefined) return;
    member.longStops.push({ from: Date.now(), to: undefined });
    this.#judge.lost(member);
  }

  goOn(member: Member): void {
    const last = member.longStops.at(-1);
    if (last && last.to === undefined) last.to = Date.now();
    member.stopped = false;
    member.child.kill("SIGCONT");
  }

  /** Ends these gently, and others do not take their places. */
  async end(members: readonly Member[]): Promise<void> {
    for (const member of members) {
      member.leaves = true;
      member.send({ end: true });
    }
    await Promise.all(members.map((member) => this.#ended(member)));
  }

  async #ended(member: Member): Promise<void> {
    if (!this.members.has(member)) return;
    const late = setTimeout(() => this.kill(member), ENDS_WITHIN_MS);
    await member.gone;
    clearTimeout(late);
  }

  /** Whatever state they are in. */
  async killAll(): Promise<void> {
    this.#respawns = false;
    const all = [...this.members];
    for (const member of all) {
      member.leaves = true;
      member.child.kill("SIGKILL");
    }
    await Promise.all(all.map(({ gone }) => gone));
  }

  #died(member: Member): void {
    if (member.diedAt !== undefined) return;
    member.diedAt = Date.now();
    this.members.delete(member);
    this.#judge.lost(member);
    if (this.#respawns && !member.leaves && !member.replaced && member.role !== "hoarder")
      this.add(member.role, member.place);
  }

  #exited(member: Member): void {
    if (member.diedAt === undefined && !member.leaves) this.#meets(`${member.role} ended by itself`);
    this.#died(member);
    this.members.delete(member);
  }

  #meets(what: string): void {
    this.met[what] = (this.met[what] ?? 0) + 1;
  }

  #hear(member: Member, news: News): void {
    if ("start" in news) {
      this.#judge.started(member, news.start);
      member.send({ noted: news.start.n });
    } else if ("end" in news) {
      this.#judge.ended(member, news.end);
      member.send({ noted: news.end.n });
    } else if ("unrecorded" in news) member.unrecorded.push(Date.now());
    else if ("pool" in news) this.outsiders.push(news.pool);
    else if ("swept" in news) this.#judge.swept(news.swept);
    else if ("requeued" in news) this.#judge.requeued++;
    else if ("tick" in news) member.openTicks += news.tick === "open" ? 1 : -1;
    else if ("intends" in news) this.#judge.intends(news.intends);
    else if ("newest" in news) this.#judge.newer(news.newest, news.older);
    else if ("callback" in news) this.#judge.grouped(news.callback, news.of);
    else if ("staged" in news) this.#judge.staged(news.staged);
    else if ("rolledBack" in news) this.#judge.rolledBack(news.rolledBack);
    else if ("off" in news) {
      this.#judge.switchedOff(news.off);
      member.send({ noted: news.n });
    } else if ("on" in news) this.#judge.switchedOn(news.on);
    else if ("met" in news) this.#meets(news.met);
    else if ("failure" in news) this.#judge.fail("failed", news.failure);
    else member.ready = true;
  }
}
