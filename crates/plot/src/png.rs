//! A picture in dots of a picture in lines.

use resvg::{tiny_skia, usvg};

/// Dots for each pixel of the drawing: sharp on paper and on fine screens.
const DOTS: f32 = 2.0;
/// The font that is brought along, as a machine without a screen often has none.
const FAMILY: &str = "Ubuntu";

/// Draws SVG of ours. The error says why it cannot.
pub fn of_svg(svg: &str) -> Result<Vec<u8>, String> {
    let mut options = usvg::Options { font_family: FAMILY.to_string(), ..usvg::Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let (width, height) = (tree.size().width() * DOTS, tree.size().height() * DOTS);
    let mut dots = tiny_skia::Pixmap::new(width as u32, height as u32)
        .ok_or_else(|| format!("it would be {width} by {height} dots"))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(DOTS, DOTS), &mut dots.as_mut());
    dots.encode_png().map_err(|error| error.to_string())
}
