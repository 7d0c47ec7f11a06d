// pg-boss's schema and worker, in pg-boss's environment.
import { PgBoss } from "pg-boss";

import { Meter, main, say } from "./progress.mjs";

const QUEUE = "noop";

async function started(dsn, options) {
  const boss = new PgBoss({ connectionString: dsn, ...options });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  return boss;
}

async function prepare(dsn, { queue }) {
  const boss = await started(dsn, {});
  await boss.createQueue(QUEUE, queue);
  await boss.stop();
}

async function work(dsn, { tasks, boss: options, work: settings }) {
  const boss = await started(dsn, options);
  // A stop waits for the batch that runs, and for its completion.
  const stop = () => boss.stop({ graceful: true });
  const meter = new Meter(tasks, stop);
  const stopped = new Promise((resolve) => boss.once("stopped", resolve));
  process.once("SIGTERM", stop);
  await boss.work(QUEUE, settings, async (jobs) => {
    for (let number = 0; number < jobs.length; number += 1) {
      meter.tick();
    }
  });
  say("ready");
  await stopped;
  meter.stopped();
}

await main({ prepare, work });
