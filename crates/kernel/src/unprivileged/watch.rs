//! The observing thread. It sleeps until a socket has a message on its error queue, and stays awake
//! while a retransmission timer is about to expire.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::time::Timespec;

use super::stamps::{drain, still};
use super::timer::{Span, Timers, Wheel};
use super::{Shared, Waiting, remove};
use crate::system::{Bell, epoll_add, monotonic, use_short_slices};

/// Observes sockets until `stop` rings and the last stamps have arrived.
pub(super) fn watch(shared: &Shared, epoll: &OwnedFd, stop: &Bell) {
    use_short_slices();
    if epoll_add(epoll, stop, EventFlags::IN, STOP).is_err() {
        return;
    }
    let mut watcher = Watcher::new(shared, epoll, monotonic());
    let mut ready = Vec::with_capacity(64);
    let mut ending = false;
    loop {
        // Rounded down to the milliseconds of epoll: the thread has to be awake before an alarm.
        let wait = watcher.alarms.next(monotonic()).min(IDLE).as_millis();
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: wait as i64 * 1_000_000,
        };
        ready.clear();
        // A signal ends the wait early.
        let _ = epoll::wait(epoll, spare_capacity(&mut ready), Some(&wait));
        let now = monotonic();
        if ready.iter().any(|r| { r.data }.u64() == STOP) {
            ending = true;
            // It fails only if the bell is closed.
            let _ = remove(epoll, stop);
        }
        if ending && !shared.fade(epoll) {
            return;
        }
        for event in &ready {
            watcher.stamped({ event.data }.u64(), now);
        }
        watcher.alarms.ask_again(shared, now);
        if now.saturating_sub(watcher.looked) >= IDLE {
            watcher.look_at_all(now);
        }
    }
}

struct Watcher<'a> {
    shared: &'a Shared,
    epoll: &'a OwnedFd,
    alarms: Alarms,
    /// Time of the last look at all sockets.
    looked: Duration,
}

impl<'a> Watcher<'a> {
    fn new(shared: &'a Shared, epoll: &'a OwnedFd, now: Duration) -> Self {
        let several = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        Self {
            shared,
            epoll,
            alarms: Alarms::new(several),
            looked: now,
        }
    }

    /// A socket has a message on its error queue.
    fn stamped(&mut self, cookie: u64, now: Duration) {
        // A thread that stays awake for a socket looks at it before all else.
        let awake = self.alarms.awake(cookie);
        let early = awake.then(|| self.shared.look(cookie)).flatten();
        // The bell is not a socket, and the socket may have no subscription left.
        let Some(socket) = self.shared.place(cookie, now) else {
            return;
        };
        drain(socket);
        let timeout = early.or(self.shared.look(cookie));
        self.alarms.stamped(self.shared, cookie, timeout);
    }

    fn look_at_all(&mut self, now: Duration) {
        self.looked = now;
        self.shared.follow(now);
        self.shared.fade(self.epoll);
        for cookie in self.shared.sockets() {
            if let Some(at) = self.shared.look(cookie) {
                self.alarms.stamped(self.shared, cookie, Some(at));
            }
        }
        self.alarms.compare(self.shared);
    }
}

/// Alarms at which the thread has to be awake for the expiry of a retransmission timer. Waking a
/// processor takes longer than the rest of the observation.
#[derive(Debug)]
pub(super) struct Alarms {
    /// `None` if the kernel does not report timers, or there is no second processor to stay awake
    /// on.
    timers: Option<Timers>,
    wheel: Wheel,
    /// Sockets with unacknowledged data.
    stalls: BTreeMap<u64, Stall>,
}

/// The progress of a socket, and the expiry of its timer without further progress.
#[derive(Clone, Debug)]
struct Stall {
    acknowledged: u64,
    alarm: Option<Alarm>,
}

#[derive(Clone, Debug)]
struct Alarm {
    window: Range<Duration>,
    span: Span,
    /// Whether the timer was the same at the beginning of the window.
    confirmed: bool,
}

impl Alarms {
    fn new(several: bool) -> Self {
        Self::with(several.then(Timers::open).and_then(Result::ok))
    }

    pub(super) fn with(timers: Option<Timers>) -> Self {
        Self {
            timers,
            wheel: Wheel::new(),
            stalls: BTreeMap::new(),
        }
    }

