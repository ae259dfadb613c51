"""The driver of redis-py's Lock. The protocol with the harness and the jobs are described in
drivers/src/lib.rs and drivers/src/jobs.rs.

One task uses the blocking lock, which is faster; several are tasks of one event loop with the lock of
redis.asyncio, because threads of Python do not run at the same time. hiredis reads the replies, as its documentation
recommends. The lock polls ten times a second, which is its default.
"""

import asyncio
import json
import os
import struct
import sys
import time

import redis
import redis.asyncio

ARGS = dict(word.split("=", 1) for word in sys.argv[1:])
RECORD = struct.Struct("<QQQQ")


def number(key):
    return int(ARGS.get(key, 0))


LEASE = (number("lease_ms") or 30_000) / 1000


def say(word):
    print(word, flush=True)
    if not sys.stdin.readline():
        sys.exit(0)


def end(outcome):
    print(json.dumps(outcome), flush=True)
    sys.stdin.readline()


class Histogram:
    def __init__(self):
        self.counts, self.sum, self.max = {}, 0, 0

    def record(self, nanos):
        nanos = max(nanos, 0)
        shift = max(nanos.bit_length() - 7, 0)
        bucket = shift * 64 + (nanos >> shift)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.sum += nanos
        self.max = max(self.max, nanos)

    def json(self):
        return {"buckets": sorted(self.counts.items()), "sum": self.sum, "max": self.max}


class Outcome:
    def __init__(self, tasks=0):
        self.elapsed, self.tasks, self.grants = 0, [0] * tasks, 0
        self.latency, self.handover = Histogram(), Histogram()
        self.violations, self.last, self.errors, self.error = 0, 0, 0, None

    def fail(self, error):
        self.errors += 1
        self.error = self.error or str(error)

    def json(self):
        return {
            "elapsed_ns": self.elapsed,
            "tasks": self.tasks,
            "grants": self.grants,
            "latency": self.latency.json(),
            "handover": self.handover.json(),
            "violations": self.violations,
            "last_ns": self.last,
            "errors": self.errors,
            "error": self.error,
        }


class Blocking:
    """One task on one connection."""

    def __init__(self):
        self.client = redis.Redis.from_url(ARGS["url"])

    async def acquire(self, name):
        lock = self.client.lock(name, timeout=LEASE)
        lock.acquire()
        return lock

    async def release(self, lock):
        lock.release()

    async def sleep(self, seconds):
        time.sleep(seconds)


class Asynchronous:
    """Many tasks share some connections; a task that finds none free waits for one."""

    def __init__(self):
        pool = redis.asyncio.BlockingConnectionPool.from_url(ARGS["url"], max_connections=64, timeout=None)
        self.client = redis.asyncio.Redis(connection_pool=pool)

    async def acquire(self, name):
        lock = self.client.lock(name, timeout=LEASE)
        await lock.acquire()
        return lock

    async def release(self, lock):
        await lock.release()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


async def pairs(contender, prefix, tasks, millis):
    outcome = Outcome(tasks)
    began = time.perf_counter_ns()

    async def one(task):
        name = f"{prefix}:{task}"
        while True:
            start = time.perf_counter_ns()
            try:
                await contender.release(await contender.acquire(name))
                outcome.latency.record(time.perf_counter_ns() - start)
                outcome.tasks[task] += 1
                outcome.grants += 1
            except redis.exceptions.RedisError as error:
                outcome.fail(error)
            if time.perf_counter_ns() - began >= millis * 1_000_000:
                return

    await asyncio.gather(*map(one, range(tasks)))
    outcome.elapsed = time.perf_counter_ns() - began
    return outcome


async def contend(contender):
    process, tasks, turns, names = map(number, ["process", "tasks", "turns", "names"])
    run, work, pause = number("run_ms") * 1_000_000, number("work_us") / 1e6, number("pause_us") / 1e6
    draws = b""
    if "draws" in ARGS:
        with open(ARGS["draws"], "rb") as file:
            draws = file.read()
    count = len(draws) // 2
    witness = os.open(ARGS["witness"], os.O_RDWR)
    outcome = Outcome(tasks)
    began = time.perf_counter_ns()

    async def one(task):
        who, me, turn = (process << 32) + task + 1, process + 1, 0
        while turn < turns if turns else time.perf_counter_ns() - began < run:
            name = 0
            if count:
                at = 2 * (((process * 1024 + task) * 257 + turn) % count)
                name = int.from_bytes(draws[at : at + 2], "little") % names
            start, since = time.perf_counter_ns(), time.time_ns()
            try:
                lock = await contender.acquire(f"{ARGS['prefix']}:{name}")
            except redis.exceptions.RedisError as error:
                outcome.fail(error)
                continue
            wait, now = time.perf_counter_ns() - start, time.time_ns()
            inside, _, left, by = RECORD.unpack(os.pread(witness, 32, name * 32))
            os.pwrite(witness, who.to_bytes(8, "little"), name * 32)
            outcome.violations += inside != 0
            if by not in (0, me) and since <= left <= now:
                outcome.handover.record(now - left)
            outcome.latency.record(wait)
            turn += 1
            outcome.grants += 1
            outcome.tasks[task] += bool(turns) or time.perf_counter_ns() - began < run
            if work:
                await contender.sleep(work)
            inside, passed, _, _ = RECORD.unpack(os.pread(witness, 32, name * 32))
            outcome.violations += inside != who
            os.pwrite(witness, RECORD.pack(0, passed + 1, time.time_ns(), me), name * 32)
            try:
                await contender.release(lock)
            except redis.exceptions.RedisError as error:
                outcome.fail(error)
            if pause:
                await contender.sleep(pause)

    await asyncio.gather(*map(one, range(tasks)))
    outcome.elapsed = time.perf_counter_ns() - began if turns else run
    return outcome


async def wake(contender, prefix, count):
    outcome = Outcome()

    async def one(name):
        lock = await contender.acquire(f"{prefix}:{name}")
        outcome.last = max(outcome.last, time.time_ns())
        outcome.grants += 1
        await contender.release(lock)

    waiters = [asyncio.create_task(one(name)) for name in range(count)]
    await asyncio.to_thread(say, "held")
    await asyncio.gather(*waiters)
    return outcome


async def main():
    job, prefix, tasks = ARGS["job"], ARGS["prefix"], number("tasks")
    contender = Blocking() if tasks == 1 else Asynchronous()
    if job == "pairs":
        await pairs(contender, f"{prefix}:warm", tasks, number("warm_ms"))
        say("ready")
        end((await pairs(contender, prefix, tasks, number("run_ms"))).json())
    elif job == "contend":
        await pairs(contender, f"{prefix}:warm{number('process')}", min(tasks, 8), number("warm_ms"))
        say("ready")
        end((await contend(contender)).json())
    elif job == "wake":
        await pairs(contender, f"{prefix}:warm", 1, 0)
        say("ready")
        end((await wake(contender, prefix, tasks)).json())


asyncio.run(main())
