// The driver of redlock. The protocol with the harness and the jobs are described in drivers/src/lib.rs and
// drivers/src/jobs.rs.
import fs from "node:fs";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock from "redlock";

const args = Object.fromEntries(process.argv.slice(2).map((word) => word.split(/=(.*)/s).slice(0, 2)));
const number = (key) => Number(args[key] ?? 0);
const lease = number("lease_ms") || 30_000;

// The settings of its README, with ioredis as it recommends. Only the number of attempts differs: a waiter waits here
// until it has the lock.
const redlock = new Redlock([new Redis(args.url)], {
  driftFactor: 0.01,
  retryCount: -1,
  retryDelay: 200,
  retryJitter: 200,
  automaticExtensionThreshold: 500,
});
// Every attempt that finds the lock busy is reported there.
redlock.on("error", () => {});

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = async (word) => {
  process.stdout.write(word + "\n");
  if ((await lines.next()).done) process.exit(0);
};
const end = async (outcome) => {
  process.stdout.write(JSON.stringify(outcome) + "\n");
  await lines.next();
  process.exit(0);
};

const nanos = () => Number(process.hrtime.bigint());
// The wall clock, in microseconds at best: milliseconds of the epoch and the time since the start.
const unixNanos = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;

class Histogram {
  counts = new Map();
  sum = 0;
  max = 0;

  record(value) {
    value = Math.max(0, Math.round(value));
    let shift = 0;
    let rest = value;
    while (rest >= 128) {
      rest = Math.floor(rest / 2);
      shift += 1;
    }
    const bucket = shift * 64 + rest;
    this.counts.set(bucket, (this.counts.get(bucket) ?? 0) + 1);
    this.sum += value;
    this.max = Math.max(this.max, value);
  }

  toJSON() {
    const buckets = [...this.counts].sort((one, other) => one[0] - other[0]);
    return { buckets, sum: this.sum, max: this.max };
  }
}

const fresh = (tasks) => ({
  elapsed_ns: 0,
  tasks: new Array(tasks).fill(0),
  grants: 0,
  latency: new Histogram(),
  handover: new Histogram(),
  violations: 0,
  last_ns: 0,
  errors: 0,
  error: null,
});
const fail = (outcome, error) => {
  outcome.errors += 1;
  outcome.error ??= String(error);
};
const all = (count, task) => Promise.all(Array.from({ length: count }, (_, index) => task(index)));

async function pairs(prefix, tasks, millis) {
  const outcome = fresh(tasks);
  const began = nanos();
  await all(tasks, async (task) => {
    const name = [`${prefix}:${task}`];
    do {
      const start = nanos();
      try {
        const lock = await redlock.acquire(name, lease);
        await lock.release();
        outcome.latency.record(nanos() - start);
        outcome.tasks[task] += 1;
        outcome.grants += 1;
      } catch (error) {
        fail(outcome, error);
      }
    } while (nanos() - began < millis * 1e6);
  });
  outcome.elapsed_ns = nanos() - began;
  return outcome;
}

async function contend() {
  const [process_, tasks, turns] = ["process", "tasks", "turns"].map(number);
  const [run, work, pause] = [number("run_ms") * 1e6, number("work_us") / 1000, number("pause_us") / 1000];
  const names = number("names");
  const draws = args.draws ? fs.readFileSync(args.draws) : Buffer.alloc(0);
  const witness = fs.openSync(args.witness, "r+");
  const me = BigInt(process_ + 1);
  const record = Buffer.alloc(32);
  const outcome = fresh(tasks);
  const began = nanos();
  await all(tasks, async (task) => {
    const who = (BigInt(process_) << 32n) + BigInt(task) + 1n;
    let turn = 0;
    while (turns > 0 ? turn < turns : nanos() - began < run) {
      const count = draws.length / 2;
      const name =
        count === 0 ? 0 : draws.readUInt16LE(2 * (((process_ * 1024 + task) * 257 + turn) % count)) % names;
      const [start, since] = [nanos(), unixNanos()];
      let lock;
      try {
        lock = await redlock.acquire([`${args.prefix}:${name}`], lease);
      } catch (error) {
        fail(outcome, error);
        continue;
      }
      const [wait, now] = [nanos() - start, unixNanos()];
      fs.readSync(witness, record, 0, 32, name * 32);
      const [inside, left, by] = [0, 16, 24].map((at) => record.readBigUInt64LE(at));
      record.writeBigUInt64LE(who, 0);
      fs.writeSync(witness, record, 0, 8, name * 32);
      if (inside !== 0n) outcome.violations += 1;
      if (by !== 0n && by !== me && left >= since && left <= now) outcome.handover.record(Number(now - left));
      outcome.latency.record(wait);
      turn += 1;
      outcome.grants += 1;
      if (turns > 0 || nanos() - began < run) outcome.tasks[task] += 1;
      if (work > 0) await sleep(work);
      fs.readSync(witness, record, 0, 32, name * 32);
      if (record.readBigUInt64LE(0) !== who) outcome.violations += 1;
      record.writeBigUInt64LE(0n, 0);
      record.writeBigUInt64LE(record.readBigUInt64LE(8) + 1n, 8);
      record.writeBigUInt64LE(unixNanos(), 16);
      record.writeBigUInt64LE(me, 24);
      fs.writeSync(witness, record, 0, 32, name * 32);
      try {
        await lock.release();
      } catch (error) {
        fail(outcome, error);
      }
      if (pause > 0) await sleep(pause);
    }
  });
  outcome.elapsed_ns = turns > 0 ? nanos() - began : run;
  return outcome;
}

// Only `using` renews, so each lock is held inside a call of it.
async function hold(prefix, count) {
  const outcome = fresh(0);
  const forever = new Promise(() => {});
  for (let first = 0; first < count; first += 256) {
    await all(Math.min(256, count - first), (index) => {
      return new Promise((held, failed) => {
        redlock
          .using([`${prefix}:${first + index}`], lease, async () => {
            held();
            await forever;
          })
          .catch(failed);
      });
    });
  }
  outcome.grants = count;
  return outcome;
}

async function wake(prefix, count) {
  const outcome = fresh(0);
  const waiters = all(count, async (index) => {
    const lock = await redlock.acquire([`${prefix}:${index}`], lease);
    outcome.last_ns = Math.max(outcome.last_ns, Number(unixNanos()));
    outcome.grants += 1;
    await lock.release();
  });
  await say("held");
  await waiters;
  return outcome;
}

const [prefix, tasks] = [args.prefix, number("tasks")];
if (args.job === "pairs") {
  await pairs(`${prefix}:warm`, tasks, number("warm_ms"));
  await say("ready");
  await end(await pairs(prefix, tasks, number("run_ms")));
} else if (args.job === "contend") {
  await pairs(`${prefix}:warm${args.process}`, Math.min(tasks, 8), number("warm_ms"));
  await say("ready");
  await end(await contend());
} else if (args.job === "hold") {
  await pairs(`${prefix}:warm`, 1, 0);
  await say("ready");
  const outcome = await hold(prefix, tasks);
  await say("held");
  await end(outcome);
} else if (args.job === "wake") {
  await pairs(`${prefix}:warm`, 1, 0);
  await say("ready");
  await end(await wake(prefix, tasks));
}
