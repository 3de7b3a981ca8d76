import { fileURLToPath } from "node:url";
import { WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset } from "graphile-worker-dispatch-policy";
import { deliverWebhook } from "./policies.ts";

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));

export default {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [deliverWebhook] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///webhooks",
    concurrentJobs: 10,
    taskDirectory: here("./tasks"),
    crontabFile: here("./crontab"),
  },
} satisfies GraphileConfig.Preset;
