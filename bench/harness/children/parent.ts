// What every process here has: its orders, and its line to the process that started it.

export function readOrders<Orders>(): Orders {
  return JSON.parse(process.argv[2] ?? "{}") as Orders;
}

/** Answers what the parent asks. When the parent lets go, or is gone, `close` has a chance to end things well. */
export function serve<Question, Answer>(
  answer: (question: Question) => Promise<Answer>,
  close: () => Promise<unknown>,
): void {
  process.on("message", async (question) => {
    const found = await answer(question as Question);
    if (process.connected) process.send?.(found as object, onSent);
  });
  // The parent may let go before an answer is sent. Without this the failure would end the process before `close` runs.
  const onSent = () => {};
  process.on("disconnect", async () => {
    await close();
    process.exit();
  });
  process.on("SIGINT", () => {}); // of a terminal; the parent lets go of this process in its own time
}
