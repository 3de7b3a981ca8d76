// Knows nothing of the engine: counts what workers say they started and ended.
import { once } from "node:events";
import net from "node:net";
import readline from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { orders, repeat, report } from "./world.ts";

const started = new Set<string>();
const ofPartition = new Map<string, number>();
let inAll = 0;
let ended: string[] = [];
let doubled: string[] = [];
let mostInAll = 0;
let mostOfAPartition = 0;

const server = net.createServer((worker) => {
  readline.createInterface(worker).on("line", (line) => {
    const [what, ...words] = line.split(" ");
    for (let i = 0; i < words.length; i += 2) {
      if (what === "+") start(words[i] as string, words[i + 1] as string);
      else end(words[i] as string, words[i + 1] as string);
    }
    if (what === "-") worker.write("seen\n");
  });
  worker.on("error", () => {});
});
server.listen(orders.socket);
await once(server, "listening");

await repeat(async () => {
  report({ seen: { ended, doubled, mostInAll, mostOfAPartition } });
  ended = [];
  doubled = [];
  await delay(100);
});
server.close();
process.disconnect();

function start(id: string, partition: string): void {
  if (started.has(id)) doubled.push(id);
  started.add(id);
  const of = (ofPartition.get(partition) ?? 0) + 1;
  ofPartition.set(partition, of);
  inAll++;
  mostInAll = Math.max(mostInAll, inAll);
  mostOfAPartition = Math.max(mostOfAPartition, of);
}

function end(id: string, partition: string): void {
  ended.push(id);
  inAll--;
  ofPartition.set(partition, (ofPartition.get(partition) as number) - 1);
}
