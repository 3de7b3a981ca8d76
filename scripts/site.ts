/**
 * Builds the site with the playground into site/dist: `npm run site`. It then serves it on this machine with
 * `npm run site -- --serve`, on the port 4173 or that of `--port`.
 */
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { buildSite } from "../site/build/build.ts";
import { serve } from "../site/build/serve.ts";

const { values } = parseArgs({
  options: { serve: { type: "boolean", default: false }, port: { type: "string", default: "4173" } },
});
const root = fileURLToPath(new URL("..", import.meta.url));
const out = fileURLToPath(new URL("../site/dist", import.meta.url));

await buildSite(root, out);
console.log(`The site is in ${out}`);
if (values.serve) {
  const server = await serve(out, Number(values.port));
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/playground.html`);
}
