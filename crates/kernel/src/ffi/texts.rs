//! Names, and why a call failed.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Display;

use crate::event::EventKind;
use crate::variables::Variable;

#[unsafe(no_mangle)]
extern "C" fn tg_events_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn tg_event_name(kind: u32) -> *const c_char {
    named(kind as usize, &EventKind::ALL.map(EventKind::name))
}

#[unsafe(no_mangle)]
extern "C" fn tg_variable_name(variable: u32) -> *const c_char {
    let names: Vec<&str> = Variable::ALL.iter().map(|v| v.name()).collect();
    named(variable as usize, &names)
}

pub(super) fn status(result: Result<(), impl Display>) -> c_int {
    result.map_or_else(|e| fail(&e.to_string(), -1), |()| 0)
}

/// Answers `result`, and tells [`tg_events_error`] why.
pub(super) fn fail<T>(why: &str, result: T) -> T {
    // Messages have no zeros; one that had would be lost and not the program.
    let text = CString::new(why).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = text);
    result
}

/// A name that lives as long as the thread, or null.
fn named(number: usize, names: &[&str]) -> *const c_char {
    names
        .get(number)
        .map_or(std::ptr::null(), |name| kept(name))
}

/// A text that lives as long as the thread.
pub(super) fn kept(text: &str) -> *const c_char {
    TEXTS.with_borrow_mut(|kept| {
        let known = kept.iter().find(|k| k.to_bytes() == text.as_bytes());
        if let Some(known) = known {
            return known.as_ptr();
        }
        kept.push(CString::new(text).unwrap_or_default());
        kept[kept.len() - 1].as_ptr()
    })
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static TEXTS: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}
