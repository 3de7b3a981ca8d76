/** A process of its own: the endpoints. `POST /visit/ENDPOINT/JOB` is served or refused; `GET /report` tells all. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { SERVER } from "./limits.ts";
import { TokenBucket } from "./token-bucket.ts";

/** What the server saw of one request. `at` is in milliseconds since 1970. */
export interface Seen {
  endpoint: number;
  job: number;
  at: number;
  served: boolean;
}

export interface Report {
  seen: Seen[];
  /** Requests refused for coming too fast, and for being too many at once. */
  tooFast: number;
  tooMany: number;
  /** The most requests open at one endpoint, refused ones included. */
  highest: number;
}

const REFUSING_MS = 20;
const endpoints = new Map<number, Endpoint>();
const report: Report = { seen: [], tooFast: 0, tooMany: 0, highest: 0 };

class Endpoint {
  readonly #bucket = new TokenBucket(SERVER.bucket, SERVER.perSecond);
  #open = 0;
  #serving = 0;

  async visit(endpoint: number, job: number): Promise<200 | 429> {
    this.#open += 1;
    report.highest = Math.max(report.highest, this.#open);
    const served = this.#admits();
    report.seen.push({ endpoint, job, at: performance.timeOrigin + performance.now(), served });
    if (served) this.#serving += 1;
    await delay(served ? servingMs(job) : REFUSING_MS);
    if (served) this.#serving -= 1;
    this.#open -= 1;
    return served ? 200 : 429;
  }

  #admits(): boolean {
    if (this.#serving >= SERVER.atOnce) report.tooMany += 1;
    else if (this.#bucket.take()) return true;
    else report.tooFast += 1;
    return false;
  }
}

/** 60 to 200 ms, the same for a job in every run. */
function servingMs(job: number): number {
  return 60 + ((job * 37) % 141);
}

function endpointOf(number: number): Endpoint {
  const endpoint = endpoints.get(number) ?? new Endpoint();
  endpoints.set(number, endpoint);
  return endpoint;
}

const server = createServer(async (request, response) => {
  const [, verb, endpoint, job] = (request.url ?? "").split("/");
  if (verb === "report") {
    response.end(JSON.stringify(report));
    return;
  }
  response.statusCode = await endpointOf(Number(endpoint)).visit(Number(endpoint), Number(job));
  response.end();
});
server.keepAliveTimeout = 300_000;
server.listen(0, "127.0.0.1", () => process.send?.({ port: (server.address() as AddressInfo).port }));

process.on("disconnect", () => process.exit());
