import { ArgumentError } from "../errors.ts";
import { CONTENT_TYPE } from "./text.ts";

/**
 * An HTTP handler for Prometheus to scrape: for Hono, Next.js, Deno, Bun and whatever else takes a `Request` and returns a
 * `Response`. Node's http server needs four lines, see docs/production.md#metrics.
 *
 * It answers GET and HEAD, whatever the path is. Put your own sign-in before it if others reach it: names of policies and
 * gates are among the labels, keys of partitions are not. If the database does not answer, it is a 503 that says why.
 *
 * @example
 * const utils = await makePolicyUtils({ preset });
 * const app = new Hono();
 * app.get("/metrics", (c) => metricsHandler(utils)(c.req.raw));
 */
export function metricsHandler(utils: {
  metrics(): Promise<string>;
}): (request: Pick<Request, "method">) => Promise<Response> {
  if (typeof utils?.metrics !== "function")
    throw new ArgumentError("metricsHandler: expected utils as makePolicyUtils returns them");
  return async ({ method }) => {
    if (method !== "GET" && method !== "HEAD")
      return new Response("Use GET\n", { status: 405, headers: { allow: "GET, HEAD" } });
    try {
      const text = await utils.metrics();
      return new Response(method === "HEAD" ? null : text, { headers: { "content-type": CONTENT_TYPE } });
    } catch (error) {
      return new Response(`${(error as Error).message}\n`, { status: 503 });
    }
  };
}
