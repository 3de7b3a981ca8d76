import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import type { Ui } from "./create-ui.ts";

/**
 * The pages as a request listener of Node's http server, and so for Express and the like. Express strips the path below
 * which it mounts a handler: give `createUi` the same path as `basePath`.
 *
 * A body that the host has parsed already is encoded once more, as a form.
 *
 * @example app.use("/jobs", toNodeHandler(createUi({ pool, authorize, basePath: "/jobs" })));
 */
export function toNodeHandler(ui: Ui): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const answer = await ui(asRequest(request)).catch(
      (error: Error) => new Response(`${error.message}\n`, { status: 500 }),
    );
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body)
      await pipeline(Readable.fromWeb(answer.body as ReadableStream), response).catch(() => {});
    else response.end();
  };
}

type Parsed = IncomingMessage & { originalUrl?: string; body?: unknown };

function asRequest(request: Parsed): Request {
  const { method = "GET", originalUrl, url = "/", headers, body } = request;
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith(":")) continue;
    for (const one of [value].flat()) if (one !== undefined) given.append(name, one);
  }
  const hasBody = method !== "GET" && method !== "HEAD";
  const stream = isParsed(body)
    ? new URLSearchParams(body as Record<string, string>).toString()
    : (Readable.toWeb(request) as ReadableStream);
  return new Request(new URL(originalUrl ?? url, `http://${headers.host ?? "localhost"}`), {
    method,
    headers: given,
    ...(hasBody ? { body: stream, duplex: "half" } : {}),
  } as RequestInit);
}

function isParsed(body: unknown): boolean {
  return typeof body === "object" && body !== null;
}
