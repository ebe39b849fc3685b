use super::*;

fn chart(names: &[&str]) -> Chart {
    let series = names.iter().enumerate().map(|(index, name)| {
        let rate = |bytes: f64| 8.0 * bytes / (60e-6 * (1 + index) as f64 + bytes * 8.0 / 100e6);
        let sizes = (0..20).map(|power| f64::from(1 << power));
        let points: Vec<Sample> = sizes
            .map(|bytes| Sample { at: (bytes, rate(bytes)), hover: format!("{bytes} B") })
            .collect();
        let marks = vec![
            Mark { at: points[7].at, text: format!("S {}", index) },
            Mark { at: points[14].at, text: format!("n95 {}", index) },
        ];
        let band = points.iter().map(|point| (point.at.0, 0.9 * point.at.1)).collect();
        let level = Some((94e6, "94 Mbit/s".to_string()));
        Series { name: name.to_string(), points, band, marks, level, is_faint: false }
    });
    Chart {
        id: "t".into(),
        title: "Throughput".into(),
        about: "How fast.".into(),
        x: Axis { name: "Block size".into(), unit: Unit::Bytes, run: Run::Log },
        y: Axis { name: "Throughput".into(), unit: Unit::BitsPerSecond, run: Run::Linear },
        series: series.collect(),
        guides: vec![Guide {
            name: "wire".into(),
            points: vec![(1.0, 1e6), (1e5, 94e6), (1e9, 9e9)],
            is_result: false,
        }],
    }
}

const SIZE: Size = Size { width: 720.0, height: 420.0 };

/// Every element that is opened is closed, in order.
fn is_well_formed(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("every tag ends");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).expect("a name");
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty()
}

#[test]
fn what_is_drawn_is_well_formed_and_says_what_it_is() {
    for look in [Look::Page, Look::File, Look::Light] {
        let svg = chart(&["TCP", "MPI", "PVM"]).svg(SIZE, look);
        assert!(is_well_formed(&svg), "{svg}");
        assert!(
            svg.contains("<title id=\"t-t\">Throughput</title><desc id=\"t-d\">How fast.</desc>")
        );
        assert_eq!(svg.contains("<style>"), look != Look::Page);
        assert_eq!(svg.contains("prefers-color-scheme"), look == Look::File);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn a_hostile_name_stays_text() {
    let svg = chart(&["<script>alert('1')</script>\u{1}&"]).svg(SIZE, Look::File);
    assert!(is_well_formed(&svg) && !svg.contains("<script"), "{svg}");
    assert!(svg.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\u{fffd}&amp;"));
}

#[test]
fn curves_differ_in_more_than_their_colour() {
    let svg = chart(&["TCP", "MPI", "PVM", "UDP"]).svg(SIZE, Look::Page);
    for look in 0..4 {
        assert!(svg.contains(&format!("<g class=\"c{look}\">")), "{svg}");
    }
    let mut dashes = style::DASHES.to_vec();
    dashes.sort();
    dashes.dedup();
    assert_eq!(dashes.len(), style::LOOKS);
    // Shapes of the points: a circle, a square, a triangle, a diamond.
    assert!(svg.contains("<circle class=\"dot\"") && svg.contains("<path class=\"dot\""));
}

#[test]
fn theory_ends_where_the_chart_ends() {
    let svg = chart(&["TCP"]).svg(SIZE, Look::Page);
    let guide = svg.split("class=\"guide\" d=\"").last().unwrap().split('"').next().unwrap();
    assert_eq!(guide.matches(['M', 'L']).count(), 2, "{guide}");
}

#[test]
fn what_others_have_measured_is_seen_as_a_whole() {
    let mut chart = chart(&["TCP"]);
    chart.guides[0].is_result = true;
    let svg = chart.svg(SIZE, Look::Page);
    let guide = svg.split("class=\"guide\" d=\"").last().unwrap().split('"').next().unwrap();
    assert_eq!(guide.matches(['M', 'L']).count(), 3, "{guide}");
    chart.series.clear();
    assert!(chart.svg(SIZE, Look::Page).contains("nothing was measured"));
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let svg = chart(&[]).svg(SIZE, Look::Page);
    assert!(svg.contains("nothing was measured") && is_well_formed(&svg), "{svg}");
}

#[test]
fn words_of_many_curves_do_not_lie_upon_each_other() {
    for width in [360.0, 720.0] {
        let chart = chart(&["TCP n1 to n2", "Open MPI n1 to n2", "PVM n1 to n2"]);
        let svg = chart.svg(Size { width, height: 420.0 }, Look::Page);
        let boxes = text_boxes(&svg);
        for (index, one) in boxes.iter().enumerate() {
            for other in &boxes[index + 1..] {
                let apart = one.1 + one.3 <= other.1
                    || other.1 + other.3 <= one.1
                    || (one.2 - other.2).abs() >= 11.0;
                assert!(apart, "{one:?} lies upon {other:?} at width {width}");
            }
        }
        let right = boxes.iter().map(|one| one.1 + one.3).fold(0.0, f64::max);
        assert!(right <= width, "{right} of {width}");
    }
}

/// Text, left edge, base line, width.
fn text_boxes(svg: &str) -> Vec<(String, f64, f64, f64)> {
    let value = |tag: &str, name: &str| -> String {
        tag.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().to_string()
    };
    let texts = svg.split("<text ").skip(1);
    texts
        .map(|part| {
            let (tag, rest) = part.split_once('>').unwrap();
            let text = rest.split('<').next().unwrap().to_string();
            let wide = text_width(&text, TEXT);
            let x: f64 = value(tag, "x").parse().unwrap();
            let left = match value(tag, "text-anchor").as_str() {
                "end" => x - wide,
                "middle" => x - wide / 2.0,
                _ => x,
            };
            (text, left, value(tag, "y").parse().unwrap(), wide)
        })
        .collect()
}
