// pg-boss's schema, worker and producer, in pg-boss's environment.
import { PgBoss } from "pg-boss";

import { main } from "./modes.mjs";

const QUEUE = "noop";
const AT_ONCE = 10_000;

async function started(dsn, options = {}) {
  const boss = new PgBoss({ connectionString: dsn, ...options });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  return boss;
}

async function prepare(dsn, { queue }) {
  const boss = await started(dsn);
  await boss.createQueue(QUEUE, queue);
  await boss.stop();
}

async function work(dsn, { boss: options, work: settings }, handler, stopping) {
  const boss = await started(dsn, options);
  await boss.work(QUEUE, settings, async (jobs) => jobs.forEach(handler));
  await stopping;
  // Waits for the batch that runs, and for its completion.
  await boss.stop();
}

async function producer(dsn) {
  const boss = await started(dsn, { supervise: false, schedule: false });
  return {
    one: (at) => boss.send(QUEUE, { at }),
    many: async (tasks) => {
      for (let left = tasks; left > 0; left -= AT_ONCE) {
        await boss.insert(QUEUE, Array.from({ length: Math.min(left, AT_ONCE) }, () => ({})));
      }
    },
    close: () => boss.stop(),
  };
}

await main({ prepare, work, producer, payload: (task) => task.data.at });
