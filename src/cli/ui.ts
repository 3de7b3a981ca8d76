import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { openPool } from "../db/looking.ts";
import { createUi, toNodeHandler } from "../ui/ui.ts";
import { defineCommand, EXIT } from "./command.ts";
import { JSON_OPTION, whyOf } from "./input/options.ts";
import { placeOf } from "./input/place.ts";
import { say, sayJson, tell } from "./output/say.ts";

/** Only this machine reaches it, so it asks for no sign-in. */
const ADDRESS = "127.0.0.1";
const PORT = 4180;

/** What opens an address, by platform. */
const OPENERS: Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>> = {
  darwin: ["open"],
  win32: ["explorer.exe"],
};

/** Without a browser the pages are served all the same. */
function openInBrowser(url: string): void {
  const [program, ...args] = OPENERS[process.platform] ?? ["xdg-open"];
  const child = spawn(program, [...args, url], { stdio: "ignore", detached: true });
  child.on("error", ({ message }) => tell(`No browser was opened: ${message}`));
  child.unref();
}

/** The admin pages, for whoever sits at this machine. */
export const command = defineCommand({
  options: {
    port: { kind: "number", meaning: "the port on 127.0.0.1; 0: any that is free", default: String(PORT) },
    "read-only": { kind: "flag", meaning: "the pages change nothing", default: "off" },
    environment: { kind: "text", meaning: "its name, on each page and in the tab", default: "none" },
    open: { kind: "flag", meaning: "open them in the browser of this machine", default: "off" },
    by: { kind: "text", meaning: "who, for the audit", default: "the user of the operating system" },
    ...JSON_OPTION,
  },
  examples: [["--read-only", "look, and change nothing"]],
  about:
    "It serves them on this machine alone, until Ctrl-C. To let others in, mount them in your application: docs/ui.md.",
  async run(values) {
    const { connectionString, policySchema } = await placeOf(values);
    const { port = PORT } = values;
    const { by = "somebody at this machine" } = whyOf({ reason: undefined, by: values.by });
    const pool = openPool(connectionString);
    const ui = createUi({
      pool,
      schema: policySchema,
      environment: values.environment,
      publicOrigins: [`http://${ADDRESS}`], // under any other name a page of another site may have led a browser here
      authorize: () => ({ name: by, role: values["read-only"] ? "viewer" : "operator" }),
    });
    const server = http.createServer(toNodeHandler(ui)).listen(port, ADDRESS);
    try {
      await once(server, "listening");
      const url = `http://${ADDRESS}:${(server.address() as AddressInfo).port}/`;
      if (values.json) sayJson({ url });
      else say(url);
      if (values.open) openInBrowser(url);
      tell("Ctrl-C ends it.");
      await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
      return EXIT.done;
    } finally {
      server.close();
      server.closeAllConnections();
      await pool.end();
    }
  },
});
