//! Charts as SVG: curves over two axes, with bands, marks and words that do not lie upon each other.
//!
//! A [`Chart`] says what is to be seen, [`Chart::svg`] draws it at a size. What is drawn has no colours of its
//! own but classes, which the rules of [`style`] colour for light and dark pages; a picture of its own
//! carries these rules ([`Look::File`]). Each point tells its numbers under the pointer, without a
//! script. For those who do not see it the chart has a title and a description.

mod place;
mod scale;
pub mod style;
mod unit;

pub use place::text_width;
pub use scale::{Axis, Run};
pub use unit::{Unit, three_digits};

use place::{Area, Room};
use scale::{Scale, Tick};
use std::fmt::Write;
use style::LOOKS;

/// What is to be seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Unique in its page.
    pub id: String,
    /// In a few words.
    pub title: String,
    /// In a sentence or two, for those who do not see it.
    pub about: String,
    /// From left to right.
    pub x: Axis,
    /// Its values grow upwards.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Lines behind them.
    pub guides: Vec<Guide>,
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Its points in the order of the line.
    pub points: Vec<Sample>,
    /// The edge of the area in which the curve lies with confidence, all around.
    pub band: Vec<(f64, f64)>,
    /// Points of it that have a name.
    pub marks: Vec<Mark>,
    /// What it approaches: a height and its words.
    pub level: Option<(f64, String)>,
    /// Only a thin line, without words: one of many.
    pub is_faint: bool,
}

/// A point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Where it is.
    pub at: (f64, f64),
    /// The text shown under the pointer.
    pub hover: String,
}

/// A point with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where it is.
    pub at: (f64, f64),
    /// Its name.
    pub text: String,
}

/// A line behind the curves: theory, or what others have measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Guide {
    /// What it is called.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Others have measured it: the chart has room for it, where theory ends with the chart.
    pub is_result: bool,
}

/// How large it is drawn, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

/// For where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// In a page that has the rules of [`style::css`].
    Page,
    /// Alone, light or dark as its reader likes it.
    File,
    /// Alone and light.
    Light,
}

const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const BELOW: f64 = 44.0;
const LINE: f64 = 20.0;
const TEXT: f64 = 12.5;

/// What is being drawn: the text so far, the two axes, the room for words.
struct Sheet {
    text: String,
    size: Size,
    inside: Area,
    room: Room,
}

impl Chart {
    /// Draws it. A chart without any point says so.
    pub fn svg(&self, size: Size, look: Look) -> String {
        let legend = self.legend(size.width - LEFT - RIGHT);
        let rows = legend.last().map_or(0, |(row, ..)| row + 1) as f64;
        let top = 6.0 + rows * LINE + LINE;
        let inside = Area {
            x: LEFT,
            y: top,
            width: size.width - LEFT - RIGHT,
            height: (size.height - top - BELOW).max(40.0),
        };
        let mut sheet = Sheet { text: String::new(), size, inside, room: Room::new(inside) };
        self.head(&mut sheet, look);
        let results = || self.guides.iter().filter(|guide| guide.is_result);
        let results = || results().flat_map(|guide| guide.points.iter().copied());
        let ours = || self.series.iter().flat_map(|one| one.points.iter().map(|point| point.at));
        // Without a point of ours there is nothing to compare.
        let all = || ours().chain(results().filter(|_| ours().next().is_some()));
        let x = Scale::over(&self.x, all().map(|at| at.0), (inside.x, inside.x + inside.width));
        let levels = self.series.iter().filter_map(|one| one.level.as_ref().map(|level| level.0));
        let heights = all().map(|at| at.1).chain(levels);
        let y = Scale::over(&self.y, heights, (inside.y + inside.height, inside.y));
        match x.zip(y) {
            None => sheet.words((inside.x, inside.y + LINE), "faint", "nothing was measured"),
            Some((x, y)) => {
                self.axes(&mut sheet, x, y);
                self.draw_legend(&mut sheet, &legend);
                self.guides.iter().for_each(|guide| sheet.guide(guide, x, y));
                self.curves(&mut sheet, x, y);
            }
        }
        sheet.text.push_str("</svg>");
        sheet.text
    }

    fn head(&self, sheet: &mut Sheet, look: Look) {
        let Size { width, height } = sheet.size;
        let (id, title, about) = (escape(&self.id), escape(&self.title), escape(&self.about));
        let _ = write!(
            sheet.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\">\
             <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{about}</desc>"
        );
        let rules = match look {
            Look::Page => return,
            Look::File => style::css(),
            Look::Light => style::css_light(),
        };
        let _ = write!(
            sheet.text,
            "<style>{rules}</style><rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>"
        );
    }

