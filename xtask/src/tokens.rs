//! Tokens of Rust sources, as far as the checks need them.

/// A word, a literal, or a punctuation mark; `->`, `=>` and `::` are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// Text, with the quotes of a literal.
    pub(crate) text: &'a str,
    /// First and last line, from one. Only literals have several.
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl Token<'_> {
    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_part) && !self.text.ends_with(['"', '\''])
    }
}

/// Tokens without comments and white space.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut first) = (source, 1);
    while !rest.is_empty() {
        let (text, behind) = rest.split_at(length(rest));
        let last = first + text.matches('\n').count();
        let is_space = text.starts_with(char::is_whitespace);
        if !is_space && !text.starts_with("//") && !text.starts_with("/*") {
            found.push(Token { text, first, last });
        }
        (rest, first) = (behind, last);
    }
    found
}

/// Tokens without the items behind `#[cfg(test)]`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_marked_as_test(&tokens[at..]) {
            at = end_of_item(tokens, at + TEST.len());
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// Index of the bracket that closes the one at `open`.
pub(crate) fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}

/// Number of lines with a token.
pub(crate) fn lines(tokens: &[Token<'_>]) -> usize {
    let mut counted = (0, 0);
    for token in tokens {
        let (count, until) = counted;
        let from = token.first.max(until + 1);
        counted = (
            count + (token.last + 1).saturating_sub(from),
            until.max(token.last),
        );
    }
    counted.0
}

fn is_marked_as_test(tokens: &[Token<'_>]) -> bool {
    let texts = tokens.iter().map(|token| token.text);
    tokens.len() >= TEST.len() && texts.zip(TEST).all(|(text, mark)| text == mark)
}

/// Index behind the item at `at`, whose first tokens may be attributes.
fn end_of_item(tokens: &[Token<'_>], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].text {
            ";" => return at + 1,
            "{" => return closing(tokens, at) + 1,
            "(" | "[" => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
    at
}

/// Length of the token, comment or white space at the start of `rest`.
fn length(rest: &str) -> usize {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let until = |end: Option<usize>| end.unwrap_or(rest.len());
    if rest.starts_with(char::is_whitespace) {
        return until(rest.find(|c: char| !c.is_whitespace()));
    }
    if rest.starts_with("//") {
        return until(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        return comment(rest);
    }
    let prefix = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len() - prefix.len();
    if let Some(length) = raw_string(&rest[prefix..]).or_else(|| string(&rest[prefix..])) {
        return prefix + length;
    }
    if let Some(length) = character(&rest[prefix..]) {
        return prefix + length;
    }
    if rest.starts_with(is_word_part) {
        return until(rest.find(|c: char| !is_word_part(c)));
    }
    if let Some(lifetime) = rest.strip_prefix('\'') {
        return 1 + lifetime
            .find(|c: char| !is_word_part(c))
            .unwrap_or(lifetime.len());
    }
    if ["->", "=>", "::"].iter().any(|two| rest.starts_with(two)) {
        return 2;
    }
    first
}

/// Length of a comment; comments are nested.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r')?;
    let text = hashes.trim_start_matches('#');
    let hashes = &hashes[..hashes.len() - text.len()];
    let text = text.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    let inside = text.find(&end).map_or(text.len(), |at| at + end.len());
    Some(rest.len() - text.len() + inside)
}

fn string(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 2),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Length of a character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix('\'')?;
    if let Some(escape) = text.strip_prefix('\\') {
        // The escaped character may be a quote.
        let behind = escape.chars().next().map_or(0, char::len_utf8);
        return Some(2 + behind + escape[behind..].find('\'')? + 1);
    }
    let first = text.chars().next()?.len_utf8();
    text[first..].starts_with('\'').then_some(first + 2)
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_hide_their_contents() {
        let source = "a /* { /* */ \" */ 'x' // }\n b'\\'' \"{\\\"\" r#\"}\"\"# 'life -> '\\u{7d}'";
        let found = [
            "a",
            "'x'",
            "b'\\''",
            "\"{\\\"\"",
            "r#\"}\"\"#",
            "'life",
            "->",
            "'\\u{7d}'",
        ];
        assert_eq!(texts(source), found);
    }

    #[test]
    fn words_are_not_prefixes_of_literals() {
        assert_eq!(texts("break c b::c r"), ["break", "c", "b", "::", "c", "r"]);
        assert!(tokens("break").iter().all(Token::is_word));
        assert!(!tokens("\"a\" 'b' b\"c\" 'd (").iter().any(Token::is_word));
    }

    #[test]
    fn lines_with_tokens_are_counted() {
        assert_eq!(lines(&tokens("a\n\n// b\nc d\n\"e\nf\" g\n")), 4);
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let source = "a #[cfg(test)] mod b; c #[cfg(test)] #[x(y)] fn d(e: [f; 2]) { g } h";
        let kept: Vec<_> = without_tests(&tokens(source))
            .iter()
            .map(|t| t.text)
            .collect();
        assert_eq!(kept, ["a", "c", "h"]);
    }
}
