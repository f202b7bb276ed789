//! Closing what clients have handed over, which may take as long as they please.
//!
//! Whoever closes a descriptor last waits for what is behind it: as long as the owner of a socket
//! said (`SO_LINGER`), who may say so at any time, or for ever where a file system does not answer.
//! So the thread that serves closes none of them. Each user has a lane of his own, in which one is
//! closed after the other; a lane that hangs is its user's trouble and nobody else's.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::passing;

/// What is to be closed, and the threads that do it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<Shared>);

impl Closing {
    /// Hangs up on a client of a user: it hears so at once. What waits in its socket may hold
    /// descriptors too, which the system closes with it.
    pub(super) fn hang_up(&self, user: u32, socket: Arc<OwnedFd>) {
        // SAFETY: takes numbers and touches no memory.
        unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        self.put(user, Item::Client(socket));
    }

    /// Hangs up on one in whose socket no descriptor can wait, here and now.
    pub(super) fn hang_up_now(socket: OwnedFd) {
        Item::Client(Arc::new(socket)).close();
    }

    /// Throws the next message of a client away and then answers it. What came along is closed without
    /// a number, so this needs none.
    pub(super) fn discard(&self, user: u32, socket: &Arc<OwnedFd>, message: Vec<u8>) {
        let to = Arc::clone(socket);
        let answer = Some(Answer { to, message });
        let socket = Arc::clone(socket);
        self.put(user, Item::Message { socket, answer });
    }

    /// Descriptors that are open at most until they are closed here: of as many users as may hang at
    /// once what waits, what came with one message more, and what they leave when they are thrown out.
    pub(super) const fn most_kept(clients_per_user: u32) -> u32 {
        MOST_THREADS * (MOST_WAITING as u32 + passing::MOST_ALONG + clients_per_user)
    }

    /// Whether anything is not closed yet.
    pub(super) fn is_busy(&self) -> bool {
        !self.0.lock().lanes.is_empty()
    }

    /// Answers those whose descriptors hang, who would wait for ever, and has another look for threads
    /// where there were none.
    pub(super) fn answer_late(&self, now: Instant) {
        let mut late = Vec::new();
        let mut state = self.0.lock();
        for lane in state.lanes.values_mut() {
            if lane.hangs(now).is_some() {
                late.extend(lane.answer.take());
                late.extend(lane.waiting.iter_mut().filter_map(Item::take_answer));
            }
        }
        self.call(&mut state);
        drop(state);
        late.into_iter().for_each(Answer::send);
    }

