//! Colours, dashes and shapes: no curve is known by its colour alone.

/// How many curves look different.
pub const LOOKS: usize = 5;

/// What the curves are drawn with.
pub const DASHES: [&str; LOOKS] = ["none", "7 3", "2 3", "9 3 2 3", "5 2 1 2 1 2"];

/// A set of colours.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// Colour of the background.
    pub ground: &'static str,
    /// Colour of text.
    pub ink: &'static str,
    /// Words that matter less.
    pub faint: &'static str,
    /// Lines of the grid.
    pub grid: &'static str,
    /// Curves, and words that belong to them: told apart by those who see no red or no green, too.
    pub curves: [&'static str; LOOKS],
}

/// Colours on a white ground.
pub const LIGHT: Scheme = Scheme {
    ground: "#ffffff",
    ink: "#1c2430",
    faint: "#566072",
    grid: "#e4e8ee",
    curves: ["#0b61a4", "#b34700", "#00775a", "#8c3a8c", "#6b5d00"],
};

/// Colours on a nearly black ground.
pub const DARK: Scheme = Scheme {
    ground: "#161b22",
    ink: "#e8edf4",
    faint: "#a3aebd",
    grid: "#2b333f",
    curves: ["#6db6f2", "#f5a25d", "#58cfa3", "#d9a0e0", "#d8c95a"],
};

/// What the system brings along.
pub const FONT: &str =
    "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif";

/// The rules for the charts of a page, light and dark.
pub fn css() -> String {
    let dark = format!("@media screen and (prefers-color-scheme:dark){{{}}}\n", colours(&DARK));
    format!("{}{}{dark}", shapes(), colours(&LIGHT))
}

/// The rules of a picture that is always light.
pub fn css_light() -> String {
    format!("{}{}", shapes(), colours(&LIGHT))
}

fn shapes() -> String {
    let mut text = format!(
        ".chart text{{font-family:{FONT};font-size:12.5px}}\
         .chart .name{{font-weight:600}}\
         .chart .line{{fill:none;stroke-width:2;stroke-linejoin:round}}\
         .chart .thin{{fill:none;stroke-width:1;opacity:.55}}\
         .chart .level{{fill:none;stroke-width:1;stroke-dasharray:3 3}}\
         .chart .lead{{fill:none;stroke-width:.75;opacity:.7}}\
         .chart .band{{opacity:.22;stroke:none}}\
         .chart .dot{{stroke:none}}.chart .dot:hover{{stroke-width:8;stroke-opacity:.35}}\
         .chart .mark{{stroke-width:2}}\
         .chart .grid{{stroke-width:1}}\
         .chart .guide{{fill:none;stroke-width:1.25;stroke-dasharray:1.5 3}}\n"
    );
    for (index, dash) in DASHES.iter().enumerate() {
        text.push_str(&format!(".chart .c{index} .line{{stroke-dasharray:{dash}}}"));
    }
    text.push('\n');
    text
}

fn colours(scheme: &Scheme) -> String {
    let Scheme { ground, ink, faint, grid, curves } = scheme;
    let mut text = format!(
        ".chart .ground,.chart .mark{{fill:{ground}}}.chart text{{fill:{ink}}}\
         .chart .faint{{fill:{faint}}}.chart .grid{{stroke:{grid}}}\
         .chart .axis{{stroke:{faint}}}.chart .guide,.chart .plain .thin{{stroke:{faint}}}"
    );
    for (index, colour) in curves.iter().enumerate() {
        text.push_str(&format!(
            ".chart .c{index} .line,.chart .c{index} .level,.chart .c{index} .lead,\
             .chart .c{index} .mark,.chart .c{index} .thin,.chart .c{index} .dot\
             {{stroke:{colour}}}\
             .chart .c{index} .band,.chart .c{index} .dot,.chart .c{index} text{{fill:{colour}}}"
        ));
    }
    // The outline of a dot is for the pointer.
    text.push_str(".chart .dot{stroke-opacity:0}\n");
    text
}

/// How much two colours differ, by the rule of WCAG 2: 4.5 and more is readable as text.
pub fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let digits = colour.get(at..at + 2).unwrap_or("00");
        let share = f64::from(u8::from_str_radix(digits, 16).unwrap_or(0)) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrast_is_that_of_the_standard() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        assert!((contrast("#777777", "#ffffff") - 4.48).abs() < 0.01);
    }

    #[test]
    fn every_word_can_be_read_in_both_schemes() {
        for scheme in [LIGHT, DARK] {
            for colour in scheme.curves.iter().chain([&scheme.ink, &scheme.faint]) {
                let found = contrast(colour, scheme.ground);
                assert!(found >= 4.5, "{colour} on {}: {found:.2}", scheme.ground);
            }
        }
    }
}
