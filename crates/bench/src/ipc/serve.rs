//! The server of a measurement: a second process of this program, whose standard input is one end of a socket pair.

use std::hint::black_box;
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use quictun_ipc::{Channel, Message, Request, Server, WaitPolicy, accept};
use rustix::net::{RecvFlags, SendFlags};

use super::flags::ServerOptions;
use super::peer::{PAYLOAD, TIMEOUT, WORK};
use crate::kind::Kind;
use crate::machine::{bind, cpu_ns};

/// Maximum rows of the matrix that a call may ask for.
const MATRIX_MAX: usize = 64;

pub(crate) fn run(part: &ServerOptions) -> Result<()> {
    bind(part.cpu)?;
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("duplicating standard input")?;
    match part.kind {
        Kind::Asynchronous => serve(accept(socket, TIMEOUT)?, part.policy),
        Kind::Futex => {
            let mut channel = accept(socket, TIMEOUT)?;
            while let Some(message) = channel.pop_or_sleep() {
                if channel.push(message) != Ok(true) {
                    break;
                }
            }
        }
        Kind::SeqPacket => {
            let mut byte = [0];
            while rustix::net::recv(&socket, &mut byte, RecvFlags::empty())?.0 == 1 {
                rustix::net::send(&socket, &byte, SendFlags::NOSIGNAL)?;
            }
        }
    }
    Ok(())
}

fn serve(channel: Channel, policy: WaitPolicy) {
    let (server, mut executor) = Server::new(channel, policy);
    let mut work = ServerWork::default();
    executor.spawner().spawn(1, async move {
        while let Ok(request) = server.recv().await {
            let message = request.message();
            let answer = match message.op() {
                WORK => {
                    work.run(message.sock());
                    let byte = message.bytes().first().copied().unwrap_or_default();
                    Message::new(0).with_bytes(&[byte.wrapping_add(1)])
                }
                PAYLOAD => Ok(Message::new(0).with_arg(sum(&server, &request))),
                _ => Message::new(0)
                    .with_arg(server.counters().notifications)
                    .with_bytes(&cpu_ns().to_le_bytes()),
            };
            let Ok(answer) = answer else { return };
            if server.reply(request, answer).await.is_err() {
                return;
            }
        }
    });
    executor.run();
}

/// Returns the sum of the words in the request's buffer, or of the bytes in the message itself.
fn sum(server: &Server, request: &Request) -> u64 {
    match request.buffer() {
        Some(buffer) => {
            let add = |sums: [u64; 8], line: &[u64; 8]| {
                std::array::from_fn(|at| sums[at].wrapping_add(line[at]))
            };
            let sums = server.with_channel(|channel| channel.fold_lines(buffer, [0; 8], add));
            sums.into_iter().fold(0, u64::wrapping_add)
        }
        None => request
            .message()
            .bytes()
            .iter()
            .map(|byte| u64::from(*byte))
            .sum(),
    }
}

/// The work of the original's server per call: four squarings of a matrix.
#[derive(Default)]
struct ServerWork {
    matrix: Vec<u64>,
    square: Vec<u64>,
}

impl ServerWork {
    fn run(&mut self, rows: u32) {
        let rows = (rows as usize).min(MATRIX_MAX);
        if rows == 0 {
            return;
        }
        self.matrix.clear();
        self.matrix.resize(rows * rows, 1);
        self.square.resize(rows * rows, 0);
        for _ in 0..4 {
            for (row, squares) in self
                .matrix
                .chunks_exact(rows)
                .zip(self.square.chunks_exact_mut(rows))
            {
                for (column, square) in squares.iter_mut().enumerate() {
                    let factors = self.matrix.iter().skip(column).step_by(rows);
                    let products = row.iter().zip(factors).map(|(a, b)| a.wrapping_mul(*b));
                    *square = products.fold(0, u64::wrapping_add);
                }
            }
            std::mem::swap(&mut self.matrix, &mut self.square);
        }
        black_box(&self.matrix);
    }
}
