//! Closes the descriptors that clients send, on threads of its own.
//!
//! The last close of a descriptor can block: a socket waits as long as its owner has set
//! (`SO_LINGER`), a file system may not answer at all. The serving thread therefore closes no
//! descriptor of a client. Each user has a queue, which one thread at a time empties in order. A
//! close that hangs delays its own user only.
//!
//! No thread here reads a clock. The serving thread passes the time to [`DeferredClose::refusal`]
//! and [`DeferredClose::answer_overdue`], and the age of a close counts from the first of these
//! calls that finds it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use crate::scm_rights;
use crate::system;

/// Pending closes and the threads that execute them. Clones share both.
#[derive(Clone, Default)]
pub(super) struct DeferredClose(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The queues by user. A user without pending closes has none.
    queues: BTreeMap<u32, Queue>,
    threads: u32,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Close, Option<Answer>)>,
    /// Whether a thread works on this queue.
    has_thread: bool,
    /// When a caller that knows the time first saw the present close, or the wait for a thread.
    since: Option<Instant>,
    /// The reply behind the present close.
    answer: Option<Answer>,
}

/// Closes something of a client, which may block.
type Close = Box<dyn FnOnce() + Send>;

/// A reply that is sent once the descriptor of its request is closed.
struct Answer {
    to: Arc<OwnedFd>,
    message: Vec<u8>,
}

impl DeferredClose {
    /// Shuts a client's connection down, which the client sees at once, and queues the close.
    /// Unread messages may hold descriptors, which the kernel closes with the socket.
    pub(super) fn disconnect(&self, user: u32, socket: Arc<OwnedFd>) {
        // It fails if the client has closed its end.
        let _ = shutdown(&socket, Shutdown::Both);
        self.enqueue(user, None, move || close_client(&socket));
    }

    /// Closes the connection of a client on the calling thread. No unread message holds a
    /// descriptor.
    pub(super) fn disconnect_now(socket: &OwnedFd) {
        close_client(socket);
    }

    /// Discards the next message of a client and then sends `message`. The kernel closes the
    /// descriptors of the discarded message without installing them, so no descriptor number is
    /// used.
    pub(super) fn discard(&self, user: u32, socket: &Arc<OwnedFd>, message: Vec<u8>) {
        let to = Arc::clone(socket);
        let socket = Arc::clone(socket);
        self.enqueue(user, Some(Answer { to, message }), move || {
            // It fails if the client is gone, and then its messages are too.
            let _ = scm_rights::discard(socket.as_fd());
        });
    }

    /// Upper bound of descriptors that wait for their close: full queues of as many users as can
    /// hang at once, one more message each, and the sockets of their clients.
    pub(super) const fn max_pending(clients_per_user: u32) -> u32 {
        MAX_THREADS * (MAX_QUEUE as u32 + scm_rights::MAX_DESCRIPTORS + clients_per_user)
    }

    /// Whether any close is pending.
    pub(super) fn is_busy(&self) -> bool {
        !self.lock().queues.is_empty()
    }

    /// Sends the answers that wait behind an overdue close, and starts the threads that could not
    /// be started before.
    pub(super) fn answer_overdue(&self, now: Instant) {
        let mut late = Vec::new();
        let mut state = self.lock();
        for queue in state.queues.values_mut() {
            if queue.overdue(now).is_some() {
                late.extend(queue.answer.take());
                let waiting = queue.waiting.iter_mut();
                late.extend(waiting.filter_map(|(_, answer)| answer.take()));
            }
        }
        self.start_threads(&mut state);
        drop(state);
        late.into_iter().for_each(Answer::send);
    }

