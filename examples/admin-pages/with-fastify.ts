import Fastify from "fastify";
import { toNodeHandler } from "graphile-worker-dispatch-policy/ui";
import { type App, BASE, type Listening } from "./sign-in.ts";

const FORM = "application/x-www-form-urlencoded";

export async function listen({ ui, signIn }: App): Promise<Listening> {
  const app = Fastify({ forceCloseConnections: true });
  const pages = toNodeHandler(ui);
  app.register(async (scope) => {
    scope.removeAllContentTypeParsers(); // the pages read their forms themselves
    scope.addContentTypeParser("*", (_request, _body, done) => done(null));
    for (const path of [BASE, `${BASE}/*`])
      scope.all(path, (request, reply) => {
        reply.hijack();
        return pages(request.raw, reply.raw);
      });
  });
  app.register(async (scope) => {
    scope.addContentTypeParser(FORM, { parseAs: "string" }, (_request, body, done) => {
      done(null, new URLSearchParams(String(body)));
    });
    scope.get("/sign-in", (_request, reply) => reply.type("text/html; charset=utf-8").send(signIn.form));
    scope.post<{ Body: URLSearchParams }>("/sign-in", (request, reply) => {
      const cookie = signIn.enter(request.body.get("password") ?? "");
      if (cookie) return reply.header("set-cookie", cookie).redirect(`${BASE}/`, 303);
      return reply.code(403).send("That is not the password.\n");
    });
  });
  return { origin: await app.listen({ host: "127.0.0.1", port: 0 }), close: () => app.close() };
}
