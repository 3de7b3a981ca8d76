import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";

/** The alternate screen without a cursor, and back. */
const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
const HOME = "\x1b[H";
const END_OF_LINE = "\x1b[K";
const END_OF_SCREEN = "\x1b[J";
/** q, ctrl-c and ctrl-d: a raw terminal sends the last two as characters. */
const QUITS = ["q", "Q", "\x03", "\x04"];

/**
 * Shows frames on the alternate screen, one each `everyMs`, until q or ctrl-c. The terminal is as it was before when this
 * returns or throws, and also if the process exits.
 */
export async function onScreen(everyMs: number, frame: () => Promise<string>): Promise<void> {
  const { stdin, stdout } = process;
  const quit = new AbortController();
  const stop = () => quit.abort();
  const onKey = (keys: Buffer) => {
    if (QUITS.some((key) => keys.toString().includes(key))) stop();
  };
  const leave = () => stdout.write(LEAVE);
  process.once("exit", leave);
  for (const signal of SIGNALS) process.on(signal, stop);
  if (stdin.isTTY) stdin.setRawMode(true);
  stdin.on("data", onKey);
  stdout.write(ENTER);
  try {
    await showFrames(everyMs, frame, quit.signal);
  } finally {
    leave();
    process.off("exit", leave);
    for (const signal of SIGNALS) process.off(signal, stop);
    stdin.off("data", onKey);
    if (stdin.isTTY) stdin.setRawMode(false);
    stdin.pause();
  }
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

async function showFrames(everyMs: number, frame: () => Promise<string>, signal: AbortSignal): Promise<void> {
  const quit = once(signal, "abort");
  while (!signal.aborted) {
    const text = await Promise.race([frame(), quit]);
    if (typeof text !== "string") return;
    process.stdout.write(drawn(text));
    // a terminal of another size gets its frame at once; both waits reject when the signal ends them
    const resized = once(process.stdout, "resize", { signal }).catch(() => {});
    await Promise.race([resized, delay(everyMs, undefined, { signal }).catch(() => {})]);
  }
}

/** A frame over the last one. Only what fits is drawn, because a line too many would scroll. */
function drawn(text: string): string {
  const lines = text.split("\n").slice(0, process.stdout.rows);
  return HOME + lines.map((line) => line + END_OF_LINE).join("\n") + END_OF_SCREEN;
}