    /// The names above the chart: row, place in it, name, and the index of the curve; theory has none.
    fn legend(&self, width: f64) -> Vec<(usize, f64, String, Option<usize>)> {
        let curves = self.series.iter().enumerate().filter(|(_, one)| !one.is_faint);
        let curves = curves.map(|(index, one)| (one.name.clone(), Some(index)));
        let theory = self.guides.iter().map(|guide| (guide.name.clone(), None));
        let (mut row, mut at) = (0, 0.0);
        let mut placed = Vec::new();
        for (name, index) in curves.chain(theory) {
            let wide = 34.0 + text_width(&name, TEXT) + 14.0;
            if at > 0.0 && at + wide > width {
                (row, at) = (row + 1, 0.0);
            }
            placed.push((row, at, name, index));
            at += wide;
        }
        placed
    }

    fn draw_legend(&self, sheet: &mut Sheet, legend: &[(usize, f64, String, Option<usize>)]) {
        for (row, at, name, index) in legend {
            let (x, y) = (LEFT + at, 14.0 + *row as f64 * LINE);
            let end = x + 26.0;
            let class = index.map_or("plain".to_string(), |index| format!("c{}", index % LOOKS));
            let line = if index.is_some() { "line" } else { "guide" };
            let _ = write!(
                sheet.text,
                "<g class=\"{class}\"><path class=\"{line}\" d=\"M{x:.1} {:.1}H{end:.1}\"/>",
                y - 4.0
            );
            if let Some(index) = index {
                sheet.dot((x + 13.0, y - 4.0), *index, 3.5, "");
            }
            sheet.words((end + 6.0, y), if index.is_some() { "name" } else { "faint" }, name);
            sheet.text.push_str("</g>");
        }
    }

    fn axes(&self, sheet: &mut Sheet, x: Scale, y: Scale) {
        let Area { x: left, y: top, width, height } = sheet.inside;
        let (right, bottom) = (left + width, top + height);
        for Tick { at_px, text } in y.ticks((height / 42.0) as usize) {
            let line = format!("M{left:.1} {at_px:.1}H{right:.1}");
            let _ = write!(sheet.text, "<path class=\"grid\" d=\"{line}\"/>");
            sheet.words_at((left - 8.0, at_px + 4.0), "faint", "end", &text);
        }
        // A label takes the width of eight letters, and the next one keeps away.
        let mut free_from = 0.0;
        for Tick { at_px, text } in x.ticks((width / 62.0) as usize) {
            let line = format!("M{at_px:.1} {top:.1}V{bottom:.1}");
            let _ = write!(sheet.text, "<path class=\"grid\" d=\"{line}\"/>");
            let half = text_width(&text, TEXT) / 2.0;
            let centre = at_px.clamp(left, sheet.size.width - 2.0 - half);
            if centre - half >= free_from {
                sheet.words_at((centre, bottom + 18.0), "faint", "middle", &text);
                free_from = centre + half + 8.0;
            }
        }
        let _ =
            write!(sheet.text, "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>");
        let name = |axis: &Axis, scale: &Scale| match scale.unit_name() {
            Some(unit) if !unit.is_empty() => format!("{} ({unit})", axis.name),
            _ => axis.name.clone(),
        };
        sheet.words_at((8.0, top - 8.0), "name", "start", &name(&self.y, &y));
        sheet.words_at((right, bottom + 37.0), "name", "end", &name(&self.x, &x));
    }

    fn curves(&self, sheet: &mut Sheet, x: Scale, y: Scale) {
        let px = |at: (f64, f64)| (x.px(at.0), y.px(at.1));
        let bold = || self.series.iter().enumerate().filter(|(_, one)| !one.is_faint);
        for one in self.series.iter().filter(|one| one.is_faint) {
            let line = path(one.points.iter().map(|point| px(point.at)));
            let title = escape(&one.name);
            let _ = write!(
                sheet.text,
                "<g class=\"plain\"><path class=\"thin\" d=\"{line}\"><title>{title}</title></path></g>"
            );
        }
        for (index, one) in bold() {
            let _ = write!(sheet.text, "<g class=\"c{}\">", index % LOOKS);
            if !one.band.is_empty() {
                let edge = path(one.band.iter().map(|at| px(*at)));
                let _ = write!(sheet.text, "<path class=\"band\" d=\"{edge}Z\"/>");
            }
            if let Some((height, _)) = &one.level {
                let (from, to) = (sheet.inside.x, sheet.inside.x + sheet.inside.width);
                let at = y.px(*height);
                let line = format!("M{from:.1} {at:.1}H{to:.1}");
                let _ = write!(sheet.text, "<path class=\"level\" d=\"{line}\"/>");
            }
            let places: Vec<(f64, f64)> = one.points.iter().map(|point| px(point.at)).collect();
            let line = path(places.iter().copied());
            let _ = write!(sheet.text, "<path class=\"line\" d=\"{line}\"/>");
            for (at, point) in places.iter().zip(&one.points) {
                sheet.dot(*at, index, 2.3, &point.hover);
            }
            places.windows(2).for_each(|ends| sheet.keep_clear(ends[0], ends[1]));
            if let Some((height, _)) = &one.level {
                let (from, to) = (sheet.inside.x, sheet.inside.x + sheet.inside.width);
                sheet.keep_clear((from, y.px(*height)), (to, y.px(*height)));
            }
            sheet.text.push_str("</g>");
        }
        // Marks keep their own place free before any words are placed.
        for mark in bold().flat_map(|(_, one)| &one.marks) {
            let (at_x, at_y) = px(mark.at);
            sheet.room.take(Area { x: at_x - 6.0, y: at_y - 6.0, width: 12.0, height: 12.0 });
        }
        for (index, one) in bold() {
            let _ = write!(sheet.text, "<g class=\"c{}\">", index % LOOKS);
            if let Some((height, text)) = &one.level {
                let right = sheet.inside.x + sheet.inside.width;
                sheet.label((right, y.px(*height) - 10.0), text, false);
            }
            for mark in &one.marks {
                sheet.mark(px(mark.at), &mark.text);
            }
            sheet.text.push_str("</g>");
        }
    }
}

