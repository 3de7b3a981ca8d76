// What a run has opened, databases and processes, and how it gets rid of them however it ends.

const open: (() => Promise<void>)[] = [];

/** Has something closed at the end at the latest. Gives the function that closes it earlier; it is closed once. */
export function atEnd(close: () => Promise<unknown>): () => Promise<void> {
  const closeOnce = async () => {
    const place = open.indexOf(closeOnce);
    if (place < 0) return;
    open.splice(place, 1);
    await close();
  };
  open.push(closeOnce);
  return closeOnce;
}

/** Closes what is open, last first. */
export async function closeAll(): Promise<void> {
  for (let last = open.at(-1); last; last = open.at(-1)) {
    await last().catch((error) => console.error(`# While closing: ${(error as Error).message}`));
  }
}
