// Firefox, driven by WebDriver BiDi: https://www.w3.org/TR/webdriver-bidi. The Firefox that Debian brings is too old for what
// Playwright asks of it (network.addDataCollector), and the few commands that a test needs are no reason for another library.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import type { Readable } from "node:stream";
import { findProgram } from "../helpers/program.ts";

const NAMES = ["firefox-esr", "firefox"];
const FOLDERS = ["/usr/bin", "/Applications/Firefox.app/Contents/MacOS"];
const EVENTS = ["log.entryAdded", "network.beforeRequestSent"];

/** FIREFOX, else the first on PATH, or where it usually is; undefined: not installed. */
export function findFirefox(): string | undefined {
  return process.env.FIREFOX || NAMES.map((name) => findProgram(name, FOLDERS)).find(Boolean);
}

interface Message {
  readonly id?: number;
  readonly type: "success" | "error" | "event";
  readonly method: string;
  readonly params: { readonly text: string; readonly request: { readonly url: string } };
  readonly result: unknown;
  readonly message: string;
}

export interface Tab {
  /** What the page asked for, by address. */
  readonly requests: readonly string[];
  /** Of the browser's console, with errors that nobody caught. */
  readonly messages: readonly string[];
  /** Of an expression that JSON can hold. */
  evaluate<T>(expression: string): Promise<T>;
  /** Clicks the middle of the first element of a selector, as a pointer would. */
  click(selector: string): Promise<void>;
}

/** Opens a page in a Firefox of its own. Both end with the test. */
export async function openInFirefox(
  t: { teardown(end: () => Promise<unknown>): void },
  { program, url }: { readonly program: string; readonly url: string },
): Promise<Tab> {
  const socket = await connect(t, program);
  const requests: string[] = [];
  const messages: string[] = [];
  const send = commandsOver(socket, ({ method, params }) => {
    if (method === "log.entryAdded") messages.push(params.text);
    else requests.push(params.request.url);
  });

  await send("session.new", { capabilities: {} });
  await send("session.subscribe", { events: EVENTS });
  const { context } = await send<{ context: string }>("browsingContext.create", { type: "tab" });
  await send("browsingContext.navigate", { context, url, wait: "complete" });

  async function evaluated<T>(expression: string): Promise<T> {
    const target = { context };
    const answer = await send<{ result: T; exceptionDetails?: { text: string } }>("script.evaluate", {
      ...{ expression, target, awaitPromise: true },
    });
    if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.text);
    return answer.result;
  }

  return {
    requests,
    messages,
    async evaluate(expression) {
      const { value } = await evaluated<{ value: string }>(`JSON.stringify(${expression})`);
      return JSON.parse(value);
    },
    async click(selector) {
      const it = `document.querySelector(${JSON.stringify(selector)})`;
      const { sharedId } = await evaluated<{ sharedId: string }>(
        `(${it}.scrollIntoView({ block: "center" }), ${it})`,
      );
      const move = { type: "pointerMove", x: 0, y: 0, origin: { type: "element", element: { sharedId } } };
      const actions = [move, { type: "pointerDown", button: 0 }, { type: "pointerUp", button: 0 }];
      await send("input.performActions", { context, actions: [{ type: "pointer", id: "mouse", actions }] });
    },
  };
}

/** Starts Firefox with a profile of its own, and connects to it. */
async function connect(t: Parameters<typeof openInFirefox>[0], program: string): Promise<WebSocket> {
  const profile = await mkdtemp(path.join(os.tmpdir(), "firefox-"));
  t.teardown(() => rm(profile, { recursive: true, force: true, maxRetries: 5 }));
  const args = [
    "--headless",
    "--no-remote",
    "--remote-debugging-port=0",
    "--profile",
    profile,
    "about:blank",
  ];
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  const gone = once(child, "close");
  t.teardown(async () => {
    child.kill();
    await gone;
  });
  const socket = new WebSocket(`${await addressOf(child)}/session`);
  await once(socket, "open");
  return socket;
}

/** Firefox says where it listens, and goes on saying things. */
function addressOf(child: ChildProcessByStdio<null, null, Readable>): Promise<string> {
  const said: string[] = [];
  return new Promise((resolve, reject) => {
    readline.createInterface({ input: child.stderr }).on("line", (line) => {
      said.push(line);
      const [, address] = /^WebDriver BiDi listening on (ws:\S+)$/.exec(line) ?? [];
      if (address) resolve(address);
    });
    child.once("error", reject);
    child.once("close", () => reject(new Error(`Firefox ended before it listened:\n${said.join("\n")}`)));
  });
}

/** Sends a command and resolves to its result. Events go to `hear`. */
function commandsOver(socket: WebSocket, hear: (event: Message) => void) {
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  socket.addEventListener("message", ({ data }) => {
    const message: Message = JSON.parse(String(data));
    if (message.type === "event") return hear(message);
    const answered = waiting.get(message.id ?? 0);
    if (message.type === "success") answered?.resolve(message.result);
    else answered?.reject(new Error(message.message));
  });
  socket.addEventListener("close", () => {
    for (const { reject } of waiting.values()) reject(new Error("Firefox has closed the connection"));
  });
  let id = 0;
  return async function send<Result>(method: string, params: object): Promise<Result> {
    const answer = Promise.withResolvers<unknown>();
    waiting.set(++id, answer);
    socket.send(JSON.stringify({ id, method, params }));
    const last = id;
    return (await answer.promise.finally(() => waiting.delete(last))) as Result;
  };
}
