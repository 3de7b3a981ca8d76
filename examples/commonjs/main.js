/** CommonJS without types: one policy, one task, one worker. DATABASE_URL names the database. */
const { Logger, run, WorkerPreset } = require("graphile-worker");
const { definePolicy, dispatchPolicyPreset, makePolicyUtils } = require("graphile-worker-dispatch-policy");

const greet = definePolicy("greet", {
  partitionBy: "team",
  gates: ({ throttle }) => [throttle({ rate: 10, per: "1 second", smooth: true })],
});

const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [greet] })],
  worker: { connectionString: process.env.DATABASE_URL ?? "postgres:///app", logger: problemsOnly },
};

async function main() {
  const utils = await makePolicyUtils({ preset }); // creates both schemas
  for (const name of ["Ana", "Bo", "Cy"]) await utils.addJob("greet", { team: "red", name });
  await utils.release();

  const greeted = [];
  const { promise: done, resolve: finish } = Promise.withResolvers();
  const taskList = {
    greet: async ({ name }, helpers) => {
      console.log(`hello ${name}, of team ${helpers.dispatchPolicy.partition}`);
      if (greeted.push(name) === 3) finish();
    },
  };
  const runner = await run({ preset, taskList });
  await done;
  await runner.stop();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
