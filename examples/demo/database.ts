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
    await onServer(`drop database ${database} with (force)`);
  }
}

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl() });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

function serverUrl(): string {
  const url = process.env.DATABASE_URL;
  if (!url) throw new Error("DATABASE_URL is not set: start the demo with ./scripts/demo, or npm run demo");
  return url;
}
