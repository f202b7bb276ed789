//! Names and error messages as C strings.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr;

use crate::event::EventKind;
use crate::variables::Variable;

#[unsafe(no_mangle)]
extern "C" fn tg_events_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn tg_event_name(kind: u32) -> *const c_char {
    let kind = EventKind::ALL.get(kind as usize);
    kind.map_or(ptr::null(), |kind| kept(kind.name()))
}

#[unsafe(no_mangle)]
extern "C" fn tg_variable_name(variable: u32) -> *const c_char {
    let variable = Variable::ALL.get(variable as usize);
    variable.map_or(ptr::null(), |variable| kept(variable.name()))
}

/// Returns `result`, and keeps the message for [`tg_events_error`].
pub(super) fn fail<T>(why: &str, result: T) -> T {
    // A message with a zero byte is lost, which no message has.
    let text = CString::new(why).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = text);
    result
}

/// A C string that lives as long as the thread.
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
