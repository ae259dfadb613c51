//! The limit: one thread that sends the library's commands on pipelined sockets and does nothing else.
//!
//! Each task is a counter: when the reply to its acquire arrives, its release is sent, and so on. All replies that have
//! arrived are processed before anything is written, so that one system call carries many commands. With more than one task
//! there are two sockets by turns: while the server works on one, this works on the other.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench_drivers::wire::{ACQUIRE, CLIENT_ID, LEASE_MS, RELEASE, SETNX_RELEASE, channel, setnx_channel};
use bench_drivers::{Args, Conversation, Error, Outcome, Recorder};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let args = Args::of_process()?;
    let url = args.need("url")?;
    let address = url.trim_start_matches("redis://").to_owned();
    let setnx = args.text("layout") == Some("setnx");
    let tasks: usize = args.number("tasks")?;
    let prefix = args.need("prefix")?;
    let mut sockets = Vec::new();
    for part in 0..tasks.min(2) {
        sockets.push(Socket::open(&address, setnx, prefix, (part..tasks).step_by(2))?);
    }
    pairs(&mut sockets, tasks, args.millis("warm_ms")?)?;
    Conversation::say("ready")?;
    let outcome = pairs(&mut sockets, tasks, args.millis("run_ms")?)?;
    Conversation::end(&outcome)
}

/// One task: its next command, and its counts.
struct Task {
    number: usize,
    name: String,
    channel: String,
    owner: u64,
    holds: bool,
    began: Instant,
    pairs: u64,
}

/// One connection with its tasks, in the order in which they wait for replies.
struct Socket {
    stream: TcpStream,
    tasks: Vec<Task>,
    waiting: std::collections::VecDeque<usize>,
    acquire: String,
    release: String,
    setnx: bool,
    out: String,
    received: Vec<u8>,
    chunk: Vec<u8>,
}

impl Socket {
    fn open(
        address: &str,
        setnx: bool,
        prefix: &str,
        tasks: impl Iterator<Item = usize>,
    ) -> Result<Self, Error> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let task = |number| {
            let name = format!("{prefix}:{number}");
            Task {
                number,
                channel: if setnx { setnx_channel(&name) } else { channel(&name) },
                name,
                owner: (number as u64) << 32,
                holds: false,
                began: Instant::now(),
                pairs: 0,
            }
        };
        let mut socket = Self {
            stream,
            tasks: tasks.map(task).collect(),
            waiting: std::collections::VecDeque::new(),
            acquire: String::new(),
            release: String::new(),
            setnx,
            out: String::new(),
            received: Vec::new(),
            chunk: vec![0; 1 << 16],
        };
        socket.acquire = socket.load(ACQUIRE)?;
        socket.release = socket.load(if setnx { SETNX_RELEASE } else { RELEASE })?;
        Ok(socket)
    }

    fn load(&mut self, script: &str) -> Result<String, Error> {
        command(&mut self.out, &["SCRIPT", "LOAD", script]);
        self.flush()?;
        // `$40`, the hash, each with a line break.
        while self.received.len() < 47 {
            self.receive()?;
        }
        let hash = String::from_utf8(self.received[5..45].to_vec())?;
        self.received.drain(..47);
        Ok(hash)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all(self.out.as_bytes())?;
        self.out.clear();
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Error> {
        let length = self.stream.read(&mut self.chunk)?;
        if length == 0 {
            return Err("the server has closed the connection".into());
        }
        self.received.extend_from_slice(&self.chunk[..length]);
        Ok(())
    }

    /// Appends the next command of a task.
    fn push(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        let mut owner = String::with_capacity(64);
        let release = task.holds;
        if !release {
            task.owner += 1;
            task.began = Instant::now();
        }
        let _ = write!(owner, "{CLIENT_ID}:{}", task.owner);
        let (name, told) = (&task.name, &task.channel);
        match (release, self.setnx) {
            (false, false) => {
                command(&mut self.out, &["EVALSHA", &self.acquire, "1", name, &owner, LEASE_MS, "0", "0"]);
            }
            (false, true) => command(&mut self.out, &["SET", name, &owner, "NX", "PX", LEASE_MS]),
            (true, false) => {
                command(&mut self.out, &["EVALSHA", &self.release, "1", name, &owner, "1", LEASE_MS, told]);
            }
            (true, true) => command(&mut self.out, &["EVALSHA", &self.release, "1", name, &owner, told]),
        }
        task.holds = !release;
        self.waiting.push_back(index);
    }

    /// Waits for replies, and makes every task that has one continue, unless it is done and the time is over.
    fn answer(&mut self, latency: &Recorder, over: bool) -> Result<(), Error> {
        self.receive()?;
        let mut at = 0;
        // Every reply here is one line.
        while let Some(length) = self.received[at..].iter().position(|byte| *byte == b'\n') {
            // Acquired; or freed, without a subscriber.
            let good: [&[u8]; 2] = [if self.setnx { b"+OK" } else { b":1" }, b":-2"];
            let line = &self.received[at..=at + length];
            if !good.iter().any(|start| line.starts_with(start)) {
                return Err(format!("unexpected reply: {}", String::from_utf8_lossy(line)).into());
            }
            at += length + 1;
            let index = self.waiting.pop_front().ok_or("a reply without a request")?;
            let task = &mut self.tasks[index];
            if !task.holds {
                latency.record(task.number, task.began.elapsed().as_nanos() as u64);
                task.pairs += 1;
            }
            if task.holds || !over {
                self.push(index);
            }
        }
        self.received.drain(..at);
        self.flush()
    }
}

fn command(out: &mut String, words: &[&str]) {
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

fn pairs(sockets: &mut [Socket], tasks: usize, time: Duration) -> Result<Outcome, Error> {
    let latency = Recorder::new();
    let began = Instant::now();
    for socket in &mut *sockets {
        for index in 0..socket.tasks.len() {
            socket.tasks[index].pairs = 0;
            socket.push(index);
        }
        socket.flush()?;
    }
    while sockets.iter().any(|socket| !socket.waiting.is_empty()) {
        let over = began.elapsed() >= time;
        for socket in sockets.iter_mut().filter(|socket| !socket.waiting.is_empty()) {
            socket.answer(&latency, over)?;
        }
    }
    let mut counts = vec![0; tasks];
    for task in sockets.iter().flat_map(|socket| &socket.tasks) {
        counts[task.number] = task.pairs;
    }
    Ok(Outcome {
        elapsed_ns: began.elapsed().as_nanos() as u64,
        grants: counts.iter().sum(),
        tasks: counts,
        latency: latency.finish(),
        ..Outcome::default()
    })
}
