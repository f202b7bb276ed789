//! Closes what clients hand over, on threads of its own.
//!
//! The last close of a descriptor can block: a socket waits as long as its owner has set
//! (`SO_LINGER`), a file system may not answer at all. The serving thread therefore closes no
//! descriptor of a client. Each user has a queue, which one thread at a time empties in order. A close
//! that hangs delays its own user only.
//!
//! No thread here reads a clock. The serving thread passes the time to [`DeferredClose::trouble`] and
//! [`DeferredClose::answer_late`], and the age of a close counts from the first of these calls that finds it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::scm_rights;

/// Pending closes and the threads that execute them. Clones share both.
#[derive(Clone, Debug, Default)]
pub(super) struct DeferredClose(Arc<Shared>);

impl DeferredClose {
    /// Shuts a client's connection down, which the client sees at once, and queues the close. Unread
    /// messages may hold descriptors, which the kernel closes with the socket.
    pub(super) fn hang_up(&self, user: u32, socket: Arc<OwnedFd>) {
        // SAFETY: takes numbers and touches no memory.
        unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        self.put(user, Target::Client(socket), None);
    }

    /// Closes the connection of a client on the calling thread. No unread message holds a descriptor.
    pub(super) fn hang_up_now(socket: OwnedFd) {
        Target::Client(Arc::new(socket)).close();
    }

    /// Discards the next message of a client and then sends `message`. The kernel closes the
    /// descriptors of the discarded message without installing them, so no descriptor number is used.
    pub(super) fn discard(&self, user: u32, socket: &Arc<OwnedFd>, message: Vec<u8>) {
        let to = Arc::clone(socket);
        let target = Target::Message(Arc::clone(socket));
        self.put(user, target, Some(Answer { to, message }));
    }

    /// Upper bound of descriptors that wait for their close: full queues of as many users as can hang
    /// at once, one more message each, and the sockets of their clients.
    pub(super) const fn most_kept(clients_per_user: u32) -> u32 {
        MOST_THREADS * (MOST_WAITING as u32 + scm_rights::MAX_DESCRIPTORS + clients_per_user)
    }

    /// Whether any close is pending.
    pub(super) fn is_busy(&self) -> bool {
        !self.0.lock().lanes.is_empty()
    }

    /// Sends the answers that wait behind a close that hangs, and starts the threads that could not be
    /// started before.
    pub(super) fn answer_late(&self, now: Instant) {
        let mut late = Vec::new();
        let mut state = self.0.lock();
        for lane in state.lanes.values_mut() {
            if lane.hangs(now).is_some() {
                late.extend(lane.answer.take());
                let waiting = lane.waiting.iter_mut();
                late.extend(waiting.filter_map(|item| item.answer.take()));
            }
        }
        self.start_threads(&mut state);
        drop(state);
        late.into_iter().for_each(Answer::send);
    }

    /// Why the daemon takes no more descriptors of a user; `None` if it does.
    pub(super) fn trouble(&self, user: u32, now: Instant) -> Option<String> {
        let mut state = self.0.lock();
        let lane = state.lanes.get_mut(&user)?;
        let (what, for_long) = match lane.hangs(now) {
            Some(t) if !lane.is_at_work => {
                return Some(format!(
                    "what user {user} handed over waits since {} s for a thread that closes it, and nothing more is taken from this user until it is done: raise the daemon's limit of threads (ulimit -u, TasksMax=), or end clients of other users whose descriptors hang",
                    t.as_secs()
                ));
            }
            Some(t) => ("closing a descriptor", format!(" since {} s", t.as_secs())),
            None if lane.waiting.len() >= MOST_WAITING => ("closing descriptors", String::new()),
            None => return None,
        };
        Some(format!(
            "{what} that user {user} handed over hangs{for_long}, and nothing more is taken from this user until it is done: close sockets without SO_LINGER, or after the subscription, and hand over TCP sockets only"
        ))
    }

    /// Whether the queue of a user is full.
    pub(super) fn is_too_much(&self, user: u32) -> bool {
        let state = self.0.lock();
        let waiting = state.lanes.get(&user).map_or(0, |lane| lane.waiting.len());
        waiting >= MOST_WAITING
    }

    fn put(&self, user: u32, target: Target, answer: Option<Answer>) {
        let mut state = self.0.lock();
        let lane = state.lanes.entry(user).or_default();
        lane.waiting.push_back(Item { target, answer });
        self.start_threads(&mut state);
    }