    /// Why nothing more is taken from a user, if that is so.
    pub(super) fn trouble(&self, user: u32, now: Instant) -> Option<String> {
        let state = self.0.lock();
        let lane = state.lanes.get(&user)?;
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

    /// Whether a user has handed over more than can be kept until it is closed.
    pub(super) fn is_too_much(&self, user: u32) -> bool {
        let state = self.0.lock();
        let waiting = state.lanes.get(&user).map_or(0, |lane| lane.waiting.len());
        waiting >= MOST_WAITING
    }

    fn put(&self, user: u32, item: Item) {
        let mut state = self.0.lock();
        let lane = state.lanes.entry(user).or_insert_with(Lane::new);
        lane.waiting.push_back(item);
        self.call(&mut state);
    }

    /// Calls a thread for each lane at which nobody is, as far as there are any.
    fn call(&self, state: &mut State) {
        let is_left = |lane: &&Lane| !lane.is_at_work;
        let left = state.lanes.values().filter(is_left).count();
        while (state.called as usize) < left {
            if state.idle > state.called {
                self.0.changed.notify_one();
            } else if state.threads < MOST_THREADS {
                let shared = Arc::clone(&self.0);
                let thread = thread::Builder::new().name(NAME.into());
                // Where there can be none, the next that has time does it, or one that is called later.
                if thread.spawn(move || shared.work()).is_err() {
                    return;
                }
                state.threads += 1;
                state.idle += 1;
            } else {
                return;
            }
            state.called += 1;
        }
    }
}

/// A descriptor that a client has handed over, to be closed soon: until then it stays open even if
/// its owner closes it. The daemon never waits for that.
#[derive(Debug)]
pub(super) struct Handed {
    fd: Option<OwnedFd>,
    user: u32,
    closing: Closing,
}

impl Handed {
    pub(super) fn new(fd: OwnedFd, user: u32, closing: &Closing) -> Self {
        Self {
            fd: Some(fd),
            user,
            closing: closing.clone(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref();
        fd.expect("it is there until the drop").as_fd()
    }

    /// Closes it and then answers its owner, whose copy is the last one from then on: when he closes
    /// that, all happens that he asked for, as if nobody else had ever had one.
    pub(super) fn close_and_answer(mut self, to: &Arc<OwnedFd>, message: Vec<u8>) {
        if let Some(fd) = self.fd.take() {
            let to = Arc::clone(to);
            let answer = Some(Answer { to, message });
            self.closing.put(self.user, Item::Handed { fd, answer });
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            let answer = None;
            self.closing.put(self.user, Item::Handed { fd, answer });
        }
    }
}

/// What a client hears once its descriptor is closed.
#[derive(Debug)]
struct Answer {
    to: Arc<OwnedFd>,
    message: Vec<u8>,
}

impl Answer {
    /// Whoever takes no answers is hung up on, which the thread that serves sees.
    fn send(self) {
        if passing::send(self.to.as_fd(), &self.message, None).is_err() {
            // SAFETY: takes numbers and touches no memory.
            unsafe { libc::shutdown(self.to.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

#[derive(Debug)]
enum Item {
    Client(Arc<OwnedFd>),
    Handed {
        fd: OwnedFd,
        answer: Option<Answer>,
    },
    /// The next one in a socket.
    Message {
        socket: Arc<OwnedFd>,
        answer: Option<Answer>,
    },
}

impl Item {
    fn take_answer(&mut self) -> Option<Answer> {
        match self {
            Self::Client(_) => None,
            Self::Handed { answer, .. } | Self::Message { answer, .. } => answer.take(),
        }
    }

    fn close(self) {
        match self {
            Self::Handed { fd, .. } => drop(fd),
            Self::Message { socket, .. } => {
                // One that is gone has taken it along.
                let _ = passing::discard(socket.as_fd());
            }
            Self::Client(socket) => {
                // What is not read would be told the client as an error, before our last words. A
                // message may be empty, which looks like the end; this is more than a queue holds.
                for _ in 0..MOST_QUEUED {
                    if passing::discard(socket.as_fd()).is_err() {
                        break;
                    }
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By users. Those with nothing to do are not here.
    lanes: BTreeMap<u32, Lane>,
    threads: u32,
    /// Of these, asleep or not there yet.
    idle: u32,
    /// Of these, about to wake up.
    called: u32,
}

#[derive(Debug)]
struct Lane {
    waiting: VecDeque<Item>,
    /// Whether a thread is at the present one.
    is_at_work: bool,
    /// When it began to close that, or the next one began to wait for a thread.
    since: Instant,
    /// For who waits for the present one.
    answer: Option<Answer>,
}

impl Lane {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            is_at_work: false,
            since: Instant::now(),
            answer: None,
        }
    }

    /// For how long it has hung, if it does.
    fn hangs(&self, now: Instant) -> Option<Duration> {
        let long = now.saturating_duration_since(self.since);
        (long >= HANGS).then_some(long)
    }
}

impl State {
    /// The next item of a lane at which nobody is.
    fn next(&mut self) -> Option<(u32, Item)> {
        let mut lanes = self.lanes.iter_mut();
        lanes.find_map(|(&user, lane)| {
            if lane.is_at_work {
                return None;
            }
            let mut item = lane.waiting.pop_front()?;
            lane.answer = item.take_answer();
            lane.is_at_work = true;
            lane.since = Instant::now();
            Some((user, item))
        })
    }

    /// Ends the present item of a lane; who waits for that is to be answered.
    fn done(&mut self, user: u32) -> Option<Answer> {
        let lane = self.lanes.get_mut(&user)?;
        lane.is_at_work = false;
        lane.since = Instant::now();
        let answer = lane.answer.take();
        if lane.waiting.is_empty() {
            self.lanes.remove(&user);
        }
        answer
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.lock();
        // Whoever starts a thread has called it.
        state.idle -= 1;
        state.called = state.called.saturating_sub(1);
        loop {
            if let Some((user, item)) = state.next() {
                drop(state);
                item.close();
                state = self.lock();
                if let Some(answer) = state.done(user) {
                    drop(state);
                    answer.send();
                    state = self.lock();
                }
                continue;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE);
            let (again, late) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if state.called > 0 {
                state.called -= 1;
            } else if late.timed_out() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long closing may take before its user is told: it is over in far less unless somebody makes
/// it last.
const HANGS: Duration = Duration::from_secs(2);
/// Items of one user that wait: more than one message has.
const MOST_WAITING: usize = 512;
/// So many users may hang at once and others' descriptors are still closed.
const MOST_THREADS: u32 = 64;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// Messages that wait in a socket: the sender's buffer has room for some 280.
const MOST_QUEUED: u32 = 512;
const NAME: &str = "tg-close";

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::system::{self, Polled, set_option};

    /// A socket that is closed only when its peer is gone, and that peer.
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
        // Whoever does not wait for data does not wait for the end either.
        ours.set_nonblocking(false).unwrap();
        (ours.into(), peer)
    }

    /// Both ends of a pipe, whose reader hears when the other is closed.
    fn marked() -> (io::PipeReader, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, writer.into())
    }

    fn hear_end(mut reader: io::PipeReader) {
        let mut polled = [Polled::input(reader.as_fd())];
        system::poll(&mut polled, Some(Duration::from_secs(20))).unwrap();
        assert!(polled[0].is_ready(), "it was not closed");
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_user_waits_for_his_own_descriptors_and_nobody_elses() {
        let closing = Closing::default();
        let (hangs, peer) = lingering();
        let start = Instant::now();
        drop(Handed::new(hangs, 7, &closing));
        let (behind, own) = marked();
        drop(Handed::new(own, 7, &closing));
        let others: Vec<_> = (8..8 + MOST_THREADS - 1)
            .map(|user| {
                let (reader, writer) = marked();
                drop(Handed::new(writer, user, &closing));
                reader
            })
            .collect();
        others.into_iter().for_each(hear_end);
        assert!(closing.0.lock().lanes.contains_key(&7), "it did not hang");
        // He is told soon, others are not, and who had done nothing is none of it.
        assert_eq!(closing.trouble(7, start), None);
        let why = closing.trouble(7, Instant::now() + HANGS).unwrap();
        assert!(why.contains("user 7 handed over hangs since 2 s"), "{why}");
        assert_eq!(closing.trouble(9, Instant::now() + HANGS), None);
        drop(peer);
        hear_end(behind);
    }

    #[test]
    fn answers_come_when_the_descriptor_is_closed_or_hangs() {
        let closing = Closing::default();
        let [client, ours] = system::local_pair().unwrap();
        system::limit(client.as_fd(), Duration::from_secs(20)).unwrap();
        let (ours, mut said) = (Arc::new(ours), [0; 8]);
        let mut hear = |wait| {
            let mut polled = [Polled::input(client.as_fd())];
            system::poll(&mut polled, Some(wait)).unwrap();
            let heard = polled[0].is_ready();
            heard.then(|| {
                passing::receive(client.as_fd(), &mut said)
                    .map(|_| said[0])
                    .unwrap()
            })
        };
        let (soon, long) = (Duration::ZERO, Duration::from_secs(20));
        let answer = |fd, word: u8| {
            Handed::new(fd, 7, &closing).close_and_answer(&ours, vec![word]);
        };
        answer(marked().1, 1);
        assert_eq!(hear(long), Some(1));
        let (hangs, peer) = lingering();
        answer(hangs, 2);
        answer(marked().1, 3);
        let is_at_it = |lane: &Lane| lane.is_at_work;
        while !closing.0.lock().lanes.get(&7).is_some_and(is_at_it) {
            thread::yield_now();
        }
        closing.answer_late(Instant::now());
        assert_eq!(hear(soon), None);
        closing.answer_late(Instant::now() + HANGS);
        assert_eq!(
            [hear(long), hear(long), hear(soon)],
            [Some(2), Some(3), None]
        );
        answer(marked().1, 4);
        assert!(closing.is_busy());
        assert_eq!(hear(soon), None);
        drop(peer);
        assert_eq!(hear(long), Some(4));
    }

    /// A thread that could not be started is started later, and whoever waits meanwhile is told.
    #[test]
    fn a_lane_without_a_thread_gets_one_as_soon_as_there_is_one() {
        for again in [Closing::answer_late, put_another] {
            let closing = Closing::default();
            // As if all were at other lanes.
            closing.0.lock().threads = MOST_THREADS;
            let [client, ours] = system::local_pair().unwrap();
            let (reader, writer) = marked();
            Handed::new(writer, 7, &closing).close_and_answer(&Arc::new(ours), vec![1]);
            let late = Instant::now() + HANGS;
            closing.answer_late(late);
            let mut said = [0; 8];
            passing::receive(client.as_fd(), &mut said).unwrap();
            assert_eq!(said[0], 1);
            let why = closing.trouble(7, late).unwrap();
            assert!(why.contains("limit of threads"), "{why}");
            closing.0.lock().threads = 0;
            again(&closing, Instant::now());
            hear_end(reader);
        }
    }

    fn put_another(closing: &Closing, _now: Instant) {
        drop(Handed::new(marked().1, 7, closing));
    }

    #[test]
    fn what_one_user_may_leave_is_bounded() {
        let closing = Closing::default();
        let (hangs, peer) = lingering();
        drop(Handed::new(hangs, 7, &closing));
        while !closing.0.lock().lanes[&7].is_at_work {
            thread::yield_now();
        }
        for _ in 0..MOST_WAITING {
            assert!(!closing.is_too_much(7));
            drop(Handed::new(marked().1, 7, &closing));
        }
        assert!(closing.is_too_much(7) && !closing.is_too_much(8));
        assert!(closing.trouble(7, Instant::now()).is_some());
        let (last, writer) = marked();
        drop(Handed::new(writer, 7, &closing));
        drop(peer);
        hear_end(last);
        assert!(!closing.is_too_much(7));
    }
}
