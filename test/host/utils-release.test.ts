// Utils whose server stops while they are released.
import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import test from "ava";
import { makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

test("the end of a session that arrives while utils are released ends no process", async (t) => {
  const { url, pool } = await testDatabase(t);
  const to = new URL(url);
  const { port, hostname } = to;
  const pairs: [net.Socket, net.Socket][] = [];
  const proxy = net.createServer((client) => {
    const server = net.connect(Number(port), hostname);
    pairs.push([client.pipe(server), server]);
    server.pipe(client);
    for (const socket of [client, server]) socket.on("error", () => {});
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  t.teardown(() => proxy.close());
  to.port = String((proxy.address() as AddressInfo).port);
  to.searchParams.set("application_name", "released");
  const utils = await makePolicyUtils({ connectionString: to.href, logger: silent });
  await Promise.all(Array.from({ length: 3 }, () => utils.addJob("plain", {})));

  for (const pair of pairs) for (const socket of pair) socket.pause();
  const ended = await pool.query(
    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'released'",
  );
  t.true((ended.rowCount ?? 0) >= 1);
  const released = utils.release();
  for (const pair of pairs) for (const socket of pair) socket.resume();
  await released;
  await Promise.all(pairs.map(async ([client]) => client.destroyed || (await once(client, "close"))));
});
