"""redis-py's Lock, controlled by commands on the standard input, one per line.

    acquire NAME TIMEOUT WAIT   held | busy
    owned NAME                  true | false
    locked NAME                 true | false
    release NAME                released | not owned
    contend NAME TURNS          done, after this many turns around NAME:value and NAME:log

Times are in seconds. A turn reads the value, waits, and writes one more: without a lock updates get lost, and the log
shows where.
"""

import sys
import time

import redis


class Worker:
    def __init__(self, port):
        self.client = redis.Redis(host="127.0.0.1", port=port, decode_responses=True)
        self.locks = {}

    def acquire(self, name, timeout, wait):
        lock = self.client.lock(name, timeout=float(timeout), sleep=0.005)
        if not lock.acquire(blocking_timeout=float(wait)):
            return "busy"
        self.locks[name] = lock
        return "held"

    def owned(self, name):
        return str(self.locks[name].owned()).lower()

    def locked(self, name):
        return str(self.client.lock(name).locked()).lower()

    def release(self, name):
        try:
            self.locks.pop(name).release()
            return "released"
        except redis.exceptions.LockNotOwnedError:
            return "not owned"

    def contend(self, name, turns):
        lock = self.client.lock(name, timeout=30, sleep=0.005)
        for _ in range(int(turns)):
            with lock:
                seen = int(self.client.get(f"{name}:value") or 0)
                time.sleep(0.001)
                self.client.set(f"{name}:value", seen + 1)
                self.client.rpush(f"{name}:log", f"python {seen}")
            time.sleep(0.03)
        return "done"


def main():
    worker = Worker(int(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(getattr(worker, command)(*arguments), flush=True)


if __name__ == "__main__":
    main()
