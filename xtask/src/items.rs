//! Functions, types and `impl` blocks of a source file, from its tokens.

use crate::tokens::{Token, closing, lines};

/// What a file defines.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// Name and lines of each function with a body.
    pub(crate) functions: Vec<(String, usize)>,
    /// Function and type of each parameter with a tuple that contains a `bool`.
    pub(crate) flags: Vec<(String, String)>,
    /// Name and number of fields of each structure.
    pub(crate) structs: Vec<(String, usize)>,
    /// Names of structures, enumerations and unions.
    pub(crate) types: Vec<String>,
    pub(crate) traits: Vec<String>,
    pub(crate) impls: Vec<Impl>,
}

/// An `impl` block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impl {
    /// Name of the type.
    pub(crate) of: String,
    /// Names of the trait and of its generic arguments, if any.
    pub(crate) what: Vec<String>,
}

/// Items of a file, those within others included.
pub(crate) fn items(tokens: &[Token<'_>]) -> Items {
    let mut items = Items::default();
    for at in 0..tokens.len() {
        let rest = &tokens[at..];
        let name = rest.get(1).filter(|token| token.is_word());
        match (tokens[at].text, name) {
            ("fn", Some(name)) => function(name.text, rest, &mut items),
            ("struct", Some(name)) => {
                items.types.push(name.text.to_owned());
                items.structs.push((name.text.to_owned(), fields(rest)));
            }
            ("enum" | "union", Some(name)) if is_item(tokens, at) => {
                items.types.push(name.text.to_owned());
            }
            ("trait", Some(name)) if is_item(tokens, at) => {
                items.traits.push(name.text.to_owned());
            }
            ("impl", _) if is_item(tokens, at) => items.impls.extend(block(rest)),
            _ => {}
        }
    }
    items
}

/// Whether the word at `at` starts an item rather than a type, as in `-> impl Trait`.
fn is_item(tokens: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).map(|at| tokens[at].text);
    before.is_none_or(|text| ["}", ";", "{", "]", ")", "unsafe", "pub"].contains(&text))
}

