// What a script on Node.js can do: make its schema, work, enqueue, and show how soon it picks a task up.
// A script gives four functions, and `main` does the rest; it prints JSON lines on standard output.
import { setTimeout as sleep } from "node:timers/promises";

const [, , mode, dsn, json] = process.argv;
// Until a worker is connected, listening and idle; and until the last task must have arrived.
const IDLE_MS = 2_000;
const ARRIVE_MS = 30_000;
// So many tasks are sent first and not counted, as for the worker that it is compared with: statements are
// prepared then, and code is warm.
const WARM_UP = 30;

const now = () => Date.now() / 1000;

// Date.now() has whole milliseconds, which is too coarse for a wait of two.
const preciseNow = () => (performance.timeOrigin + performance.now()) / 1000;

function say(event, facts = {}) {
  process.stdout.write(`${JSON.stringify({ event, ...facts })}\n`);
}

async function work(script, options) {
  const stopping = Promise.withResolvers();
  let done = 0;
  process.once("SIGTERM", stopping.resolve);
  // All that a handler does.
  const count = () => {
    done += 1;
    if (done === 1) {
      say("first", { at: now() });
    }
    if (done === options.tasks) {
      say("last", { at: now(), tasks: done });
      stopping.resolve();
    }
  };
  await script.work(dsn, options, count, stopping.promise);
  say("stopped", { at: now(), tasks: done });
}

async function enqueue(script, options) {
  const producer = await script.producer(dsn, options);
  say("first", { at: now() });
  if (options.how === "bulk") {
    await producer.many(options.tasks);
  } else {
    for (let number = 0; number < options.tasks; number += 1) {
      await producer.one("");
    }
  }
  say("last", { at: now(), tasks: options.tasks });
  await producer.close();
}

async function latency(script, options) {
  const stopping = Promise.withResolvers();
  let [latencies, wanted, arrived] = [[], 0, Promise.withResolvers()];
  const arrive = (task) => {
    latencies.push(preciseNow() - Number(script.payload(task)));
    if (latencies.length === wanted) {
      arrived.resolve();
    }
  };
  const worker = script.work(dsn, options, arrive, stopping.promise);
  const producer = await script.producer(dsn, options);
  // A worker that cannot start fails here, and not at the end.
  await Promise.race([worker, sleep(IDLE_MS)]);
  // Sends tasks, one every so often, and waits until all of them have arrived.
  const measured = async (tasks) => {
    [latencies, wanted, arrived] = [[], tasks, Promise.withResolvers()];
    const start = preciseNow();
    for (let number = 0; number < tasks; number += 1) {
      await sleep(Math.max(0, (start + number * options.every_s - preciseNow()) * 1000));
      await producer.one(String(preciseNow()));
    }
    await Promise.race([arrived.promise, sleep(ARRIVE_MS)]);
    if (latencies.length < tasks) {
      throw new Error(`${latencies.length} of ${tasks} tasks arrived`);
    }
    return latencies;
  };
  await measured(WARM_UP);
  const found = await measured(options.tasks);
  stopping.resolve();
  await worker;
  await producer.close();
  say("latencies", { s: found });
  // The timer of a race that was won would keep it for half a minute.
  process.exit();
}

// Runs the mode that the command line asks for: MODE DSN OPTIONS.
export async function main(script) {
  const options = JSON.parse(json);
  const shared = { work, enqueue, latency };
  await (mode in shared ? shared[mode](script, options) : script[mode](dsn, options));
}
