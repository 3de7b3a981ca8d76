import { existsSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { type ServerOptions, serverArguments } from "./settings.ts";
import type { Postgres } from "./start.ts";

/** Null where there is no Docker: found out without importing testcontainers, which alone costs 160 ms. */
export async function startDocker(
  options: ServerOptions,
  version: string | undefined,
): Promise<Postgres | null> {
  if (!mayHaveDocker()) return null;
  const { GenericContainer, getContainerRuntimeClient, Wait } = await import("testcontainers");
  try {
    await getContainerRuntimeClient(); // rejects within milliseconds where no engine answers
  } catch {
    return null;
  }
  const image = (!version && process.env.PG_IMAGE) || `postgres:${version ?? "18"}-alpine`;
  const container = await new GenericContainer(image)
    .withEnvironment({ POSTGRES_HOST_AUTH_METHOD: "trust" })
    .withCommand(["postgres", ...serverArguments(options, () => true)]) // the images bring all of contrib
    .withExposedPorts(5432)
    // The first time it is ready is for the image's own initialisation, without TCP.
    .withWaitStrategy(Wait.forLogMessage(/ready to accept connections/, 2))
    .start();
  return {
    url: `postgres://postgres@${container.getHost()}:${container.getMappedPort(5432)}/postgres`,
    via: `Docker (${image})`,
    async stop() {
      await container.stop();
    },
  };
}

function mayHaveDocker(): boolean {
  if (process.env.DOCKER_HOST || process.platform === "win32") return true;
  const home = os.homedir();
  const sockets = ["/var/run/docker.sock", path.join(home, ".docker/run/docker.sock")];
  return sockets.some((socket) => existsSync(socket));
}
