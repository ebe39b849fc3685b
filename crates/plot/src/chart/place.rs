//! Where the words of a chart go so that none lies upon another.

/// A rectangle on paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    fn meets(&self, other: &Area) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        (self.x..=self.x + self.width).contains(&x) && (self.y..=self.y + self.height).contains(&y)
    }

    fn is_within(&self, other: &Area) -> bool {
        self.x >= other.x
            && self.y >= other.y
            && self.x + self.width <= other.x + other.width
            && self.y + self.height <= other.y + other.height
    }
}

/// The room for words, and what is in it already.
#[derive(Clone, Debug)]
pub struct Room {
    inside: Area,
    taken: Vec<Area>,
    drawn: Vec<(f64, f64)>,
}

/// How wide text is, roughly, in a font without serifs: browsers choose among many.
pub fn text_width(text: &str, size: f64) -> f64 {
    let letter = |letter: char| match letter {
        'i' | 'l' | 'j' | '.' | ',' | ' ' | '|' | '\'' | ':' | 't' | 'f' | '/' => 0.34,
        'm' | 'w' | 'M' | 'W' | '→' => 0.92,
        'A'..='Z' => 0.7,
        _ => 0.6,
    };
    text.chars().map(letter).sum::<f64>() * size
}

impl Room {
    /// Empty room.
    pub fn new(inside: Area) -> Room {
        Room { inside, taken: Vec::new(), drawn: Vec::new() }
    }

    /// A point of a curve: words avoid it where they can.
    pub fn draw(&mut self, point: (f64, f64)) {
        self.drawn.push(point);
    }

    /// Keeps an area free.
    pub fn take(&mut self, area: Area) {
        self.taken.push(area);
    }

    /// The place for words of this size that belong to a point: the nearest one that is free, with as
    /// few points of curves below it as possible. None when there is none: then they are left out.
    pub fn place(&mut self, point: (f64, f64), width: f64, height: f64) -> Option<Area> {
        let area = |(dx, dy): (f64, f64)| Area {
            x: point.0 + dx - if dx < 0.0 { width } else { 0.0 },
            y: point.1 + dy - height / 2.0,
            width,
            height,
        };
        let free = |area: &Area| {
            area.is_within(&self.inside) && !self.taken.iter().any(|taken| taken.meets(area))
        };
        let cost = |area: &Area, way: (f64, f64)| {
            let below = self.drawn.iter().filter(|point| area.holds(**point)).count();
            below as f64 * 30.0 + way.0.abs() * 0.3 + way.1.abs()
        };
        let found = ways()
            .map(|way| (area(way), way))
            .filter(|(area, _)| free(area))
            .min_by(|one, other| cost(&one.0, one.1).total_cmp(&cost(&other.0, other.1)))?;
        self.taken.push(found.0);
        Some(found.0)
    }
}

/// To the right and to the left, at more and more distance above and below.
fn ways() -> impl Iterator<Item = (f64, f64)> {
    let across = [9.0, -9.0, 24.0, -24.0, 60.0, -60.0];
    let down = (0..12).flat_map(|step| [14.0 * f64::from(step), -14.0 * f64::from(step)]);
    down.flat_map(move |dy| across.map(|dx| (dx, dy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_one_point_lie_apart_and_inside() {
        let inside = Area { x: 0.0, y: 0.0, width: 300.0, height: 200.0 };
        let mut room = Room::new(inside);
        let placed: Vec<Area> =
            (0..9).filter_map(|_| room.place((290.0, 100.0), 60.0, 14.0)).collect();
        assert_eq!(placed.len(), 9);
        for (index, one) in placed.iter().enumerate() {
            assert!(one.is_within(&inside), "{one:?}");
            assert!(placed[index + 1..].iter().all(|other| !one.meets(other)), "{placed:?}");
        }
    }

    #[test]
    fn words_without_room_are_left_out_and_curves_are_avoided() {
        let mut room = Room::new(Area { x: 0.0, y: 0.0, width: 50.0, height: 20.0 });
        assert_eq!(room.place((10.0, 10.0), 60.0, 14.0), None);
        let mut room = Room::new(Area { x: 0.0, y: 0.0, width: 300.0, height: 200.0 });
        (0..60).for_each(|x| room.draw((100.0 + f64::from(x), 100.0)));
        let area = room.place((100.0, 100.0), 40.0, 14.0).unwrap();
        assert!(area.x < 100.0 || area.y > 100.0 || area.y + 14.0 < 100.0, "{area:?}");
    }
}
