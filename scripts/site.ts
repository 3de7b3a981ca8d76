/** Builds the site with the playground into site/dist, and serves it on this machine if asked. USAGE has the options. */
import { fileURLToPath } from "node:url";
import { buildSite } from "../site/build/build.ts";
import { serve } from "../site/build/serve.ts";
import { PortTaken } from "./listen.ts";
import { readOptions, readPort } from "./read-options.ts";

const USAGE = `npm run site                             build the site into site/dist
npm run site -- --serve [--port 4173]   and serve it on this machine, until ctrl-c`;

const values = readOptions(
  { serve: { type: "boolean", default: false }, port: { type: "string", default: "4173" } },
  USAGE,
);
const port = readPort(values.port);
const root = fileURLToPath(new URL("..", import.meta.url));
const out = fileURLToPath(new URL("../site/dist", import.meta.url));

await buildSite(root, out);
console.log(`The site is in ${out}`);
if (values.serve) await serveSite();

async function serveSite(): Promise<void> {
  try {
    const { origin } = await serve(out, port);
    console.log(`Playground: ${origin}/playground.html`);
    console.log(`Docs:       ${origin}/`);
    console.log("Ctrl-C ends it.");
  } catch (error) {
    if (!(error instanceof PortTaken)) throw error;
    console.error(error.message);
    process.exitCode = 2;
  }
}
