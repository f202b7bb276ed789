//! Renders SVG to PNG with bundled fonts: a server may have none.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, Options, Tree, fontdb};

/// Renders `svg` at twice its size, for print and high-resolution screens.
///
/// # Errors
/// If `svg` is invalid or too large for memory; the text tells which.
pub fn render(svg: &str) -> Result<Vec<u8>, String> {
    let options = Options {
        font_family: FAMILY.to_owned(),
        fontdb: FONTS.clone(),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|e: usvg::Error| e.to_string())?;
    let size = tree.size().to_int_size().scale_by(ZOOM).ok_or(TOO_LARGE)?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or(TOO_LARGE)?;
    resvg::render(
        &tree,
        Transform::from_scale(ZOOM, ZOOM),
        &mut pixels.as_mut(),
    );
    pixels.encode_png().map_err(|e| e.to_string())
}

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(include_bytes!("font/DejaVuSans.ttf").to_vec());
    fonts.load_font_data(include_bytes!("font/DejaVuSans-Bold.ttf").to_vec());
    fonts.set_sans_serif_family(FAMILY);
    Arc::new(fonts)
});

const FAMILY: &str = "DejaVu Sans";
const ZOOM: f32 = 2.0;
const TOO_LARGE: &str = "the drawing is too large for memory";

#[cfg(test)]
mod tests {
    use super::*;

    fn dark_pixels(svg: &str) -> usize {
        let png = render(svg).expect("a drawing");
        let pixels = Pixmap::decode_png(&png).expect("our own PNG");
        let dark = |p: &&resvg::tiny_skia::PremultipliedColorU8| p.red() < 128 && p.alpha() > 128;
        pixels.pixels().iter().filter(dark).count()
    }

    #[test]
    fn text_is_drawn_with_embedded_fonts() {
        let text = |class: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"40\">\
                 <style>.ink{{fill:#000}}.bold{{font-weight:700}}</style><text class=\"{class}\" \
                 x=\"5\" y=\"25\" font-size=\"20\" font-family=\"'DejaVu Sans'\">400 ms äöβ≥</text></svg>"
            )
        };
        let (regular, bold) = (dark_pixels(&text("ink")), dark_pixels(&text("ink bold")));
        assert!(regular > 500, "{regular}");
        assert!(bold > regular, "{bold} against {regular}");
    }

    #[test]
    fn invalid_svg_is_an_error() {
        assert!(render("<html/>").is_err());
    }
}
