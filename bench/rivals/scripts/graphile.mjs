// graphile-worker's schema, worker and producer, in graphile-worker's environment.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

import { main } from "./modes.mjs";

const AT_ONCE = 10_000;
const SILENT = new Logger(() => () => {});

const preset = (dsn, worker = {}) => ({ worker: { connectionString: dsn, logger: SILENT, ...worker } });

async function prepare(dsn) {
  const utils = await makeWorkerUtils({ preset: preset(dsn) });
  await utils.migrate();
  await utils.release();
}

async function work(dsn, { worker }, handler, stopping) {
  const taskList = { noop: async (payload) => handler(payload) };
  const runner = await run({ preset: preset(dsn, worker), taskList, noHandleSignals: true });
  await Promise.race([stopping, runner.promise]);
  // Waits until what has finished is acknowledged.
  await runner.stop();
}

async function producer(dsn) {
  const utils = await makeWorkerUtils({ preset: preset(dsn) });
  return {
    one: (at) => utils.addJob("noop", { at }),
    many: async (tasks) => {
      for (let left = tasks; left > 0; left -= AT_ONCE) {
        await utils.addJobs(Array.from({ length: Math.min(left, AT_ONCE) }, () => ({ identifier: "noop" })));
      }
    },
    close: () => utils.release(),
  };
}

await main({ prepare, work, producer, payload: (task) => task.at });