impl Sheet {
    /// Words had better not lie upon this line.
    fn keep_clear(&mut self, from: (f64, f64), to: (f64, f64)) {
        let steps = ((to.0 - from.0).hypot(to.1 - from.1) / 4.0).ceil().clamp(1.0, 1000.0);
        for step in 0..=steps as u32 {
            let share = f64::from(step) / steps;
            let between = |from: f64, to: f64| from + share * (to - from);
            self.room.draw((between(from.0, to.0), between(from.1, to.1)));
        }
    }

    fn words(&mut self, at: (f64, f64), class: &str, text: &str) {
        self.words_at(at, class, "start", text);
    }

    fn words_at(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        let _ = write!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// Circles, squares, triangles, diamonds, and circles again.
    fn dot(&mut self, (x, y): (f64, f64), look: usize, radius: f64, hover: &str) {
        let title = if hover.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(hover))
        };
        let r = radius;
        let _ = match look % LOOKS {
            1 => write!(
                self.text,
                "<path class=\"dot\" d=\"M{:.1} {:.1}h{:.1}v{:.1}h{:.1}Z\">{title}</path>",
                x - r,
                y - r,
                2.0 * r,
                2.0 * r,
                -2.0 * r
            ),
            2 => write!(
                self.text,
                "<path class=\"dot\" d=\"M{x:.1} {:.1}l{:.1} {:.1}h{:.1}Z\">{title}</path>",
                y - 1.3 * r,
                1.3 * r,
                2.2 * r,
                -2.6 * r
            ),
            3 => write!(
                self.text,
                "<path class=\"dot\" d=\"M{x:.1} {:.1}l{:.1} {:.1}l{:.1} {:.1}l{:.1} {:.1}Z\">{title}</path>",
                y - 1.4 * r,
                1.4 * r,
                1.4 * r,
                -1.4 * r,
                1.4 * r,
                -1.4 * r,
                -1.4 * r
            ),
            _ => write!(
                self.text,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\">{title}</circle>"
            ),
        };
    }

    fn mark(&mut self, at: (f64, f64), text: &str) {
        let (x, y) = at;
        let title = escape(text);
        let _ = write!(
            self.text,
            "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"><title>{title}</title></circle>"
        );
        self.label(at, text, true);
    }

    /// Words beside a point, with a line to it when they are not next to it.
    fn label(&mut self, at: (f64, f64), text: &str, has_lead: bool) {
        let width = text_width(text, TEXT) + 2.0;
        let Some(area) = self.room.place(at, width, TEXT + 2.0) else { return };
        let (left, right) = (area.x, area.x + area.width);
        let middle = area.y + area.height / 2.0;
        let edge = if at.0 < left { left } else { at.0.min(right) };
        let far = (edge - at.0).hypot(middle - at.1) > 20.0;
        if has_lead && far {
            let end = if middle > at.1 { area.y } else { area.y + area.height };
            let end = if at.0 < left || at.0 > right { middle } else { end };
            let _ = write!(
                self.text,
                "<path class=\"lead\" d=\"M{:.1} {:.1}L{edge:.1} {end:.1}\"/>",
                at.0, at.1
            );
        }
        self.words((left + 1.0, area.y + TEXT - 1.0), "", text);
    }

    fn guide(&mut self, guide: &Guide, x: Scale, y: Scale) {
        // What lies beyond the axes would lie upon them.
        let inside = guide.points.iter().filter(|at| x.holds(at.0) && y.holds(at.1));
        let line = path(inside.map(|at| (x.px(at.0), y.px(at.1))));
        let name = escape(&guide.name);
        let _ =
            write!(self.text, "<path class=\"guide\" d=\"{line}\"><title>{name}</title></path>");
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (index, (x, y)) in points.enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(text, "{letter}{x:.1} {y:.1}");
    }
    text
}

/// Text that stands for itself in HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has no way to say these.
            control if control < ' ' && control != '\n' && control != '\t' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests;
