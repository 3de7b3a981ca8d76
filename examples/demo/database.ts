import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";

/** A database for one run, on the server DATABASE_URL names; dropped afterwards. */
export async function withDatabase<T>(name: string, use: (url: string) => Promise<T>): Promise<T> {
  const database = `dispatch_policy_demo_${name}_${process.pid}`;
  await onServer(`create database ${database}`);
  try {
    const url = new URL(serverUrl());
    url.pathname = `/${database}`;
    return await use(url.href);
  } finally {
    await untilLeft(database);
    await onServer(`drop database ${database} with (force)`);
  }
}

const LEAVE_MS = 10_000;

/** Graphile Worker does not wait for the end of its pools, and to be cut off then is an error nobody hears. */
async function untilLeft(database: string): Promise<void> {
  const end = performance.now() + LEAVE_MS;
  const connected = `select from pg_stat_activity where datname = '${database}'`;
  while (performance.now() < end && (await onServer(connected)) > 0) await delay(20);
}

/** How many rows it gives. */
async function onServer(statement: string): Promise<number> {
  const client = new pg.Client({ connectionString: serverUrl() });
  await client.connect();
  try {
    return (await client.query(statement)).rowCount ?? 0;
  } finally {
    await client.end();
  }
}

function serverUrl(): string {
  const url = process.env.DATABASE_URL;
  if (!url) throw new Error("DATABASE_URL is not set: start the demo with ./scripts/demo, or npm run demo");
  return url;
}
