//! Tables of a page.

use crate::chart::escape;

/// A table that is written row by row. Cells are text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    caption: String,
    heading: Vec<String>,
    rows: Vec<String>,
}

/// A cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// The name of a row.
    Name(String),
    /// Shown as it is, escaped.
    Text(String),
    /// A number, and below it in small letters what belongs to it.
    Number(String, String),
    /// Words that say whether it is well: true, or not.
    Judged(bool, String),
}

impl Table {
    /// An empty one.
    pub fn new(caption: &str, heading: &[&str]) -> Table {
        let heading = heading.iter().map(|word| word.to_string()).collect();
        Table { caption: caption.to_string(), heading, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: String = cells.into_iter().map(|cell| cell.html()).collect();
        self.rows.push(format!("<tr>{cells}</tr>"));
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Headings that begin with `>` stand over numbers.
    pub fn html(&self) -> String {
        let heading: String = self
            .heading
            .iter()
            .map(|word| match word.strip_prefix('>') {
                Some(word) => format!("<th scope=\"col\" class=\"n\">{}</th>", escape(word)),
                None => format!("<th scope=\"col\">{}</th>", escape(word)),
            })
            .collect();
        let caption = if self.caption.is_empty() {
            String::new()
        } else {
            format!("<caption>{}</caption>", escape(&self.caption))
        };
        format!(
            "<div class=\"scroll\"><table>{caption}<thead><tr>{heading}</tr></thead><tbody>{}</tbody></table></div>",
            self.rows.concat()
        )
    }
}

impl Cell {
    /// A number without a unit, aligned at the right.
    pub fn number(text: impl Into<String>) -> Cell {
        Cell::Number(text.into(), String::new())
    }

    fn html(self) -> String {
        match self {
            Cell::Name(text) => format!("<th scope=\"row\">{}</th>", escape(&text)),
            Cell::Text(text) => format!("<td>{}</td>", escape(&text)),
            Cell::Number(text, below) => {
                let below = if below.is_empty() {
                    below
                } else {
                    format!("<small>{}</small>", escape(&below))
                };
                format!("<td class=\"n\">{}{below}</td>", escape(&text))
            }
            Cell::Judged(is_well, text) => {
                let class = if is_well { "good" } else { "bad" };
                format!("<td class=\"{class}\">{}</td>", escape(&text))
            }
        }
    }
}
