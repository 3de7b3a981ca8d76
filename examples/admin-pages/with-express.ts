import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express from "express";
import { toNodeHandler } from "graphile-worker-dispatch-policy/ui";
import { type App, BASE, type Listening } from "./sign-in.ts";

export async function listen({ ui, signIn }: App): Promise<Listening> {
  const app = express();
  app.use(BASE, toNodeHandler(ui));
  app.get("/sign-in", (_request, response) => {
    response.type("html").send(signIn.form);
  });
  app.post("/sign-in", express.urlencoded({ extended: false }), (request, response) => {
    const cookie = signIn.enter(String(request.body?.password ?? ""));
    if (cookie) response.set("set-cookie", cookie).redirect(303, `${BASE}/`);
    else response.status(403).send("That is not the password.\n");
  });
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