    /// The time until the thread has to be awake.
    pub(super) fn next(&self, now: Duration) -> Duration {
        let alarms = self.stalls.values().filter_map(|s| s.alarm.as_ref());
        let waits = alarms.map(|a| a.window.start.saturating_sub(now));
        waits.min().unwrap_or(Duration::MAX)
    }

    /// Whether the thread stays awake for a socket.
    pub(super) fn awake(&self, cookie: u64) -> bool {
        let stall = self.stalls.get(&cookie);
        let alarm = stall.and_then(|stall| stall.alarm.as_ref());
        alarm.is_some_and(|alarm| alarm.confirmed)
    }

    /// A socket had a message on its error queue, and perhaps a time-out.
    fn stamped(&mut self, shared: &Shared, cookie: u64, timeout: Option<Duration>) {
        let alarm = self.stalls.remove(&cookie).and_then(|stall| stall.alarm);
        let Some(at) = timeout else {
            return;
        };
        if let Some(alarm) = alarm.filter(|a| a.span.exact) {
            if alarm.window.contains(&at) {
                self.wheel.expired(at, alarm.span);
            } else {
                self.wheel.forget();
            }
        }
        if let Some(waiting) = shared.awaits_timeout(cookie) {
            // The timer has just been set, so the remaining time is its length.
            self.set(cookie, waiting, true);
        }
    }

    /// Reads the timers of sockets without progress since the last call.
    pub(super) fn compare(&mut self, shared: &Shared) {
        let all = shared.await_timeouts();
        self.stalls.retain(|cookie, _| all.contains_key(cookie));
        for (cookie, waiting) in all {
            let acknowledged = waiting.acknowledged;
            let stall = self.stalls.get(&cookie);
            match stall.filter(|stall| stall.acknowledged == acknowledged) {
                Some(stall) if stall.alarm.is_none() => self.set(cookie, waiting, false),
                Some(_) => {}
                None => self.insert(cookie, acknowledged, None),
            }
        }
    }

    /// Confirms the alarms whose windows have begun, if their timers are unchanged.
    pub(super) fn ask_again(&mut self, shared: &Shared, now: Duration) {
        let begun = self.stalls.iter_mut().filter_map(|(&cookie, stall)| {
            let begun = |alarm: &mut Alarm| alarm.window.start <= now;
            let alarm = stall.alarm.take_if(begun)?;
            Some((cookie, alarm))
        });
        for (cookie, alarm) in begun.collect::<Vec<_>>() {
            let lasts = alarm.window.end > now;
            if lasts && (alarm.confirmed || self.stands(shared, cookie, &alarm)) {
                let stall = self.stalls.get_mut(&cookie);
                let alarm = Alarm {
                    confirmed: true,
                    ..alarm
                };
                stall.expect("the alarm was taken from it").alarm = Some(alarm);
            }
        }
    }

    /// Whether a timer still expires in the window of an alarm. Otherwise its next alarm is set.
    fn stands(&mut self, shared: &Shared, cookie: u64, alarm: &Alarm) -> bool {
        let Some(waiting) = shared.awaits_timeout(cookie) else {
            return false;
        };
        self.set(cookie, waiting, false);
        let stall = self.stalls.get(&cookie);
        let newer = stall.and_then(|stall| stall.alarm.as_ref());
        newer.is_some_and(|newer| newer.window.start < alarm.window.end)
    }

    /// Reads the timer of a socket and sets its alarm.
    fn set(&mut self, cookie: u64, waiting: Waiting, just_set: bool) {
        let socket = still(waiting.fd, cookie);
        let due = self.timers.as_ref().zip(socket);
        let due = due.and_then(|(timers, socket)| timers.due(socket, cookie));
        let alarm = due.map(|due| {
            let exact = just_set && due.backed_off;
            // The timer was not set for longer than this.
            let rto = if exact { due.within } else { waiting.rto };
            let longest = due.within.max(rto);
            let span = Span { longest, exact };
            Alarm {
                window: self.wheel.window(due.at, due.within, span),
                span,
                confirmed: false,
            }
        });
        self.insert(cookie, waiting.acknowledged, alarm);
    }

    fn insert(&mut self, cookie: u64, acknowledged: u64, alarm: Option<Alarm>) {
        let stall = Stall {
            acknowledged,
            alarm,
        };
        self.stalls.insert(cookie, stall);
    }
}

/// Key of the bell in epoll; no socket has this cookie.
pub(super) const STOP: u64 = 0;
/// Interval of looks at sockets without stamps.
const IDLE: Duration = Duration::from_millis(50);
