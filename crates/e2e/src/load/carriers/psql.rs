//! psql with one query after the other in one transaction: the next one follows the answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::postgresql::Database;

use super::program::{DONE, RunningProgram};
use super::progress::ProgressCounter;

/// The length of an answer, without the number of the query.
const LENGTH: usize = 500;

pub(super) struct Psql {
    child: Child,
    asker: JoinHandle<Result<()>>,
    answers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Psql {
    pub(super) fn start(near: &Machine, database: &Database, port: u16) -> Result<Self> {
        let mut psql = database.session(near, port);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn()?;
        let statements = child.stdin.take().context("invariant: stdin is piped")?;
        let output = child.stdout.take().context("invariant: stdout is piped")?;
        let (answers, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, over) = (answers.clone(), stop.clone());
        let asker = std::thread::spawn(move || ask(statements, output, &count, &over));
        Ok(Self {
            child,
            asker,
            answers,
            stop,
        })
    }
}

fn ask(
    mut statements: ChildStdin,
    output: ChildStdout,
    count: &AtomicU64,
    over: &AtomicBool,
) -> Result<()> {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    writeln!(statements, "begin;")?;
    for number in 1u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let letter = char::from(b'a' + u8::try_from(number % 26)?);
        writeln!(
            statements,
            "select {number} || repeat('{letter}', {LENGTH});"
        )?;
        line.clear();
        output.read_line(&mut line)?;
        let expected = format!("{number}{}\n", letter.to_string().repeat(LENGTH));
        ensure!(line == expected, "the answer to query {number} is {line:?}");
        count.store(number, Ordering::Relaxed);
    }
    writeln!(statements, "commit;")?;
    Ok(())
}

impl RunningProgram for Psql {
    fn counters(&self) -> Vec<ProgressCounter> {
        let answers = self.answers.clone();
        vec![Box::new(move || Ok(Some(answers.load(Ordering::Relaxed))))]
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        deadline::until("psql to end", DONE, || self.asker.is_finished())?;
        let asked = self.asker.join();
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "psql: {status}");
        Ok(())
    }
}
