// node-redisson, controlled by commands, one per line: the protocol of interop/java, and its verbs for the plain lock.
//
// A line is `NUMBER CLIENT/THREAD VERB WORDS…`. CLIENT is the watchdog time of the client in milliseconds, THREAD any name: each
// has an id of its own, which is the owner to node-redisson, and executes its commands in order. The reply is
// `= NUMBER ok|refused|unsupported|error TEXT`, as soon as it is known. Times are milliseconds; -1 is none.
//
// The program ends with its input, without releasing any lock.
import { randomUUID } from "node:crypto";
import readline from "node:readline";
import { Redisson } from "node-redisson";

const port = Number(process.argv[2]);
const say = (line) => process.stdout.write(line + "\n");

// By the watchdog time.
const clients = new Map();
const threads = new Map();

function client(watchdog) {
  if (!clients.has(watchdog)) {
    const options = { host: "127.0.0.1", port };
    clients.set(watchdog, new Redisson({ redis: { options }, lockWatchdogTimeout: BigInt(watchdog) }));
  }
  return clients.get(watchdog);
}

class Unsupported extends Error {}

class Thread {
  id = randomUUID();
  // An object has the lease and the renewal of its hold, so each thread keeps its own.
  locks = new Map();
  last = Promise.resolve();

  constructor(redisson) {
    this.redisson = redisson;
  }

  tell(number, words) {
    this.last = this.last.then(async () => {
      try {
        say(`= ${number} ok ${await this.run(words)}`);
      } catch (error) {
        say(`= ${number} ${kind(error)} ${String(error).replaceAll(/\s+/g, " ")}`);
      }
    });
  }

  lock(name) {
    if (!this.locks.has(name)) this.locks.set(name, this.redisson.getLock(name, this.id));
    return this.locks.get(name);
  }

  async run([verb, type, name, ...words]) {
    if (verb === "owner") return this.lock("any").getClientName(this.id);
    if (type !== "plain") throw new Unsupported(type);
    if (verb === "loop") return loop(this.redisson, name, words[0], Number(words[1]), Number(words[2]));
    const lock = this.lock(name);
    // `true` is a lease that is renewed.
    const lease = (text) => (Number(text) < 0 ? true : BigInt(text));
    switch (verb) {
      case "lock":
        await lock.lock();
        return "held";
      case "lease":
        await lock.lock(lease(words[0]));
        return "held";
      case "try":
        return lock.tryLock(0n, true);
      case "wait":
        return lock.tryLock(BigInt(words[0]), lease(words[1]));
      case "unlock":
        await lock.unlock();
        return "released";
      case "force":
        return lock.forceUnlock();
      case "locked":
        return lock.isLocked();
      case "channel":
        return lock.getChannelName();
      // How many of its waiters a message would reach: they listen a moment after the server has their subscription.
      case "listeners":
        return this.redisson.commandExecutor.eventEmitter.listenerCount(lock.getChannelName());
      default:
        throw new Unsupported(verb);
    }
  }
}

function kind(error) {
  if (error instanceof Unsupported) return "unsupported";
  return String(error).includes("not locked by current client") ? "refused" : "error";
}

// Turns in a critical section that detects two owners inside, with the keys of Loop.java.
async function loop(redisson, name, topic, tasks, turns) {
  const { redis } = redisson;
  const turn = async (lock) => {
    const me = lock.getClientName(lock.clientId);
    // Again and again for a short time: a release just before the subscription is missed.
    while (!(await lock.tryLock(100n, true)));
    await redis.set(`${topic}:inside`, me);
    const seen = Number((await redis.get(`${topic}:value`)) ?? 0);
    await redis.set(`${topic}:value`, seen + 1);
    await redis.rpush(`${topic}:log`, `node ${me} ${seen}`);
    const last = await redis.get(`${topic}:inside`);
    if (last !== me) await redis.rpush(`${topic}:violations`, `${me} writes, and ${last} is inside`);
    await lock.unlock();
  };
  const task = async () => {
    const lock = redisson.getLock(name);
    for (let taken = 0; taken < turns; taken += 1) await turn(lock);
  };
  await Promise.all(Array.from({ length: tasks }, task));
  return tasks * turns;
}

say("= 0 ok ready");
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [number, thread, ...words] = line.split(" ");
  if (!threads.has(thread)) threads.set(thread, new Thread(client(thread.split("/")[0])));
  threads.get(thread).tell(number, words);
}
process.exit(0);