fn function(name: &str, tokens: &[Token<'_>], items: &mut Items) {
    let open = outside_of_generics(tokens, &["("]);
    let close = closing(tokens, open);
    for parameter in parts(&tokens[open + 1..close]) {
        let text = parameter.iter().map(|token| token.text);
        if has_flag(parameter) {
            let text: Vec<&str> = text.collect();
            items.flags.push((name.to_owned(), text.join(" ")));
        }
    }
    let mut end = close;
    while end < tokens.len() && !["{", ";"].contains(&tokens[end].text) {
        end = match tokens[end].text {
            "(" | "[" => closing(tokens, end) + 1,
            _ => end + 1,
        };
    }
    if tokens.get(end).is_some_and(|token| token.text == "{") {
        let whole = &tokens[..=closing(tokens, end)];
        items.functions.push((name.to_owned(), lines(whole)));
    }
}

/// Whether a parameter has a tuple with a `bool`. The parentheses of `Fn(…)` are no tuple.
fn has_flag(parameter: &[Token<'_>]) -> bool {
    let Some(colon) = outside_of_brackets(parameter, ":") else {
        return false;
    };
    let kind = &parameter[colon + 1..];
    let opens = |at: &usize| {
        let before = at.checked_sub(1).map(|at| kind[at]);
        let is_call = |token: Token<'_>| token.is_word() && token.text != "mut";
        kind[*at].text == "(" && !before.is_some_and(is_call)
    };
    (0..kind.len()).filter(opens).any(|open| {
        let inside = &kind[open + 1..closing(kind, open)];
        parts(inside).len() > 1 && inside.iter().any(|token| token.text == "bool")
    })
}

/// Number of fields of the structure whose `struct` is the first token.
fn fields(tokens: &[Token<'_>]) -> usize {
    let open = outside_of_generics(tokens, &["{", "(", ";"]);
    match tokens.get(open).map(|token| token.text) {
        Some("{" | "(") => parts(&tokens[open + 1..closing(tokens, open)]).len(),
        _ => 0,
    }
}

/// The block whose `impl` is the first token; `None` if it is of no named type.
fn block(tokens: &[Token<'_>]) -> Option<Impl> {
    let start = match tokens.get(1)?.text {
        "<" => 1 + parts_end(&tokens[1..]),
        _ => 1,
    };
    let end = tokens.iter().position(|token| token.text == "{")?;
    let head = tokens.get(start..end)?;
    let condition = head.iter().position(|token| token.text == "where");
    let head = &head[..condition.unwrap_or(head.len())];
    let both = outside_of_brackets(head, "for");
    Some(Impl {
        of: last_name(&head[both.map_or(0, |at| at + 1)..])?,
        what: words(&head[..both.unwrap_or(0)]),
    })
}

fn words(tokens: &[Token<'_>]) -> Vec<String> {
    let words = tokens.iter().filter(|token| token.is_word());
    words.map(|token| token.text.to_owned()).collect()
}

/// Last name of a path, without its generic arguments.
fn last_name(path: &[Token<'_>]) -> Option<String> {
    let mut depth = 0_usize;
    let mut name = None;
    for token in path {
        match token.text {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            "(" | "[" => break,
            _ if depth == 0 && token.is_word() => name = Some(token.text.to_owned()),
            _ => {}
        }
    }
    name
}

/// Index of the first of `marks` that is not in generic parameters.
fn outside_of_generics(tokens: &[Token<'_>], marks: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            text if depth == 0 && marks.contains(&text) => return at,
            _ => {}
        }
    }
    tokens.len() - 1
}

/// Index of `mark` outside of all brackets.
fn outside_of_brackets(tokens: &[Token<'_>], mark: &str) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.text == mark
    })
}

/// Index behind the generic parameters that open at the first token.
fn parts_end(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Parts between commas outside of all brackets.
fn parts<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let mut depth = 0_usize;
    let parts = tokens.split(|token| {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.text == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    fn of(source: &str) -> Items {
        items(&tokens(source))
    }

    #[test]
    fn functions_reach_from_their_first_line_to_their_brace() {
        let source = "impl A {\n    pub(crate) const fn b<T: Fn(u8) -> u8>(\n        t: [u8; 2],\n    ) -> \
                      [u8; 2] {\n        // why\n\n        if c {\n            d();\n        }\n    }\n    \
                      fn e(&self) {}\n    fn f(&self);\n}\nlet g = \"fn h() {}\"; let i: fn(u8);\n";
        assert_eq!(
            of(source).functions,
            [("b".to_owned(), 7), ("e".to_owned(), 1)]
        );
    }

    #[test]
    fn tuples_with_a_flag_are_found() {
        let flags = |source: &str| of(source).flags.len();
        for source in [
            "fn a(b: (u8, bool)) {}",
            "fn a((b, c): (bool, u8)) {}",
            "fn a(b: &mut (u8, (bool, u8)));",
            "fn a(b: &[(u8, bool)], c: u8) {}",
            "fn a(b: Option<(u8, bool)>) {}",
        ] {
            assert_eq!(flags(source), 1, "{source}");
        }
        for source in [
            "fn a(b: bool, c: (u8, u8)) -> (u8, bool) {}",
            "fn a(b: impl Fn(u8, bool) -> bool) {}",
            "fn a(b: HashMap<u8, bool>, c: [bool; 2]) {}",
        ] {
            assert_eq!(flags(source), 0, "{source}");
        }
    }

    #[test]
    fn fields_are_counted() {
        let source = "struct A; struct B<T: Into<(u8, u8)>>(T, u8); struct C { #[a(b, c)] d: \
                      HashMap<u8, fn(u8) -> u8>, pub e: (u8, u8), } enum D { F, G { h: u8 } }";
        let counts: Vec<_> = of(source)
            .structs
            .into_iter()
            .map(|(_, count)| count)
            .collect();
        assert_eq!(counts, [0, 2, 2]);
        assert_eq!(of(source).types, ["A", "B", "C", "D"]);
    }

    #[test]
    fn blocks_have_a_type_and_perhaps_a_trait() {
        let found = |source: &str| {
            let items = of(source);
            let [found] = &items.impls[..] else {
                panic!("{source}: {:?}", items.impls);
            };
            (found.of.clone(), found.what.join(" "))
        };
        let pair = |of: &str, what: &str| (of.to_owned(), what.to_owned());
        assert_eq!(found("impl A { fn b() -> impl C {} }"), pair("A", ""));
        assert_eq!(
            found("impl<T: B<C>> super::A<T> where T: D {}"),
            pair("A", "")
        );
        assert_eq!(
            found("impl<T> e::B<C> for &'a mut A<T> {}"),
            pair("A", "e B C")
        );
        assert_eq!(found("unsafe impl Send for A {}"), pair("A", "Send"));
        assert!(of("impl B for [u8] {}").impls.is_empty());
    }
}
