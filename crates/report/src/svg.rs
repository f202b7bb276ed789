//! A drawing, as SVG text.

use core::fmt::Write as _;

/// An SVG drawing that grows downwards: its height is known only at its end.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    body: String,
}

/// Alignment of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// A rectangle; y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left side.
    pub x: f64,
    /// Top.
    pub y: f64,
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

impl Area {
    /// Right edge.
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    /// Bottom edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

impl Svg {
    /// An empty drawing of this width, in pixels.
    pub fn new(width: f64) -> Self {
        let body = String::new();
        Self { width, body }
    }

    /// `class` gives colour and stroke: see `theme`.
    pub fn rect(&mut self, class: &str, area: Area) {
        let Area {
            x,
            y,
            width,
            height,
        } = area;
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            number(x),
            number(y),
            number(width.max(0.0)),
            number(height.max(0.0))
        ));
    }

    /// Draws a path with the commands `d`; does nothing if `d` is empty.
    pub fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{d}\"/>"));
        }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let mut d = String::new();
        polyline(&mut d, [from, to].into_iter());
        self.path(class, &d);
    }

    /// A line of text.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\"{anchor}>{}</text>",
            number(at.0),
            number(at.1),
            escape(text)
        ));
    }

    /// Clips the following elements to `area`, until [`end_clip`](Self::end_clip). `id` must be
    /// unique on the page.
    pub fn begin_clip(&mut self, id: &str, area: Area) {
        self.push(format_args!("<clipPath id=\"{id}\">"));
        self.rect("", area);
        self.push(format_args!("</clipPath><g clip-path=\"url(#{id})\">"));
    }

    /// Ends the innermost clipping.
    pub fn end_clip(&mut self) {
        self.push(format_args!("</g>"));
    }

    /// Converts to an element of a page, coloured by the page's style sheet.
    pub fn into_element(self, height: f64, class: &str, label: &str) -> String {
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" \
             font-size=\"12\">{}</svg>",
            number(self.width),
            number(height),
            escape(label),
            self.body
        )
    }

    /// Converts to a standalone file, with its own style on a white background.
    pub fn into_file(self, height: f64, style: &str, label: &str) -> String {
        let (width, height) = (number(self.width), number(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"'DejaVu Sans', Verdana, sans-serif\" \
             font-size=\"12\"><title>{}</title><style>{style}</style>\
             <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>{}</svg>\n",
            escape(label),
            self.body
        )
    }

    fn push(&mut self, what: core::fmt::Arguments<'_>) {
        self.body
            .write_fmt(what)
            .expect("writing to a string does not fail");
    }
}

/// Appends a line through `points` to the drawing commands `d`.
pub fn polyline(d: &mut String, points: impl Iterator<Item = (f64, f64)>) {
    for (i, (x, y)) in points.enumerate() {
        d.push(if i == 0 { 'M' } else { 'L' });
        d.push_str(&number(x));
        d.push(' ');
        d.push_str(&number(y));
    }
}

/// Formats a coordinate with a precision of a tenth of a pixel.
pub fn number(value: f64) -> String {
    let tenths = (value * 10.0).round();
    // Adding zero turns minus zero into zero.
    let text = format!("{:.1}", tenths / 10.0 + 0.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Escapes `text` for use between tags and in quoted attributes of HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML 1.0 cannot represent these characters.
            c if c.is_control() && !matches!(c, '\n' | '\t' | '\r') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Estimated width of `text` at this font size. The estimate is for wide fonts such as the bundled
/// one, so text that fits by the estimate fits.
pub fn text_width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.32,
        'f' | 'r' | 't' | '(' | ')' | '-' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' => 0.95,
        'A'..='Z' => 0.69,
        _ => 0.62,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// Wraps `text` to lines of at most `width`.
pub fn wrapped(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Truncates `text` to `width`.
pub fn shortened(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut short = text.to_owned();
    while !short.is_empty() && text_width(&short, size) + size > width {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (1.0, "1"),
            (1.25, "1.3"),
            (-0.01, "0"),
            (100.04, "100"),
            (-2.5, "-2.5"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn long_text_is_truncated_or_wrapped() {
        let text = "three links where nothing waited";
        assert_eq!(shortened(text, 10.0, 1_000.0), text);
        let short = shortened(text, 10.0, 100.0);
        assert!(short.ends_with('…') && text.starts_with(short.trim_end_matches('…')));
        assert!(text_width(&short, 10.0) <= 100.0);
        let lines = wrapped(text, 10.0, 100.0);
        assert!(lines.len() > 1 && lines.join(" ") == text);
    }

    #[test]
    fn text_is_escaped() {
        let text = escape("<b title=\"x\">'&\u{0}");
        assert_eq!(text, "&lt;b title=&quot;x&quot;&gt;&#39;&amp;\u{fffd}");
    }
}
