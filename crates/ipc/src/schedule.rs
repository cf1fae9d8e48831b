//! The coroutines that can continue, by priority.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use quictun_shmq::Alarm;

/// Number of priorities; 0 is the highest.
pub const PRIORITIES: usize = 8;

pub(crate) type TaskId = u32;

#[derive(Debug)]
pub(crate) struct Scheduler {
    queues: RefCell<Queues>,
    /// The task that runs, and the data pointer of its waker.
    running: Cell<(TaskId, *const ())>,
    remote: Arc<RemoteWakes>,
}

/// The coroutines that can continue: one queue for each priority, linked through the entries.
#[derive(Debug)]
pub(crate) struct Queues {
    /// One bit for each priority whose queue is not empty.
    waiting: u32,
    ready: [Queue; PRIORITIES],
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: TaskId,
    last: TaskId,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    priority: u8,
    queued: bool,
    /// The next task in the queue, unless this is the last.
    next: TaskId,
}

/// Tasks woken by other threads, or by wakers outside this executor.
#[derive(Debug)]
struct RemoteWakes {
    some: AtomicBool,
    tasks: Mutex<Vec<TaskId>>,
    alarm: Alarm,
}

#[derive(Debug)]
pub(crate) enum WakeTarget {
    /// Wakes a coroutine by its number, without reference counting, cloning or locking.
    Task(TaskId),
    /// Wakes a future between the executor and the coroutine, through its own waker.
    Other(Waker),
    None,
}

impl Scheduler {
    pub(crate) fn new(alarm: Alarm) -> Self {
        Self {
            queues: RefCell::new(Queues {
                waiting: 0,
                ready: [Queue { first: 0, last: 0 }; PRIORITIES],
                entries: Vec::new(),
            }),
            running: Cell::new((TaskId::MAX, std::ptr::null())),
            remote: Arc::new(RemoteWakes {
                some: AtomicBool::new(false),
                tasks: Mutex::default(),
                alarm,
            }),
        }
    }

    /// Makes the coroutine ready and returns a waker for it.
    pub(crate) fn enter(&self, task: TaskId, priority: usize) -> Waker {
        let queues = &mut *self.queues.borrow_mut();
        if queues.entries.len() <= task as usize {
            let entry = Entry {
                priority: 0,
                queued: false,
                next: 0,
            };
            queues.entries.resize(task as usize + 1, entry);
        }
        let priority = u8::try_from(priority.min(PRIORITIES - 1)).unwrap_or_default();
        queues.entries[task as usize].priority = priority;
        queues.push(task);
        let remote = self.remote.clone();
        Waker::from(Arc::new(RemoteTask { task, remote }))
    }

    #[inline]
    pub(crate) fn wake(&self, wake_target: WakeTarget) {
        match wake_target {
            WakeTarget::Task(task) => self.queues.borrow_mut().push(task),
            WakeTarget::Other(waker) => waker.wake(),
            WakeTarget::None => {}
        }
    }

    #[inline]
    pub(crate) fn queues(&self) -> RefMut<'_, Queues> {
        self.queues.borrow_mut()
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<TaskId> {
        self.queues.borrow_mut().pop()
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.queues.borrow().waiting != 0
    }

    #[inline]
    pub(crate) fn collect(&self) {
        // Pairs with the Release in `wake_by_ref`.
        if self.remote.some.load(Ordering::Relaxed)
            && self.remote.some.swap(false, Ordering::Acquire)
        {
            let mut tasks = self
                .remote
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let mut queues = self.queues.borrow_mut();
            for task in tasks.drain(..) {
                queues.push(task);
            }
        }
    }

    pub(crate) fn has_remote(&self) -> bool {
        self.remote.some.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_running(&self, task: TaskId, waker: &Waker) {
        self.running.set((task, waker.data()));
    }

    /// Returns how to wake the task that is being polled with `waker`.
    #[inline(always)]
    pub(crate) fn wake_target(&self, waker: &Waker) -> WakeTarget {
        let (task, own) = self.running.get();
        if std::ptr::eq(waker.data(), own) {
            WakeTarget::Task(task)
        } else {
            WakeTarget::Other(waker.clone())
        }
    }
}

impl Queues {
    #[inline]
    pub(crate) fn push(&mut self, task: TaskId) {
        let Some(entry) = self.entries.get_mut(task as usize) else {
            return;
        };
        if std::mem::replace(&mut entry.queued, true) {
            return;
        }
        let priority = usize::from(entry.priority) % PRIORITIES;
        let queue = &mut self.ready[priority];
        if self.waiting & 1 << priority == 0 {
            self.waiting |= 1 << priority;
            queue.first = task;
        } else if let Some(last) = self.entries.get_mut(queue.last as usize) {
            last.next = task;
        }
        queue.last = task;
    }

    #[inline]
    fn pop(&mut self) -> Option<TaskId> {
        if self.waiting == 0 {
            return None;
        }
        let priority = self.waiting.trailing_zeros() as usize % PRIORITIES;
        let queue = &mut self.ready[priority];
        let task = queue.first;
        let entry = self.entries.get_mut(task as usize)?;
        entry.queued = false;
        if task == queue.last {
            self.waiting &= !(1 << priority);
        } else {
            queue.first = entry.next;
        }
        Some(task)
    }
}

#[derive(Debug)]
struct RemoteTask {
    task: TaskId,
    remote: Arc<RemoteWakes>,
}

impl Wake for RemoteTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let remote = &self.remote;
        {
            let mut tasks = remote.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            // The list is at most as long as the number of coroutines.
            if !tasks.contains(&self.task) {
                tasks.push(self.task);
            }
            // Pairs with the Acquire in `collect`.
            remote.some.store(true, Ordering::Release);
        }
        remote.alarm.ring();
    }
}
