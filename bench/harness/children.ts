import { fork } from "node:child_process";
import { once } from "node:events";
import { atEnd } from "./closing.ts";

const ANSWERS_WITHIN_MS = 300_000;
const ENDS_WITHIN_MS = 10_000;

/** A process that answers questions, one at a time. It ends when this one does, even by `kill -9`. */
export interface Child {
  ask<Question, Answer>(question: Question): Promise<Answer>;
  stop(): Promise<void>;
  /** `kill -9`: it has no chance to end things well. */
  kill(): Promise<void>;
}

/** Starts a file of the folder `children`. */
export function startChild(file: string, orders: object): Child {
  const child = fork(new URL(`children/${file}`, import.meta.url), [JSON.stringify(orders)], {
    serialization: "advanced", // what is not a number stays that
  });
  const gone = once(child, "exit");

  const stop = atEnd(async () => {
    const late = setTimeout(() => child.kill("SIGKILL"), ENDS_WITHIN_MS);
    if (child.connected) child.disconnect();
    await gone;
    clearTimeout(late);
  });

  async function kill(): Promise<void> {
    child.kill("SIGKILL");
    await stop();
  }

  async function ask<Question, Answer>(question: Question): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const fail = (why: string) => reject(new Error(`${file} ${why}`));
    const late = setTimeout(fail, ANSWERS_WITHIN_MS, `gave no answer within ${ANSWERS_WITHIN_MS / 1000} s`);
    const exited = () => fail("ended before it answered");
    child.once("message", resolve as (message: unknown) => void).once("exit", exited);
    child.send(question as object, (error) => {
      if (error) fail(`was not asked: ${error.message}`);
    });
    return promise.finally(() => {
      clearTimeout(late);
      child.off("exit", exited);
    });
  }

  return { ask, stop, kill };
}
