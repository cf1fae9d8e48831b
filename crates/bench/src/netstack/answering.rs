//! The side that answers bulk flows and echoes: the kernel, the stack in a thread of this process, or the stack in a
//! process of its own, as the product runs it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow, ensure};
use quictun_netstack::Config;
use quictun_stackd::netstackd;
use quictun_sys::NetNamespace;

use super::in_thread::{self, StackCounters};
use super::service::Service;
use super::{apart, device, load};
use crate::machine::{bind, bind_to};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Responder {
    /// The kernel, on its loopback device.
    Loopback,
    /// The stack in a thread of this process, with or without the device's offload.
    Stack { offload: bool },
    /// The stack in `quictun-netstackd`, and the application behind calls in a thread of this process.
    Apart,
}

pub(crate) struct RunningResponder {
    pub(crate) shared: Arc<StackCounters>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Files in which the kernel reports the run time of each part of the side.
    times: Vec<PathBuf>,
    netstackd: Option<Child>,
    addresses: Vec<(Service, SocketAddr)>,
}

impl Responder {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Loopback => "kernel loopback",
            Self::Stack { offload: true } => "stack, offload on",
            Self::Stack { offload: false } => "stack, offload off",
            Self::Apart => "stack behind calls",
        }
    }

    /// Starts the side for `duties`. The stack runs on the second core; an application behind calls runs on either
    /// core.
    pub(crate) fn start(
        self,
        duties: &[Service],
        v6: bool,
        cores: [usize; 2],
        network: &NetNamespace,
    ) -> Result<RunningResponder> {
        let host = if v6 { "fd77::1" } else { "10.77.0.1" };
        let host: IpAddr = host.parse()?;
        let addresses = duties
            .iter()
            .map(|service| (*service, (host, service.port()).into()));
        let mut answering = RunningResponder {
            shared: Arc::new(StackCounters::default()),
            threads: Vec::new(),
            times: Vec::new(),
            netstackd: None,
            addresses: addresses.collect(),
        };
        match self {
            Self::Loopback => answering.start_kernel(duties, v6, cores, network)?,
            Self::Stack { offload } => answering.start_thread(offload, cores, network)?,
            Self::Apart => answering.start_process(cores, network)?,
        }
        Ok(answering)
    }
}

impl RunningResponder {
    fn start_kernel(
        &mut self,
        duties: &[Service],
        v6: bool,
        cores: [usize; 2],
        network: &NetNamespace,
    ) -> Result<()> {
        let host = if v6 { "::1" } else { "127.0.0.1" };
        let address = SocketAddr::new(host.parse()?, 0);
        self.addresses.clear();
        for service in duties.iter().copied() {
            let listener = network.within(|| TcpListener::bind(address))?;
            self.addresses.push((service, listener.local_addr()?));
            self.spawn(move |shared| {
                bind(cores[1])?;
                load::serve(&listener, service, shared).context("serving a connection")
            })?;
        }
        Ok(())
    }

    fn start_thread(
        &mut self,
        offload: bool,
        cores: [usize; 2],
        network: &NetNamespace,
    ) -> Result<()> {
        let tun = network.within(|| device::create(offload));
        let tun = tun.context("creating a TUN device")?;
        let config = Config {
            offload,
            ..Config::default()
        };
        self.spawn(move |shared| {
            bind(cores[1])?;
            in_thread::serve(tun, config, shared)
        })
    }

    fn start_process(&mut self, cores: [usize; 2], network: &NetNamespace) -> Result<()> {
        let tun = network.within(|| device::create(true));
        let tun = tun.context("creating a TUN device")?;
        let (ours, theirs) = quictun_ipc::sockets().context("creating a socket pair")?;
        let device = tun
            .as_fd()
            .try_clone_to_owned()
            .context("duplicating the device's descriptor")?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command
            .arg0(netstackd::NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(device));
        // A child process inherits the core of the thread that starts it.
        bind(cores[1])?;
        let child = command.spawn();
        bind(cores[0])?;
        let child = child.context("starting the process with the network stack")?;
        let time = PathBuf::from(format!("/proc/{}/schedstat", child.id()));
        self.netstackd = Some(child);
        self.times.push(time);
        let (tell, told) = channel();
        self.spawn(move |shared| {
            tell.send(rustix::thread::gettid())?;
            bind_to(&cores)?;
            apart::answer(ours, &shared.bytes, &shared.stop)
                .context("calling the process with the network stack")
        })?;
        let thread = told.recv().context("the thread has not started")?;
        let time = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
        self.times.push(time.into());
        Ok(())
    }

    fn spawn(
        &mut self,
        serve: impl FnOnce(&StackCounters) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let work = thread::Builder::new().spawn(move || serve(&shared));
        self.threads.push(work.context("starting a thread")?);
        Ok(())
    }

    pub(crate) fn address(&self, service: Service) -> Result<SocketAddr> {
        let mut all = self.addresses.iter();
        let found = all.find(|(known, _)| *known == service);
        found
            .map(|(_, address)| *address)
            .context("no side serves this duty")
    }

    /// Returns the processor time of the side so far, in nanoseconds, including the kernel's work on its behalf.
    pub(crate) fn busy(&self) -> Result<u64> {
        let mut busy = self.shared.busy_ns.load(Ordering::Relaxed);
        for path in &self.times {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading {}", path.display()))?;
            let nanos = text
                .split(' ')
                .next()
                .and_then(|word| word.parse::<u64>().ok());
            busy += nanos.with_context(|| {
                format!(
                    "{} does not begin with a time in nanoseconds",
                    path.display()
                )
            })?;
        }
        Ok(busy)
    }

    /// Returns the resident memory of the side and of this process, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        let mut kib = 0;
        let netstackd = self.netstackd.as_ref().map(|child| child.id().to_string());
        for process in ["self".to_owned()].into_iter().chain(netstackd) {
            let path = format!("/proc/{process}/status");
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
            let mut words = text.lines().filter_map(|line| line.strip_prefix("VmRSS:"));
            let said = words
                .next()
                .and_then(|rest| rest.trim().strip_suffix(" kB"));
            let said = said.and_then(|number| number.parse::<u64>().ok());
            kib += said.with_context(|| format!("no VmRSS in {path}"))?;
        }
        Ok(1024 * kib)
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| anyhow!("the answering thread panicked"))??;
        }
        // Without an application, netstackd ends.
        if let Some(mut child) = self.netstackd.take() {
            let status = child
                .wait()
                .context("waiting for the process with the stack")?;
            ensure!(status.success(), "the stack's process failed: {status}");
        }
        Ok(())
    }
}

impl Drop for RunningResponder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(child) = &mut self.netstackd {
            // The process may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
