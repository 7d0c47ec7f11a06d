// What a rival's script says about its progress, as JSON lines on standard output.

const [, , mode, dsn, options] = process.argv;

export const now = () => Date.now() / 1000;

export function say(event, facts = {}) {
  process.stdout.write(`${JSON.stringify({ event, ...facts })}\n`);
}

// Counts handlers; `tick` is all that a handler does.
export class Meter {
  constructor(tasks, onLast) {
    this.tasks = tasks;
    this.done = 0;
    this.onLast = onLast;
  }

  tick() {
    this.done += 1;
    if (this.done === 1) {
      say("first", { at: now() });
    }
    if (this.done === this.tasks) {
      say("last", { at: now(), tasks: this.done });
      // Not from within the handler, which has to return first.
      setImmediate(this.onLast);
    }
  }

  // Everything that ran is acknowledged.
  stopped() {
    say("stopped", { at: now(), tasks: this.done });
  }
}

// Runs the mode that the command line asks for: MODE DSN OPTIONS.
export async function main(modes) {
  await modes[mode](dsn, JSON.parse(options));
}
