use super::*;

#[test]
fn distance_counts_edits() {
    for (a, b, edits) in [
        ("delay", "delay", 0),
        ("dealy", "delay", 1),
        ("rack", "ack", 1),
        ("", "loss", 4),
        ("outages", "outage", 1),
    ] {
        assert_eq!(distance(a, b), edits, "{a} {b}");
    }
}

#[test]
fn misspellings_are_near_and_other_words_are_not() {
    for (name, key) in [
        ("dealy", "delay"),
        ("lnk", "link"),
        ("nam", "name"),
        ("rats", "rate"),
        ("kueue", "queue"),
        ("dampen", "damping"),
    ] {
        assert!(is_near(name, key), "{name} {key}");
    }
    for (name, key) in [
        ("rack", "ack"),
        ("from", "room"),
        ("to", "at"),
        ("delta", "delay"),
        ("wobble", "name"),
    ] {
        assert!(!is_near(name, key), "{name} {key}");
    }
}
