// graphile-worker's schema and worker, in graphile-worker's environment.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

import { Meter, main, say } from "./progress.mjs";

const SILENT = new Logger(() => () => {});

const preset = (dsn, worker) => ({ worker: { connectionString: dsn, logger: SILENT, ...worker } });

async function prepare(dsn) {
  const utils = await makeWorkerUtils({ preset: preset(dsn, {}) });
  await utils.migrate();
  await utils.release();
}

async function work(dsn, { tasks, worker }) {
  const stop = () => runner.stop();
  const meter = new Meter(tasks, stop);
  const taskList = { noop: async () => meter.tick() };
  const runner = await run({ preset: preset(dsn, worker), taskList, noHandleSignals: true });
  process.once("SIGTERM", stop);
  say("ready");
  await runner.promise;
  meter.stopped();
}

await main({ prepare, work });
