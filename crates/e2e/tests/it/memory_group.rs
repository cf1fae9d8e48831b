//! A client in a control group that limits its memory.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::application::Application;
use quictun_testbed::binaries;
use quictun_testbed::connection::Connection;
use quictun_testbed::deadline;
use quictun_testbed::payload::Payload;
use quictun_testbed::program;
use quictun_testbed::tunnel::{Client, Home, Server};

/// Half of what the readers below make a client hold if nothing limits it.
const LIMIT: u64 = 128 << 20;
const READERS: u64 = 60;
const SOME: Payload = Payload {
    seed: 814,
    bytes: 16 << 20,
};

/// The readers first read this much at full speed, so that their windows grow.
const FAST: u64 = 4 << 20;
/// Then they read this much in each round.
const SLOW: u64 = 64 << 10;
const ROUNDS: u64 = 60;
const LONG: Duration = Duration::from_secs(100);

/// Number of groups made, for their names.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A control group of this test. Its processes must have ended when it is dropped.
struct MemoryGroup {
    directory: PathBuf,
    limit_file: &'static str,
}

impl MemoryGroup {
    /// Makes a group below that of this process, or below the root. Returns `None` if neither is permitted.
    fn new() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut parents = Vec::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let path = path.trim_start_matches('/');
            if controllers
                .split(',')
                .any(|controller| controller == "memory")
            {
                let root = PathBuf::from("/sys/fs/cgroup/memory");
                parents.extend([root.join(path), root].map(|it| (it, "memory.limit_in_bytes")));
            } else if controllers.is_empty() {
                let root = PathBuf::from("/sys/fs/cgroup");
                parents.extend([root.join(path), root].map(|it| (it, "memory.max")));
            }
        }
        parents.into_iter().find_map(|(parent, limit_file)| {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = format!("quictun-e2e-{}-{number}", std::process::id());
            let directory = parent.join(name);
            fs::create_dir(&directory).ok()?;
            let group = Self {
                directory,
                limit_file,
            };
            group.set_limit(LIMIT).is_ok().then_some(group)
        })
    }

    fn set_limit(&self, bytes: u64) -> Result<()> {
        let path = self.directory.join(self.limit_file);
        // Opening for writing alone does not make a missing file.
        let mut file = fs::OpenOptions::new().write(true).open(path)?;
        Ok(file.write_all(bytes.to_string().as_bytes())?)
    }

    fn client(&self, server: &Server, target: &str) -> Result<Client> {
        let home = Home::new()?;
        // A shell that enters the group before it becomes the client.
        let enter = self.directory.join("cgroup.procs");
        let enter = format!("echo $$ > {} && exec \"$0\" \"$@\"", enter.display());
        let mut command = program::command("sh");
        home.settle(&mut command);
        command
            .args(["-c", &enter])
            .arg(binaries::path("quictun-client")?);
        command.args(["--server-endpoint", &server.address.to_string()]);
        command.args(["--listen-on", "tcp:127.0.0.1:0", "--httpd-listen-on", "off"]);
        command.args(["--token-source", target]);
        Client::from_command(home, &mut command)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // An error leaves an empty group behind.
        fs::remove_dir(&self.directory).ok();
    }
}

/// Sends the payload, and counts the bytes that the connection has taken.
struct CountingWriter(Connection, Arc<AtomicU64>);

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Waits until the applications can write nothing more, for a moment at least.
fn wait_until_full(written: &AtomicU64) -> Result<()> {
    let (mut last, mut unchanged) = (0, 0);
    deadline::until("the tunnel to be full", LONG, || {
        let now = written.load(Ordering::Relaxed);
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
        unchanged > 10 && now > 0
    })
}

/// A reader that verifies what it reads, in pieces.
struct SlowReader {
    connection: Connection,
    offset: u64,
}

impl SlowReader {
    fn read(&mut self, bytes: u64) -> Result<()> {
        let end = self.offset + bytes;
        let mut block = vec![0; 64 << 10];
        while self.offset < end {
            let wanted = block.len().min(usize::try_from(end - self.offset)?);
            let block = &mut block[..wanted];
            let read = SOME.read_block(&mut self.connection, self.offset, block)?;
            ensure!(read > 0, "it ends at {}", self.offset);
            self.offset += read as u64;
        }
        Ok(())
    }
}

/// Lets each reader read this much, all at the same time.
fn read_each(readers: &mut [SlowReader], bytes: impl Fn(&SlowReader) -> u64 + Sync) -> Result<()> {
    thread::scope(|scope| {
        let bytes = &bytes;
        let each = readers
            .iter_mut()
            .map(|reader| scope.spawn(move || reader.read(bytes(reader))));
        for one in each.collect::<Vec<_>>() {
            let read = one
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.context("the client has lost bytes")?;
        }
        Ok(())
    })
}

// PROTOCOL MEMORY-3.
#[test]
fn sixty_slow_readers_do_not_kill_a_client_in_a_small_group_and_get_every_byte() -> Result<()> {
    let Some(group) = MemoryGroup::new() else {
        skipped(
            "sixty_slow_readers_do_not_kill_a_client_in_a_small_group_and_get_every_byte",
            "no control group with a limit of memory can be made here",
        );
        return Ok(());
    };
    let written = Arc::new(AtomicU64::new(0));
    let counter = written.clone();
    let source = Application::tcp(move |connection| {
        connection.set_timeout(LONG)?;
        let mut writer = CountingWriter(connection, counter.clone());
        SOME.write_to(&mut writer)?;
        writer.0.finish()
    })?;
    let server = Server::start(&[])?;
    let client = group.client(&server, &source.target())?;
    let readers = (0..READERS).map(|_| {
        let connection = client.forward.connect()?;
        connection.set_timeout(LONG)?;
        let offset = 0;
        Ok(SlowReader { connection, offset })
    });
    let mut readers = readers.collect::<Result<Vec<_>>>()?;
    read_each(&mut readers, |_| FAST)?;
    for _ in 0..ROUNDS {
        wait_until_full(&written)?;
        read_each(&mut readers, |_| SLOW)?;
    }
    read_each(&mut readers, |reader| SOME.bytes - reader.offset)?;
    drop(client);
    Ok(())
}

// PROTOCOL MEMORY-3.
#[test]
fn the_budget_follows_a_limit_that_changes() -> Result<()> {
    let Some(group) = MemoryGroup::new() else {
        skipped(
            "the_budget_follows_a_limit_that_changes",
            "no control group with a limit of memory can be made here",
        );
        return Ok(());
    };
    let server = Server::start(&[])?;
    let mut client = group.client(&server, "tcp:127.0.0.1:9")?;
    let budget = |mib: u64| format!("\"budget_mib\": {mib}");
    client.program.wait_for(&budget(64), LONG)?;
    group.set_limit(4 * LIMIT)?;
    client.program.wait_for(&budget(256), LONG)?;
    drop(client);
    Ok(())
}