    /// Starts a thread for each queue that has none, up to [`MOST_THREADS`]. If the system refuses one
    /// the queue waits for the next call, or for a thread that has emptied its own queue.
    fn start_threads(&self, state: &mut State) {
        while state.threads < MOST_THREADS
            && let Some((&user, lane)) = state.lanes.iter_mut().find(|(_, lane)| !lane.is_at_work)
        {
            let shared = Arc::clone(&self.0);
            let thread = thread::Builder::new().name(NAME.into());
            if thread.spawn(move || shared.work(user)).is_err() {
                return;
            }
            lane.begin();
            state.threads += 1;
        }
    }
}

/// A descriptor that a client has handed over. It stays open even if its owner closes it, so dropping
/// this queues the close, and never waits for it.
#[derive(Debug)]
pub(super) struct ReceivedFd {
    fd: Option<OwnedFd>,
    user: u32,
    closing: DeferredClose,
}

impl ReceivedFd {
    pub(super) fn new(fd: OwnedFd, user: u32, closing: &DeferredClose) -> Self {
        Self {
            fd: Some(fd),
            user,
            closing: closing.clone(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref();
        fd.expect("the descriptor is present until the drop")
            .as_fd()
    }

    /// Closes the descriptor and then sends `message` to its owner. From then on the owner's copy is
    /// the last one, and closing it takes effect as if the daemon never had a copy.
    pub(super) fn close_and_answer(mut self, to: &Arc<OwnedFd>, message: Vec<u8>) {
        let to = Arc::clone(to);
        self.close(Some(Answer { to, message }));
    }

    fn close(&mut self, answer: Option<Answer>) {
        if let Some(fd) = self.fd.take() {
            self.closing.put(self.user, Target::ReceivedFd(fd), answer);
        }
    }
}

impl Drop for ReceivedFd {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// A reply that is sent once the descriptor of its request is closed.
#[derive(Debug)]
struct Answer {
    to: Arc<OwnedFd>,
    message: Vec<u8>,
}

impl Answer {
    /// A client that takes no replies is disconnected; the serving thread sees the shutdown.
    fn send(self) {
        if scm_rights::send(self.to.as_fd(), &self.message, None).is_err() {
            // SAFETY: takes numbers and touches no memory.
            unsafe { libc::shutdown(self.to.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

#[derive(Debug)]
struct Item {
    target: Target,
    answer: Option<Answer>,
}

#[derive(Debug)]
enum Target {
    /// The socket of a client, with its unread messages.
    Client(Arc<OwnedFd>),
    ReceivedFd(OwnedFd),
    /// The next message in a client's socket.
    Message(Arc<OwnedFd>),
}

impl Target {
    fn close(self) {
        match self {
            Self::ReceivedFd(fd) => drop(fd),
            Self::Message(socket) => {
                // It fails if the client is gone, and then its messages are too.
                let _ = scm_rights::discard(socket.as_fd());
            }
            Self::Client(socket) => {
                // The kernel reports unread data to the client as an error, which would precede our
                // last reply. An empty message looks like the end of the stream, so the loop does not
                // stop there; the bound exceeds what a queue holds.
                for _ in 0..MOST_QUEUED {
                    if scm_rights::discard(socket.as_fd()).is_err() {
                        break;
                    }
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The queues by user. A user without pending closes has none.
    lanes: BTreeMap<u32, Lane>,
    threads: u32,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Item>,
    /// Whether a thread works on this queue.
    is_at_work: bool,
    /// When a caller that knows the time first saw the present close, or the wait for a thread.
    since: Option<Instant>,
    /// The reply behind the present close.
    answer: Option<Answer>,
}

impl Lane {
    /// A thread takes the queue over.
    fn begin(&mut self) {
        self.is_at_work = true;
        self.since = None;
    }

    /// The age of the present close, or of the wait for a thread, if it is over the limit.
    fn hangs(&mut self, now: Instant) -> Option<Duration> {
        let long = now.saturating_duration_since(*self.since.get_or_insert(now));
        (long >= HANGS).then_some(long)
    }
}

impl State {
    /// Begins the next close of a queue.
    fn next(&mut self, user: u32) -> Option<Target> {
        let lane = self.lanes.get_mut(&user)?;
        let next = lane.waiting.pop_front()?;
        lane.answer = next.answer;
        Some(next.target)
    }

    /// Ends the present close of a queue: the reply that is due, and the queue that the thread works
    /// on next. Without one the thread ends.
    fn done(&mut self, user: u32) -> (Option<Answer>, Option<u32>) {
        let lane = self.lanes.get_mut(&user);
        let answer = lane.and_then(|lane| {
            lane.since = None;
            lane.answer.take()
        });
        if self.lanes.get(&user).is_some_and(|l| !l.waiting.is_empty()) {
            return (answer, Some(user));
        }
        self.lanes.remove(&user);
        let mut lanes = self.lanes.iter_mut();
        let next = lanes.find(|(_, lane)| !lane.is_at_work);
        let next = next.map(|(&user, lane)| {
            lane.begin();
            user
        });
        self.threads -= u32::from(next.is_none());
        (answer, next)
    }
}

impl Shared {
    fn work(&self, mut user: u32) {
        loop {
            let target = self.lock().next(user);
            if let Some(target) = target {
                target.close();
            }
            let (answer, next) = self.lock().done(user);
            if let Some(answer) = answer {
                answer.send();
            }
            let Some(next) = next else { return };
            user = next;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// DeferredClose takes microseconds unless the owner of the descriptor makes it last.
const HANGS: Duration = Duration::from_secs(2);
/// Queue length of a user: more than one message can hold.
const MOST_WAITING: usize = 512;
/// Users whose closes can hang at once without delaying others.
const MOST_THREADS: u32 = 64;
/// Messages in a socket: the sender's buffer has room for some 280.
const MOST_QUEUED: u32 = 512;
const NAME: &str = "tg-close";

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::system::{self, Polled, set_option};

    /// Runs a test on a thread with a descriptor table of its own. Other tests of this process fork,
    /// and until such a child executes a program it has copies of all descriptors of its parent. A
    /// close is not the last one then: it does not hang here, and hangs in the child.
    fn unshared(test: impl FnOnce() + Send) {
        thread::scope(|scope| {
            let test = scope.spawn(|| {
                // SAFETY: this thread has used no descriptor before, and closes no foreign one.
                unsafe { system::own_descriptors(&[]) }.unwrap();
                test();
            });
            test.join().unwrap();
        });
    }

    /// A socket whose close waits until its peer is gone, and that peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 1 << 13]).is_ok() {}
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 600,
        };
        set_option(ours.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
        // The close of a non-blocking socket does not wait.
        ours.set_nonblocking(false).unwrap();
        (ours.into(), peer)
    }

    /// Both ends of a pipe. The reader sees when the writer is closed.
    fn marked() -> (io::PipeReader, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, writer.into())
    }

    /// Waits until the writer is closed.
    fn hear_end(mut reader: io::PipeReader) {
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    /// A client that receives replies of one byte.
    struct Heard(OwnedFd);

    impl Heard {
        fn pair() -> (Self, Arc<OwnedFd>) {
            let [client, ours] = system::local_pair().unwrap();
            (Self(client), Arc::new(ours))
        }

        /// Waits for the next reply.
        fn next(&self) -> u8 {
            let mut said = [0; 8];
            scm_rights::receive(self.0.as_fd(), &mut said).unwrap();
            said[0]
        }

        fn is_silent(&self) -> bool {
            let mut polled = [Polled::input(self.0.as_fd())];
            system::poll(&mut polled, Some(Duration::ZERO)).unwrap();
            !polled[0].is_ready()
        }
    }

    #[test]
    fn a_user_waits_for_his_own_descriptors_and_nobody_elses() {
        unshared(|| {
            let closing = DeferredClose::default();
            let (hangs, peer) = lingering();
            drop(ReceivedFd::new(hangs, 7, &closing));
            let (behind, own) = marked();
            drop(ReceivedFd::new(own, 7, &closing));
            let now = Instant::now();
            assert_eq!(closing.trouble(7, now), None);
            let (heard, ours) = Heard::pair();
            for user in 8..8 + MOST_THREADS - 1 {
                let (reader, writer) = marked();
                ReceivedFd::new(writer, user, &closing).close_and_answer(&ours, vec![1]);
                hear_end(reader);
                // A reply comes when the queue is done with the descriptor.
                assert_eq!(heard.next(), 1);
            }
            let late = now + HANGS;
            let why = closing.trouble(7, late).unwrap();
            assert!(why.contains("user 7 handed over hangs since 2 s"), "{why}");
            assert_eq!(closing.trouble(9, late), None);
            drop(peer);
            hear_end(behind);
        });
    }

    #[test]
    fn the_age_of_a_close_counts_from_its_own_beginning() {
        unshared(|| {
            let closing = DeferredClose::default();
            let (first, first_peer) = lingering();
            let (second, second_peer) = lingering();
            let (heard, ours) = Heard::pair();
            ReceivedFd::new(first, 7, &closing).close_and_answer(&ours, vec![1]);
            drop(ReceivedFd::new(second, 7, &closing));
            let now = Instant::now();
            assert_eq!(closing.trouble(7, now), None);
            drop(first_peer);
            assert_eq!(heard.next(), 1);
            assert_eq!(closing.trouble(7, now + HANGS), None);
            assert!(closing.trouble(7, now + 2 * HANGS).is_some());
            drop(second_peer);
        });
    }

    #[test]
    fn answers_come_when_the_descriptor_is_closed_or_hangs() {
        unshared(|| {
            let closing = DeferredClose::default();
            let (heard, ours) = Heard::pair();
            let answer = |fd, word: u8| {
                ReceivedFd::new(fd, 7, &closing).close_and_answer(&ours, vec![word]);
            };
            answer(marked().1, 1);
            assert_eq!(heard.next(), 1);
            let (hangs, peer) = lingering();
            answer(hangs, 2);
            answer(marked().1, 3);
            let now = Instant::now();
            closing.answer_late(now);
            closing.answer_late(now + HANGS / 2);
            assert!(heard.is_silent());
            closing.answer_late(now + HANGS);
            assert_eq!([heard.next(), heard.next()], [2, 3]);
            assert!(heard.is_silent());
            answer(marked().1, 4);
            assert!(closing.is_busy() && heard.is_silent());
            drop(peer);
            assert_eq!(heard.next(), 4);
        });
    }

    /// A queue without a thread gets one later, and its user is told meanwhile.
    #[test]
    fn a_lane_without_a_thread_gets_one_as_soon_as_there_is_one() {
        unshared(|| {
            for again in [DeferredClose::answer_late, put_another] {
                let closing = DeferredClose::default();
                // As if all were at other queues.
                closing.0.lock().threads = MOST_THREADS;
                let (heard, ours) = Heard::pair();
                let (reader, writer) = marked();
                ReceivedFd::new(writer, 7, &closing).close_and_answer(&ours, vec![1]);
                let now = Instant::now();
                assert_eq!(closing.trouble(7, now), None);
                closing.answer_late(now + HANGS);
                assert_eq!(heard.next(), 1);
                let why = closing.trouble(7, now + HANGS).unwrap();
                assert!(why.contains("limit of threads"), "{why}");
                closing.0.lock().threads = 0;
                again(&closing, now);
                hear_end(reader);
            }
        });
    }

    fn put_another(closing: &DeferredClose, _now: Instant) {
        drop(ReceivedFd::new(marked().1, 7, closing));
    }

    #[test]
    fn a_thread_that_is_done_takes_over_a_queue_without_one() {
        let mut state = State {
            threads: 1,
            ..State::default()
        };
        for user in [7, 8] {
            state
                .lanes
                .entry(user)
                .or_default()
                .waiting
                .push_back(Item {
                    target: Target::ReceivedFd(marked().1),
                    answer: None,
                });
        }
        state.lanes.entry(7).or_default().begin();
        assert!(state.next(7).is_some());
        assert!(matches!(state.done(7), (None, Some(8))));
        assert!(state.next(8).is_some());
        assert!(matches!(state.done(8), (None, None)));
        assert_eq!((state.threads, state.lanes.len()), (0, 0));
    }

    #[test]
    fn what_one_user_may_leave_is_bounded() {
        unshared(|| {
            let closing = DeferredClose::default();
            let (hangs, peer) = lingering();
            let (heard, ours) = Heard::pair();
            let (begun, writer) = marked();
            drop(ReceivedFd::new(writer, 7, &closing));
            drop(ReceivedFd::new(hangs, 7, &closing));
            // Then the next close has begun or is about to, and does not wait in the queue.
            hear_end(begun);
            while !closing.0.lock().lanes[&7].waiting.is_empty() {
                thread::yield_now();
            }
            for _ in 0..MOST_WAITING {
                assert!(!closing.is_too_much(7));
                drop(ReceivedFd::new(marked().1, 7, &closing));
            }
            assert!(closing.is_too_much(7) && !closing.is_too_much(8));
            assert!(closing.trouble(7, Instant::now()).is_some());
            let (_, writer) = marked();
            ReceivedFd::new(writer, 7, &closing).close_and_answer(&ours, vec![1]);
            drop(peer);
            assert_eq!(heard.next(), 1);
            assert!(!closing.is_too_much(7));
        });
    }
}