    /// Reason why the daemon takes no more descriptors of a user; `None` if it does.
    pub(super) fn refusal(&self, user: u32, now: Instant) -> Option<String> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(&user)?;
        let age = queue.overdue(now);
        if let Some(age) = age.filter(|_| !queue.has_thread) {
            return Some(format!(
                "descriptors of user {user} wait since {} s for a thread that closes them, and no more are accepted from this user until then: raise the daemon's limit of threads (ulimit -u, TasksMax=), or stop clients of other users whose descriptors hang",
                age.as_secs()
            ));
        }
        if age.is_none() && queue.waiting.len() < MAX_QUEUE {
            return None;
        }
        let since = age.map(|age| format!(" since {} s", age.as_secs()));
        Some(format!(
            "closing descriptors of user {user} hangs{}, and no more are accepted from this user until they are closed: close sockets without SO_LINGER, or after the subscription, and send TCP sockets only",
            since.unwrap_or_default()
        ))
    }

    /// Whether the queue of a user is full.
    pub(super) fn is_full(&self, user: u32) -> bool {
        let state = self.lock();
        let queue = state.queues.get(&user);
        queue.is_some_and(|queue| queue.waiting.len() >= MAX_QUEUE)
    }

    fn enqueue(&self, user: u32, answer: Option<Answer>, close: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        let queue = state.queues.entry(user).or_default();
        queue.waiting.push_back((Box::new(close), answer));
        self.start_threads(&mut state);
    }

    /// Starts a thread for each queue that has none, up to [`MAX_THREADS`]. If the system refuses
    /// one the queue waits for the next call.
    fn start_threads(&self, state: &mut State) {
        for (&user, queue) in state
            .queues
            .iter_mut()
            .filter(|(_, queue)| !queue.has_thread)
        {
            let this = self.clone();
            if state.threads >= MAX_THREADS
                || system::spawn("tg-close", move || this.work(user)).is_err()
            {
                return;
            }
            queue.has_thread = true;
            queue.since = None;
            state.threads += 1;
        }
    }

    /// Empties the queue of a user.
    fn work(&self, user: u32) {
        let next = || self.lock().next(user);
        while let Some(close) = next() {
            close();
            let answer = self.lock().closed(user);
            if let Some(answer) = answer {
                answer.send();
            }
        }
        // Another queue may wait for a thread.
        self.start_threads(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Begins the next close of a queue. Without one the queue is removed and its thread ends.
    fn next(&mut self, user: u32) -> Option<Close> {
        let queue = self.queues.get_mut(&user)?;
        if let Some((close, answer)) = queue.waiting.pop_front() {
            queue.answer = answer;
            return Some(close);
        }
        self.queues.remove(&user);
        self.threads -= 1;
        None
    }

    /// The present close of a queue has ended; returns the reply that is due.
    fn closed(&mut self, user: u32) -> Option<Answer> {
        let queue = self.queues.get_mut(&user)?;
        queue.since = None;
        queue.answer.take()
    }
}

impl Queue {
    /// The age of the present close, or of the wait for a thread, if it is over the limit.
    fn overdue(&mut self, now: Instant) -> Option<Duration> {
        let long = now.saturating_duration_since(*self.since.get_or_insert(now));
        (long >= OVERDUE).then_some(long)
    }
}

impl Answer {
    /// A client that takes no replies is disconnected; the serving thread sees the shutdown.
    fn send(self) {
        if scm_rights::send(self.to.as_fd(), &self.message, None).is_err() {
            let _ = shutdown(&self.to, Shutdown::Both);
        }
    }
}

/// Reads the messages of a client before its socket is closed: the kernel reports unread data to
/// the client as an error, which would precede our last reply. An empty message looks like the end
/// of the stream, so the loop does not stop there; the bound exceeds what a queue holds.
fn close_client(socket: &OwnedFd) {
    for _ in 0..MAX_MESSAGES {
        if scm_rights::discard(socket.as_fd()).is_err() {
            break;
        }
    }
}

/// A descriptor that a client has sent. It stays open even if its owner closes it, so dropping
/// this queues the close, and never waits for it.
pub(super) struct ReceivedFd {
    fd: Option<OwnedFd>,
    user: u32,
    closes: DeferredClose,
}

impl ReceivedFd {
    pub(super) fn new(fd: OwnedFd, user: u32, closes: &DeferredClose) -> Self {
        Self {
            fd: Some(fd),
            user,
            closes: closes.clone(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref();
        fd.expect("the descriptor is present until the drop")
            .as_fd()
    }

    /// Closes the descriptor and then sends `message` to its owner. From then on the owner's copy
    /// is the last one, and closes it takes effect as if the daemon never had a copy.
    pub(super) fn close_and_answer(mut self, to: &Arc<OwnedFd>, message: Vec<u8>) {
        let to = Arc::clone(to);
        self.close(Some(Answer { to, message }));
    }

    fn close(&mut self, answer: Option<Answer>) {
        if let Some(fd) = self.fd.take() {
            self.closes.enqueue(self.user, answer, move || drop(fd));
        }
    }
}

impl Drop for ReceivedFd {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// A close takes microseconds unless the owner of the descriptor makes it last.
const OVERDUE: Duration = Duration::from_secs(2);
/// Queue length of a user: more than one message can hold.
const MAX_QUEUE: usize = 512;
/// Users whose closes can hang at once without delaying others.
const MAX_THREADS: u32 = 64;
/// Messages in a socket: the sender's buffer has room for some 280.
const MAX_MESSAGES: u32 = 512;

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use rustix::net::sockopt::set_socket_linger;

    use super::*;
    use crate::system::{input, is_ready};

    /// Runs a test on a thread with a descriptor table of its own. Other tests of this process
    /// fork, and until such a child executes a program it has copies of all descriptors of its
    /// parent. A close is not the last one then: it does not hang here, but in the child.
    fn unshared(test: impl FnOnce() + Send) {
        thread::scope(|scope| {
            let test = scope.spawn(|| {
                // SAFETY: this thread has used no descriptor before, and closes no foreign one.
                unsafe { system::unshare_descriptors(&[]) }.unwrap();
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
        set_socket_linger(&ours, Some(Duration::from_mins(10))).unwrap();
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
    fn wait_for_close(mut reader: io::PipeReader) {
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    /// A client that receives replies of one byte.
    struct Client(OwnedFd);

    impl Client {
        fn pair() -> (Self, Arc<OwnedFd>) {
            let [client, ours] = system::local_pair().unwrap();
            (Self(client), Arc::new(ours))
        }

        /// Waits for the next reply.
        fn next(&self) -> u8 {
            let mut reply = [0; 8];
            scm_rights::receive(self.0.as_fd(), &mut reply).unwrap();
            reply[0]
        }

        fn is_silent(&self) -> bool {
            let mut polled = [input(self.0.as_fd())];
            system::poll(&mut polled, Some(Duration::ZERO)).unwrap();
            !is_ready(&polled[0])
        }
    }

    #[test]
    fn a_hanging_close_delays_its_own_user_only() {
        unshared(|| {
            let closes = DeferredClose::default();
            let (overdue, peer) = lingering();
            drop(ReceivedFd::new(overdue, 7, &closes));
            let (behind, own) = marked();
            drop(ReceivedFd::new(own, 7, &closes));
            let now = Instant::now();
            assert_eq!(closes.refusal(7, now), None);
            let (client, ours) = Client::pair();
            for user in 8..8 + MAX_THREADS - 1 {
                let (reader, writer) = marked();
                ReceivedFd::new(writer, user, &closes).close_and_answer(&ours, vec![1]);
                wait_for_close(reader);
                // The reply comes after the queue has removed the close.
                assert_eq!(client.next(), 1);
            }
            let late = now + OVERDUE;
            let why = closes.refusal(7, late).unwrap();
            assert!(why.contains("user 7 hangs since 2 s"), "{why}");
            assert_eq!(closes.refusal(9, late), None);
            drop(peer);
            wait_for_close(behind);
        });
    }

    #[test]
    fn the_age_of_a_close_counts_from_its_own_beginning() {
        unshared(|| {
            let closes = DeferredClose::default();
            let (first, first_peer) = lingering();
            let (second, second_peer) = lingering();
            let (client, ours) = Client::pair();
            ReceivedFd::new(first, 7, &closes).close_and_answer(&ours, vec![1]);
            drop(ReceivedFd::new(second, 7, &closes));
            let now = Instant::now();
            assert_eq!(closes.refusal(7, now), None);
            drop(first_peer);
            assert_eq!(client.next(), 1);
            assert_eq!(closes.refusal(7, now + OVERDUE), None);
            assert!(closes.refusal(7, now + 2 * OVERDUE).is_some());
            drop(second_peer);
        });
    }

    #[test]
    fn replies_are_sent_when_the_descriptor_is_closed_or_overdue() {
        unshared(|| {
            let closes = DeferredClose::default();
            let (client, ours) = Client::pair();
            let answer = |fd, word: u8| {
                ReceivedFd::new(fd, 7, &closes).close_and_answer(&ours, vec![word]);
            };
            answer(marked().1, 1);
            assert_eq!(client.next(), 1);
            let (overdue, peer) = lingering();
            answer(overdue, 2);
            answer(marked().1, 3);
            let now = Instant::now();
            closes.answer_overdue(now);
            closes.answer_overdue(now + OVERDUE / 2);
            assert!(client.is_silent());
            closes.answer_overdue(now + OVERDUE);
            assert_eq!([client.next(), client.next()], [2, 3]);
            assert!(client.is_silent());
            answer(marked().1, 4);
            assert!(closes.is_busy() && client.is_silent());
            drop(peer);
            assert_eq!(client.next(), 4);
        });
    }

    /// A queue without a thread gets one later, and its user receives the reason meanwhile.
    #[test]
    fn a_queue_without_a_thread_gets_one_once_the_system_has_one() {
        unshared(|| {
            for again in [DeferredClose::answer_overdue, enqueue_another] {
                let closes = DeferredClose::default();
                // As if all were at other queues.
                closes.lock().threads = MAX_THREADS;
                let (client, ours) = Client::pair();
                let (reader, writer) = marked();
                ReceivedFd::new(writer, 7, &closes).close_and_answer(&ours, vec![1]);
                let now = Instant::now();
                assert_eq!(closes.refusal(7, now), None);
                closes.answer_overdue(now + OVERDUE);
                assert_eq!(client.next(), 1);
                let why = closes.refusal(7, now + OVERDUE).unwrap();
                assert!(why.contains("limit of threads"), "{why}");
                closes.lock().threads = 0;
                again(&closes, now);
                wait_for_close(reader);
            }
        });
    }

    fn enqueue_another(closes: &DeferredClose, _now: Instant) {
        drop(ReceivedFd::new(marked().1, 7, closes));
    }

    #[test]
    fn the_end_of_a_thread_starts_one_for_a_queue_without_one() {
        unshared(|| {
            let closes = DeferredClose::default();
            closes.lock().threads = MAX_THREADS - 1;
            let (overdue, peer) = lingering();
            drop(ReceivedFd::new(overdue, 7, &closes));
            let (reader, writer) = marked();
            drop(ReceivedFd::new(writer, 8, &closes));
            assert!(!closes.lock().queues[&8].has_thread);
            drop(peer);
            wait_for_close(reader);
        });
    }

    #[test]
    fn the_queue_of_a_user_is_bounded() {
        unshared(|| {
            let closes = DeferredClose::default();
            let (overdue, peer) = lingering();
            let (client, ours) = Client::pair();
            let (begun, writer) = marked();
            drop(ReceivedFd::new(writer, 7, &closes));
            drop(ReceivedFd::new(overdue, 7, &closes));
            // Then the next close has begun or is about to, and does not wait in the queue.
            wait_for_close(begun);
            while !closes.lock().queues[&7].waiting.is_empty() {
                thread::yield_now();
            }
            for _ in 0..MAX_QUEUE {
                assert!(!closes.is_full(7));
                drop(ReceivedFd::new(marked().1, 7, &closes));
            }
            assert!(closes.is_full(7) && !closes.is_full(8));
            assert!(closes.refusal(7, Instant::now()).is_some());
            let (_, writer) = marked();
            ReceivedFd::new(writer, 7, &closes).close_and_answer(&ours, vec![1]);
            drop(peer);
            assert_eq!(client.next(), 1);
            assert!(!closes.is_full(7));
        });
    }
}
